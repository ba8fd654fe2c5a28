"""A job of the sweep: one method on one problem, with one seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.l2x.problems import FEATURES, K, draw, median_rank
from ksubset.estimators import create
from ksubset.explain import KSubsetExplainer, MaskedInput, fit

WORK = "experiments.l2x.job:train"
_TEST = 10_000
# Seeds of what is tested with are not those of what is trained with.
_APART = 1_000_000


def network(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, outputs),
    )  # fmt: skip


def explainer(
    problem: str, estimator: str, options: dict[str, float | str], honest: bool, samples: int
) -> KSubsetExplainer:
    """A scorer and a predictor of classes."""
    predictor = MaskedInput(network(2 * FEATURES, 2, 200), with_choice=True)
    return KSubsetExplainer(
        network(FEATURES, FEATURES, 100), predictor, K[problem], create(estimator, **options),
        samples, honest=honest,
    )  # fmt: skip


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """Fit, and see whether the features that matter come first."""
    problem, seed = settings["problem"], settings["seed"]
    torch.manual_seed(seed)
    model = explainer(
        problem, settings["estimator"], settings["options"], settings["honest"],
        settings["samples"],
    )  # fmt: skip
    data, test = draw(problem, settings["examples"], seed), draw(problem, _TEST, seed + _APART)
    history = fit(
        model, data.x, data.y, loss="cross_entropy", epochs=settings["epochs"],
        batch_size=settings["batch"], learning_rate=settings["rate"], decay=True, seed=seed,
    )  # fmt: skip
    found = model.explain(test.x)
    return {
        "median_rank": float(median_rank(found.marginals, test.matter).mean()),
        "recovery": float((found.chosen & test.matter).sum() / test.matter.sum()),
        "loss": float(F.cross_entropy(found.prediction, test.y)),
        "best_epoch": history.best_epoch,
        "validation": history.validation,
        "marginals": _means(found.marginals, test.x),
    }


def _means(marginals: Tensor, x: Tensor) -> list[list[float]]:
    """Of the marginals, where the last feature is positive and where it is not (the switch)."""
    up = x[:, -1] > 0
    return [marginals[part].mean(0).tolist() for part in (up, ~up)]
