"""Do explanations find the words that people marked, when there are few texts to learn from?

    python benchmarks/marked_words.py FOLDER --seeds 5

FOLDER holds the beer reviews (``experiments/datasets/beer.py`` says how). A linear classifier
learns from 1600 reviews whether an aspect is rated above the median; the recipe of
docs/howto/explain.md learns from the same reviews what decides for it; both explain the reviews
that people annotated. Printed is the share of ten chosen words that people marked, in per cent:
mean and standard deviation over seeds, each of which draws reviews of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

from experiments.datasets.beer import UNKNOWN, beer
from ksubset.explain import KSubsetExplainer, fit, word_vectors

K, TEXTS = 10, 1600
ASPECTS = ("aroma", "palate", "taste")


def vectors_of(x: Tensor, words: int, learned: int | None) -> nn.Embedding:
    """From the texts, frozen; or learned from scratch, with so many dimensions."""
    if learned is not None:
        return nn.Embedding(words, learned)
    return nn.Embedding.from_pretrained(word_vectors(x, words))


class Scorer(nn.Module):
    """A word's logit, from its vector and those around it."""

    def __init__(self, vectors: nn.Embedding, width: int) -> None:
        super().__init__()
        self.vectors = vectors
        self.around = nn.Conv1d(vectors.embedding_dim, 64, width, padding=width // 2)
        self.score = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length)."""
        found: Tensor = self.around(self.vectors(x).transpose(1, 2)).relu()
        return self.score(found.transpose(1, 2)).squeeze(-1)


class Predictor(nn.Module):
    """From the mean of the chosen words' vectors."""

    def __init__(self, vectors: nn.Embedding) -> None:
        super().__init__()
        self.vectors = vectors
        self.classes = nn.Linear(vectors.embedding_dim, 2)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(batch, 2)."""
        chosen = (self.vectors(x) * z.unsqueeze(-1)).sum(1) / z.sum(1, keepdim=True).clamp_min(1)
        return self.classes(chosen)


def counts(x: Tensor, words: int) -> np.ndarray:
    """How often every word stands in every text."""
    found = torch.zeros(len(x), words)
    found.scatter_add_(1, x, torch.ones_like(x, dtype=torch.float32))
    return found[:, UNKNOWN + 1 :].numpy()


def run(folder: Path, aspect: str, seed: int) -> dict[str, float]:
    """Precision of every way to choose ten words, in per cent."""
    data = beer(folder, aspect)
    order = torch.randperm(len(data.held_out), generator=torch.Generator().manual_seed(seed))
    rows = order[:TEXTS]
    x, ratings = data.held_out.tokens[rows].long(), data.held_out.ratings[rows]
    tested, marked = data.annotated.reviews.tokens.long(), data.annotated.marked
    words = len(data.vectors)
    x[x == UNKNOWN], mask = 0, x > UNKNOWN
    allowed = tested > UNKNOWN
    tested[~allowed] = 0
    classifier = make_pipeline(TfidfTransformer(sublinear_tf=True), LogisticRegression(C=3))
    classifier.fit(counts(x, words), (ratings > ratings.median()).numpy())
    said = torch.tensor(classifier.predict_proba(counts(x, words)), dtype=torch.float32)

    def precision(chosen: Tensor) -> float:
        return 100 * float((chosen & marked).sum() / chosen.sum())

    weight = classifier[0].idf_ * classifier[1].coef_[0]
    effect = torch.tensor(np.concatenate([np.zeros(UNKNOWN + 1), weight]))[tested].abs()
    best = effect.masked_fill(~allowed, -1).topk(K).indices
    found = {
        "at random": precision(allowed),
        "gradient × input": precision(torch.zeros_like(allowed).scatter(1, best, True) & allowed),
    }
    for name, learned, width, estimator in (
        ("learned vectors, width 3", 16, 3, "swap"),
        ("vectors of the texts, width 3", None, 3, "swap"),
        ("vectors of the texts, width 9", None, 9, "swap"),
        ("the same with SIMPLE", None, 9, "simple"),
    ):
        torch.manual_seed(seed)
        vectors = [vectors_of(x, words, learned) for _ in range(2)]
        explainer = KSubsetExplainer(
            Scorer(vectors[0], width), Predictor(vectors[1]), K, estimator, honest=True
        )
        settings = {"epochs": 10, "learning_rate": 1e-2, "decay": True, "seed": seed}
        fit(explainer, x, said, mask=mask, loss="cross_entropy", **settings)  # type: ignore[arg-type]
        found[name] = precision(explainer.explain(tested, mask=allowed).chosen)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--aspects", nargs="+", default=ASPECTS)
    arguments = parser.parse_args()
    columns = []
    for aspect in arguments.aspects:
        runs = [run(arguments.folder, aspect, seed) for seed in range(arguments.seeds)]
        columns.append({name: np.array([found[name] for found in runs]) for name in runs[0]})
    table = Table(title=f"marked words among {K} chosen ones, %")
    for name in ("", *arguments.aspects):
        table.add_column(name)
    for name in columns[0]:
        table.add_row(name, *(f"{c[name].mean():.1f} ± {c[name].std(ddof=1):.1f}" for c in columns))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
