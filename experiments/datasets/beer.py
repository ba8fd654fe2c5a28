"""BeerAdvocate's reviews with a rating per aspect, prepared by Lei, Barzilay and Jaakkola (2016):
tokens as numbers, ratings, and the words that people marked as the reasons.

The folder holds, gzipped or not,

- ``reviews.aspectI.heldout.txt`` for the aspect I (appearance 0, aroma 1, palate 2, taste 3), which
  is split into validation and test, and ``reviews.aspectI.train.txt``: five ratings in [0, 1], a
  tab, the tokens. Without a file for training, the held-out reviews of the *other* aspects take its
  place, less those that are in this one too; every review has all five ratings.
- ``annotations.json``: a review a line, ``x`` its tokens, ``y`` its ratings, and for every aspect
  "0" ... "4" the spans [start, end) that were marked.
- word vectors: ``review+wiki.filtered.200.txt`` (a word and its numbers a line), or ``*.npz`` with
  ``words`` and ``vectors``.

The reviews are for research only: nothing is fetched, and no hash of a training file is known here.
The SHA-256 of everything read goes into the results.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.datasets.files import VARIABLE, unzipped

ASPECTS = ("appearance", "aroma", "palate", "taste")
MAX_TOKENS = 350
PADDING, UNKNOWN = 0, 1


@dataclass(frozen=True)
class Reviews:
    """Tokens (reviews, length) with padding behind, int32, and ratings (reviews,) in [0, 1]."""

    tokens: Tensor
    ratings: Tensor

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Annotated:
    """Reviews whose reasons were marked by people.

    Attributes:
        words: of every review, all of them.
        marked: (reviews, length), True for a reason.
    """

    reviews: Reviews
    words: tuple[tuple[str, ...], ...]
    marked: Tensor


@dataclass(frozen=True)
class Beer:
    """One aspect.

    Attributes:
        vectors: (words, dimensions), zero for padding (0) and unknown words (1).
        training_from: the names of the files the training reviews come from.
        sha256: of the content of every file that was read.
    """

    aspect: str
    train: Reviews
    held_out: Reviews
    annotated: Annotated
    vectors: Tensor
    training_from: tuple[str, ...]
    sha256: dict[str, str]


def beer(folder: Path, aspect: str, length: int = MAX_TOKENS) -> Beer:
    """Read one aspect from a folder; longer reviews are cut off at ``length`` tokens."""
    if aspect not in ASPECTS:
        raise ValueError(f"aspect must be one of {', '.join(ASPECTS)}, got {aspect!r}")
    files = _Folder(folder)
    number = ASPECTS.index(aspect)
    vocabulary, vectors = _vectors(files)
    held_out = _reviews(files, f"reviews.aspect{number}.heldout.txt", number)
    training = f"reviews.aspect{number}.train.txt"
    if files.has(training):
        sources = [training]
        train = _reviews(files, training, number)
    else:
        others = [i for i in range(len(ASPECTS)) if i != number]
        sources = [name for i in others if files.has(name := f"reviews.aspect{i}.heldout.txt")]
        if not sources:
            raise FileNotFoundError(
                f"{folder} holds neither {training} nor held-out reviews of other aspects to train "
                "on in its place"
            )
        train = [review for name in sources for review in _reviews(files, name, number)]
    # A text may be there twice, or for several aspects: none is trained on and tested with.
    tested = {text for text, _ in held_out}
    train = list({text: (text, rating) for text, rating in train if text not in tested}.values())
    return Beer(
        aspect,
        _numbered(train, vocabulary, length),
        _numbered(held_out, vocabulary, length),
        _annotated(files, number, vocabulary, length),
        vectors,
        tuple(sources),
        files.sha256,
    )


class _Folder:
    """Files by name, gzipped or not, and the hashes of those that were read."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise FileNotFoundError(
                f"{path} is not a folder: --data-dir or the environment variable {VARIABLE} names "
                "the folder of the reviews"
            )
        self.path = path
        self.sha256: dict[str, str] = {}

    def find(self, name: str) -> Path | None:
        for path in (self.path / name, self.path / f"{name}.gz"):
            if path.is_file():
                return path
        return None

    def has(self, name: str) -> bool:
        return self.find(name) is not None

    def read(self, name: str) -> bytes:
        path = self.find(name)
        if path is None:
            raise FileNotFoundError(f"{self.path / name} does not exist, nor does {name}.gz")
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = unzipped(content, path)
        self.sha256[name] = hashlib.sha256(content).hexdigest()
        return content

    def lines(self, name: str) -> Iterable[tuple[str, str]]:
        """Every line with where it is, for errors."""
        try:
            text = self.read(name).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path / name} is not UTF-8: {error}") from None
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            yield line, f"{self.path / name}, line {number}"


def _ratings(values: Sequence[object], where: str) -> list[float]:
    try:
        found = [float(value) for value in values]  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        found = []
    if len(found) != 5 or not all(0 <= value <= 1 for value in found):
        raise ValueError(f"{where}: five ratings in [0, 1] were expected, got {values!r}")
    return found


Text = tuple[str, ...]


def _reviews(files: _Folder, name: str, aspect: int) -> list[tuple[Text, float]]:
    found = []
    for line, where in files.lines(name):
        ratings, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise ValueError(f"{where}: ratings, a tab and a text were expected, got {line[:60]!r}")
        found.append((tuple(text.split()), _ratings(ratings.split(), where)[aspect]))
    return found


def _vectors(files: _Folder) -> tuple[dict[str, int], Tensor]:
    """Numbers of words, from 2 on, and their vectors."""
    original = "review+wiki.filtered.200.txt"
    if files.has(original):
        origin = files.path / original
        words, rows = [], []
        for line, where in files.lines(original):
            word, *numbers = line.split(" ")
            try:
                rows.append(np.asarray([n for n in numbers if n], dtype=np.float32))
            except ValueError as error:
                raise ValueError(f"{where}: a word and numbers were expected: {error}") from None
            if rows[-1].shape != rows[0].shape:
                raise ValueError(f"{where}: {len(rows[0])} numbers were expected")
            words.append(word)
        vectors = np.stack(rows)
    else:
        archives = sorted(files.path.glob("*.npz"))
        if len(archives) != 1:
            raise FileNotFoundError(
                f"{files.path} must hold word vectors: {original}, or one .npz file with words and "
                f"vectors; it holds {len(archives)} of those"
            )
        origin = archives[0]
        try:
            with np.load(io.BytesIO(files.read(origin.name)), allow_pickle=False) as archive:
                words, vectors = archive["words"].tolist(), archive["vectors"].astype(np.float32)
        except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{origin} does not hold words and vectors: {error}") from None
    if not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise ValueError(f"{origin}: words must be strings, each of them once")
    if vectors.ndim != 2 or not vectors.size or len(vectors) != len(words):
        raise ValueError(
            f"{origin}: one vector for each of {len(words)} words was expected, got an array of "
            f"shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        raise ValueError(f"{origin}: vectors must be finite")
    table = torch.zeros(len(words) + 2, vectors.shape[1])
    table[2:] = torch.from_numpy(vectors)
    return {word: i for i, word in enumerate(words, 2)}, table


def _numbers(texts: Iterable[Sequence[str]], vocabulary: dict[str, int], length: int) -> Tensor:
    rows = [[vocabulary.get(word, UNKNOWN) for word in text[:length]] for text in texts]
    found = np.full((len(rows), length), PADDING, dtype=np.int32)
    for i, row in enumerate(rows):
        found[i, : len(row)] = row
    return torch.from_numpy(found)


def _numbered(
    reviews: Sequence[tuple[Text, float]], vocabulary: dict[str, int], length: int
) -> Reviews:
    tokens = _numbers((text for text, _ in reviews), vocabulary, length)
    return Reviews(tokens, torch.tensor([rating for _, rating in reviews]))


def _annotated(files: _Folder, aspect: int, vocabulary: dict[str, int], length: int) -> Annotated:
    texts: list[tuple[str, ...]] = []
    ratings, spans = [], []
    for line, where in files.lines("annotations.json"):
        try:
            review = json.loads(line)
            words = tuple(review["x"])
            marked = [(int(start), int(end)) for start, end in review[str(aspect)]]
            rating = _ratings(list(review["y"]), where)[aspect]
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: tokens x, ratings y and spans were expected: {error}"
            ) from None
        if not isinstance(review["x"], list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{where}: x must be a list of words")
        if not words or any(not 0 <= start <= end <= len(words) for start, end in marked):
            raise ValueError(f"{where}: spans {marked} of {len(words)} tokens")
        texts.append(words)
        ratings.append(rating)
        spans.append(marked)
    table = torch.zeros(len(texts), length, dtype=torch.bool)
    for row, marked in zip(table, spans, strict=True):
        for start, end in marked:
            row[start:end] = True
    reviews = Reviews(_numbers(texts, vocabulary, length), torch.tensor(ratings))
    return Annotated(reviews, tuple(texts), table)
