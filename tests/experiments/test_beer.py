"""Reviews read and refused; networks and their training; the study on a few made-up reviews."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.beer import words
from experiments.beer.methods import METHODS, estimator, named
from experiments.beer.model import ReviewExplainer, Scorer
from experiments.beer.results import Entry, claims, entries, tables
from experiments.beer.settings import Settings
from experiments.beer.study import run
from experiments.beer.study import train as train_cells
from experiments.beer.training import (
    PRECISIONS,
    Recipe,
    Training,
    batches,
    precision,
    splits,
)  # fmt: skip
from experiments.datasets.beer import PADDING, UNKNOWN, Reviews, beer
from ksubset.estimators import create

REVIEWS = 200
GOOD, BAD = ["superb", "crisp", "lovely"], ["stale", "sour", "dull"]
FILLER = ["the", "a", "this", "beer", "glass", "was", "with", "my", "we", "so"]


def review(random: np.random.Generator, length: int) -> tuple[list[str], list[int], float]:
    """Words, the places of three opinions, and a rating that takes all three to know."""
    text = [str(word) for word in random.choice(FILLER, length)]
    places = sorted(random.choice(length, 3, replace=False).tolist())
    good = random.integers(2, size=3)
    for place, fine in zip(places, good, strict=True):
        text[place] = str(random.choice(GOOD if fine else BAD))
    return text, places, round(0.1 + 0.8 * float(good.mean()), 2)


@pytest.fixture
def folder(tmp_path):
    """The layout of the real thing."""
    random = np.random.default_rng(0)
    path = tmp_path / "beer"
    path.mkdir()
    for aspect in (1, 2, 3):
        lines = []
        for _ in range(REVIEWS):
            text, _, rating = review(random, int(random.integers(8, 20)))
            lines.append(" ".join([str(rating)] * 5) + "\t" + " ".join(text))
        content = ("\n".join(lines) + "\n").encode()
        (path / f"reviews.aspect{aspect}.heldout.txt.gz").write_bytes(gzip.compress(content))
    annotated = []
    for _ in range(10):
        text, places, rating = review(random, 12)
        spans = [[i, i + 1] for i in places]
        marks = {str(aspect): spans for aspect in range(5)} | {"2": []}
        annotated.append(json.dumps({"x": text, "y": [rating] * 5, **marks}))
    (path / "annotations.json").write_text("\n".join(annotated) + "\n")
    known = GOOD + BAD + FILLER[:-1]
    vectors = random.normal(size=(len(known), 6)).astype(np.float32)
    np.savez(path / "vectors.npz", words=np.array(known), vectors=vectors)
    return path


def test_reads_the_layout(folder):
    data = beer(folder, "aroma", length=16)
    assert data.held_out.tokens.shape == (REVIEWS, 16)
    assert data.training_from == ("reviews.aspect2.heldout.txt", "reviews.aspect3.heldout.txt")
    assert len(data.train) == 2 * REVIEWS
    torch.testing.assert_close(data.held_out.ratings.unique(), torch.tensor([0.1, 0.37, 0.63, 0.9]))
    # Padding behind the text, and nowhere else.
    words_of = data.held_out.tokens != PADDING
    assert (words_of.int().diff(dim=-1) <= 0).all()
    assert (data.held_out.tokens == UNKNOWN).any()
    assert not data.vectors[:2].any()
    assert torch.equal(data.annotated.marked.sum(-1), torch.full((10,), 3))
    assert set(data.sha256) == {
        "vectors.npz", "annotations.json", *(f"reviews.aspect{i}.heldout.txt" for i in (1, 2, 3)),
    }  # fmt: skip


def test_training_file_is_preferred_and_overlap_left_out(folder):
    held_out = gzip.decompress((folder / "reviews.aspect1.heldout.txt.gz").read_bytes())
    shared = held_out.decode().splitlines()[0]
    path = folder / "reviews.aspect2.heldout.txt.gz"
    others = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(gzip.compress((others + shared + "\n").encode()))
    assert len(beer(folder, "aroma").train) == 2 * REVIEWS
    (folder / "reviews.aspect1.train.txt").write_text("0.1 0.4 0.3 0.2 0.5\tthe crisp beer\n")
    data = beer(folder, "aroma")
    assert data.training_from == ("reviews.aspect1.train.txt",)
    assert data.train.ratings.tolist() == [pytest.approx(0.4)]


def test_original_vectors(folder):
    (folder / "review+wiki.filtered.200.txt").write_text("crisp 1 2 3\nstale 4 5 6\n")
    data = beer(folder, "taste")
    assert data.vectors.tolist() == [[0] * 3, [0] * 3, [1, 2, 3], [4, 5, 6]]
    (folder / "review+wiki.filtered.200.txt").write_text("crisp 1 2 3\nstale 4 5\n")
    with pytest.raises(ValueError, match="line 2: 3 numbers were expected"):
        beer(folder, "taste")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("reviews.aspect1.heldout.txt.gz", b"not gzip", "is not a complete gzip file"),
        ("reviews.aspect1.heldout.txt.gz", gzip.compress(b"0.1 0.2\ta b", mtime=0), "five ratings"),
        (
            "reviews.aspect1.heldout.txt.gz",
            gzip.compress(b"1 1 1 1 1.5\ta", mtime=0),
            "five ratings",
        ),
        (
            "reviews.aspect1.heldout.txt.gz",
            gzip.compress(b"1 1 1 1 nan\ta", mtime=0),
            "five ratings",
        ),
        ("reviews.aspect1.heldout.txt.gz", gzip.compress(b"1 1 1 1 1 text", mtime=0), "a tab"),
        ("reviews.aspect1.heldout.txt.gz", gzip.compress(b"1 1 1 1 1\t\xff", mtime=0), "not UTF-8"),
        ("annotations.json", b"{", "line 1"),
        ("annotations.json", b'{"x": ["a"], "y": [1, 1, 1, 1, 1], "1": [[0, 2]]}', "spans"),
        ("annotations.json", b'{"x": ["a"], "y": [1, 1, 1, 1, 1]}', "were expected"),
        ("annotations.json", b'{"x": "ab", "y": [1, 1, 1, 1, 1], "1": []}', "a list of words"),
        ("annotations.json", b'{"x": [1], "y": [1, 1, 1, 1, 1], "1": []}', "a list of words"),
        ("annotations.json", b'{"x": ["a"], "y": [1e999, 1, 1, 1, 1], "1": []}', "five ratings"),
        ("vectors.npz", b"PK", "does not hold words and vectors"),
        ("vectors.npz", b"", "does not hold words and vectors"),
    ],
)
def test_wrong_files(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        beer(folder, "aroma")


@pytest.mark.parametrize(
    ("known", "vectors", "message"),
    [
        ([b"the", b"a"], np.ones((2, 3)), "words must be strings"),
        (["the", "the"], np.ones((2, 3)), "each of them once"),
        (["the", "a"], np.ones((3, 3)), "one vector for each of 2 words"),
        (["the", "a"], np.ones((2, 0)), "one vector for each of 2 words"),
        (["the", "a"], np.full((2, 3), np.nan), "vectors must be finite"),
    ],
)
def test_wrong_vectors(folder, known, vectors, message):
    np.savez(folder / "vectors.npz", words=np.array(known), vectors=vectors)
    with pytest.raises(ValueError, match=message):
        beer(folder, "aroma")


def test_held_out_reviews_are_never_trained_on(folder):
    path = folder / "reviews.aspect1.heldout.txt.gz"
    held_out = gzip.decompress(path.read_bytes())
    extra = b"0.1 0.4 0.3 0.2 0.5\tthe crisp beer\r\n"
    # The same texts with other ends of lines, and one more.
    (folder / "reviews.aspect1.train.txt").write_bytes(held_out.replace(b"\n", b"\r\n") + extra)
    assert len(beer(folder, "aroma").train) == 1


def test_missing_files(folder, tmp_path):
    with pytest.raises(ValueError, match="aspect must be one of appearance, aroma"):
        beer(folder, "smell")
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        beer(tmp_path / "nowhere", "aroma")
    with pytest.raises(FileNotFoundError, match=r"reviews\.aspect0\.heldout\.txt does not exist"):
        beer(folder, "appearance")
    (folder / "vectors.npz").unlink()
    with pytest.raises(FileNotFoundError, match="must hold word vectors"):
        beer(folder, "aroma")


def test_logits_do_not_depend_on_padding_nor_on_other_members():
    torch.manual_seed(0)
    vectors = torch.randn(30, 6)
    vectors[:2] = 0
    both = ReviewExplainer(vectors, 2, create("simple"), [3, 4]).eval()
    alone = ReviewExplainer(vectors, 2, create("simple"), [4]).eval()
    text = torch.randint(1, 30, (5, 9))
    text[2, 4:] = PADDING
    found = both.scorer(text.repeat(2, 1)).reshape(2, 5, 9)[1]
    longer = torch.cat([text, torch.zeros(5, 7, dtype=text.dtype)], 1)
    some = text != PADDING
    torch.testing.assert_close(alone.scorer(text)[some], found[some])
    torch.testing.assert_close(alone.scorer(longer)[:, :9][some], found[some])
    # One text among others, and by itself.
    torch.testing.assert_close(alone.scorer(text[2:3, :4]), found[2:3, :4])


def test_scorer_in_bfloat16_is_near():
    torch.manual_seed(0)
    vectors, text = torch.randn(30, 6), torch.randint(1, 30, (4, 9))
    plain, half = Scorer(vectors, 1), Scorer(vectors, 1, torch.bfloat16)
    for layer, other in zip(plain.parameters(), half.parameters(), strict=True):
        torch.nn.init.normal_(layer, std=0.2)
        other.data.copy_(layer)
    exact, near = plain.eval()(text), half.eval()(text)
    assert near.dtype == torch.float32
    assert (exact - near).abs().max() < 0.05 * exact.abs().max()


def test_batches_hold_every_review_once():
    lengths = torch.randint(5, 300, (103,))
    found = batches(lengths, 4, seed=1)
    assert found.shape == (25, 4)
    assert found.unique().numel() == 100
    assert not torch.equal(found, batches(lengths, 4, seed=2))


def test_a_member_that_diverges_does_not_take_the_others_along(folder):
    data = beer(folder, "aroma", length=20)
    training = Training(data, Recipe(k=2, epochs=1, batch=20), create("simple"), [0, 1])
    with torch.no_grad():
        for parameter in training.parameters:
            parameter[0] = torch.nan
    lost, fine = training.train()
    assert lost is None
    assert fine.test < 0.2


def test_an_aspect_without_marks(folder):
    data = beer(folder, "palate", length=20)
    (outcome,) = Training(data, Recipe(k=2, epochs=1, batch=20), create("simple"), [0]).train()
    assert outcome.precision == 0
    assert outcome.precision_marked is None


def test_other_data_than_before(folder, tmp_path):
    settings = Settings(
        data_dir=folder, cells="aroma:2", methods="simple,l2x", splits=1, epochs=1, workers=0,
        device="cpu",
    )  # fmt: skip
    made = {"sha256": {"a.txt": "1"}}, {"sha256": {"a.txt": "2"}}

    def run_jobs(jobs):
        return {one.name: found for one, found in zip(jobs, (*made, made[0]), strict=False)}

    with pytest.raises(ValueError, match=r"a\.txt was another file when"):
        train_cells(settings, folder, {}, run_jobs)


def test_splits_are_halves():
    found = splits(11, [0, 1])
    assert found.sum(-1).tolist() == [5, 5]
    assert not torch.equal(found[0], found[1])


def test_precision():
    chosen = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=torch.bool)
    marked = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    assert precision(chosen, marked).tolist() == [0.5, 0.0]


def test_members_train_as_if_alone(folder, monkeypatch):
    # Without what is random, and in double precision, where Adam does not magnify rounding.
    monkeypatch.setattr("experiments.beer.model.DROPOUT", 0.0)
    monkeypatch.setitem(PRECISIONS, "float64", torch.float64)
    data = beer(folder, "aroma", length=20)
    data = replace(data, vectors=data.vectors.double(), train=_double(data.train))
    recipe = Recipe(k=2, epochs=2, batch=20, rate=1e-2, clip=0.5, precision="float64")
    members = []
    for seeds in ([5, 6], [6]):
        torch.set_default_dtype(torch.float64)
        try:
            training = Training(data, recipe, create("marginals"), seeds)
        finally:
            torch.set_default_dtype(torch.float32)
        training.model.double()
        training.epoch(1)
        members.append(training.model.state_dict())
    together, alone = members
    for name, value in alone.items():
        torch.testing.assert_close(together[name][1:], value)


def _double(reviews: Reviews) -> Reviews:
    return Reviews(reviews.tokens, reviews.ratings.double())


def test_finds_the_words_that_decide(folder):
    data = beer(folder, "aroma", length=20)
    recipe = Recipe(k=3, epochs=15, batch=10, rate=5e-3)
    outcomes = Training(data, recipe, create("simple"), range(4)).train()
    # On average: one seed in ten finds but half of the words, whatever the random numbers.
    assert np.mean([outcome.test for outcome in outcomes]) < 0.02  # predicting the mean: 0.053
    assert np.mean([outcome.precision for outcome in outcomes]) > 0.7  # random words: 0.25
    for outcome in outcomes:
        assert len(outcome.validation) == 15
        assert all(len(row) == 3 for row in outcome.chosen)
        assert outcome.validation[outcome.epoch - 1] == min(outcome.validation)


def test_settings_that_differ_within_a_stack():
    made = estimator("softsub", {}, [{"temperature": 0.5}, {"temperature": 2.0}], rows=3)
    assert made.temperature.flatten().tolist() == [0.5] * 3 + [2.0] * 3
    assert estimator("softsub", {}, [{"temperature": 0.5}] * 2, rows=3).temperature == 0.5


def test_methods_by_name():
    assert named("all") == list(METHODS)
    assert [method.name for method in named("l2x,simple")] == ["simple", "l2x"]
    (less_noise,) = named("simple-16")
    assert less_noise.at("aroma", 5).rate == METHODS[0].at("aroma", 5).rate != less_noise.rate
    made = estimator(less_noise.estimator, dict(less_noise.options), [{}], rows=2)
    assert (16 * made.sample(torch.zeros(2, 6), 2) % 1 == 0).all()
    with pytest.raises(ValueError, match=r"methods must be among all, simple, .*, got 'magic'"):
        named("magic")
    (imle,) = named("imle")
    assert len(imle.variants()) == 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cells": "smell:3"}, "cells must be like aroma:10"),
        ({"cells": "aroma:0"}, "cells must be like aroma:10"),
        ({"cells": "aroma"}, "cells must be like aroma:10"),
        ({"cells": "aroma:351"}, "k must be at most 350"),
        ({"engine": "magic"}, "engine must be one of processes, ray"),
        ({"precision": "float16"}, "precision must be one of auto, float32"),
        ({"address": "10.0.0.1:6379"}, "address is for --engine ray"),
    ],
)
def test_wrong_settings(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(**given)


def test_study(folder, tmp_path):
    settings = Settings(
        data_dir=folder, cells="aroma:2,taste:1", methods="simple,l2x,swap-4", splits=2, epochs=1,
        batch=10, tune=True, tune_epochs=1, workers=0, device="cpu",
    )  # fmt: skip
    run(settings, tmp_path / "out", overwrite=False)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {(c["aspect"], c["k"]) for c in results["cells"]} == {("aroma", 2), ("taste", 1)}
    assert all(len(cell["members"]) == 2 for cell in results["cells"])
    assert len(results["grids"]) == 2 * 2 * (1 + 4 + 1)
    settings_of = {cell["method"]: cell["setting"] for cell in results["cells"]}
    assert settings_of["swap-4"].startswith("4 samples, lr")
    assert not settings_of["simple"].startswith("4 samples")
    report = (tmp_path / "out" / "report.html").read_text()
    assert "words-taste-1.html" in report
    page = (tmp_path / "out" / "words-aroma-2.html").read_text()
    assert 'class="right"' in page or 'class="wrong"' in page
    assert not (tmp_path / "out.partial").exists()
    with pytest.raises(ValueError, match="holds a run already"):
        run(settings, tmp_path / "out", overwrite=False)


def entry(method: str, tests: list[float], precisions: list[float]) -> Entry:
    members = [
        {"test": t, "precision": p, "precision_marked": p, "epoch": 3, "validation": [0.1]}
        for t, p in zip(tests, precisions, strict=True)
    ]
    return Entry("aroma", 5, method, method.upper(), "lr", members, 0, ("a.txt",), 10)


def test_claims_and_tables():
    ours = entry("simple", [0.03, 0.031, 0.032], [0.30, 0.31, 0.32])
    rival = entry("l2x", [0.04, 0.041, 0.042], [0.50, 0.51, 0.52])
    lowest, exceeded = claims([ours, rival])
    assert lowest.held
    assert not exceeded.held
    near = entry("l2x", [0.02, 0.021, 0.022], [0.30, 0.33, 0.32])
    lowest, exceeded = claims([ours, near])
    assert not lowest.held
    assert exceeded.held
    (table,) = tables([ours, rival])
    assert table.rows[0][2:4] == ["3.10 ± 0.10", "31.00 ± 1.00"]
    assert table.rows[0][-2:] == ["2.27 ± 0.05", "57.30 ± 3.04"]
    assert claims([entry("simple", [0.1], [0.1]), entry("l2x", [0.2], [0.2])]) == []


def test_claims_are_about_those_they_name():
    """The authors' learning rate is better in the same table, and a rival with one split left has
    nothing to be judged by: neither is claimed to be beaten."""
    ours = entry("simple", [0.03, 0.031, 0.032], [0.30, 0.31, 0.32])
    found = [
        ours,
        entry("simple-authors", [0.02, 0.021, 0.022], [0.40, 0.41, 0.42]),
        entry("imle", [0.01], [0.9]),
        entry("l2x", [0.04, 0.041, 0.042], [0.10, 0.11, 0.12]),
        entry("score", [0.05, 0.041, 0.042], [0.10, 0.11, 0.12]),
    ]
    assert [(claim.said, claim.held) for claim in claims(found)] == [
        ("aroma, k = 5: SIMPLE has a lower test MSE than L2X and SCORE.", True),
        ("aroma, k = 5: SIMPLE has no significantly lower precision than L2X or SCORE.", True),
    ]


def test_diverged_members_are_counted():
    cell = {
        "aspect": "aroma", "k": 5, "method": "imle", "label": "I-MLE", "setting": "",
        "members": [None, {"test": 0.1}], "training_from": ["a"], "reviews": 1,
    }  # fmt: skip
    (found,) = entries([cell])
    assert found.diverged == 1
    assert entries([cell | {"members": [None]}])[0].epochs() == "– (1 diverged)"
    assert found.values("test").tolist() == [10.0]


def test_words_are_escaped(folder):
    data = beer(folder, "aroma", length=20)
    member = {"chosen": [[0, 1]] * 10, "weights": [[0.9, 0.0]] * 10}
    found = Entry("aroma", 2, "simple", "<SIMPLE>", "", [member], 0, (), 1)
    text = words.page("aroma", 2, [found], data.annotated)
    assert "&lt;SIMPLE&gt;" in text
    assert text.count('title="0.900"') == 10
