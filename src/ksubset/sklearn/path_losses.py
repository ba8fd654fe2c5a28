"""What a path over k fits and measures: least squares, or the loss of a likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ksubset.regression import Selection, Settings, select
from ksubset.sklearn.fitting import Array, choose_columns, prepare, refit
from ksubset.sklearn.outcomes import Outcomes


@dataclass(frozen=True)
class Model:
    """Of k features."""

    support: Array
    coefficients: Array
    constant: Array


class PathLoss(Protocol):
    """Data with a loss.

    Attributes:
        x: (m, n).
    """

    x: Array

    @property
    def measure(self) -> str:
        """What the loss is, in words."""

    def models(self, rows: Array, sizes: Array) -> list[Model]:
        """The best of every size on some of the observations."""

    def loss(self, model: Model, rows: Array) -> float:
        """On some of the observations, on average."""

    def bic(self, losses: Array, sizes: Array) -> Array:
        """From the losses on all observations."""

    @property
    def strata(self) -> Array | None:
        """Classes (m,) of which folds should have equal shares."""


@dataclass
class Squares:
    """Least squares on targets (m, t)."""

    x: Array
    targets: Array
    fit_intercept: bool
    alpha: float
    search: bool
    method: str
    settings: Settings | None
    random: np.random.RandomState

    @property
    def measure(self) -> str:
        """Of least squares."""
        return "mean squared error"

    def models(self, rows: Array, sizes: Array) -> list[Model]:
        """All of them from one Gram matrix."""
        x, targets = self.x[rows], self.targets[rows]
        data = prepare(x, targets, None, self.fit_intercept, self.method)
        found = []
        for k in sizes:
            choice = choose_columns(
                data, int(k), self.alpha, self.search, self.settings, self.random
            )
            support = choice.support.numpy()
            fitted = refit(x, targets, None, support, self.alpha, self.fit_intercept)
            found.append(Model(support, *fitted))
        return found

    def loss(self, model: Model, rows: Array) -> float:
        """The mean squared error."""
        predicted = self.x[rows][:, model.support] @ model.coefficients.T + model.constant
        return float(np.square(self.targets[rows] - predicted).mean())

    def bic(self, losses: Array, sizes: Array) -> Array:
        """With the variance of the noise unknown."""
        m, t = self.targets.shape
        floor = max(np.finfo(np.float64).eps ** 2 * float(np.square(self.targets).mean()), 1e-300)
        return m * t * np.log(np.maximum(losses, floor)) + sizes * t * np.log(m)

    @property
    def strata(self) -> None:
        """None."""


@dataclass
class Likelihoods:
    """The loss of classes, counts or times."""

    x: Array
    outcomes: Outcomes
    fit_intercept: bool
    alpha: float
    search: bool

    @property
    def measure(self) -> str:
        """By the loss's name."""
        return {
            "logistic": "negative log-likelihood per observation",
            "poisson": "half deviance per observation",
            "cox": "negative partial log-likelihood per event",
        }[self.outcomes.loss]

    def models(self, rows: Array, sizes: Array) -> list[Model]:
        """One search for every size."""
        likelihood = self.outcomes.likelihood(rows)
        found: list[Selection] = [
            select(
                self.x[rows], likelihood, int(k), alpha=self.alpha,
                fit_intercept=self.fit_intercept, search=self.search,
            )
            for k in sizes
        ]  # fmt: skip
        return [Model(s.support, s.coefficients.T, s.constant) for s in found]

    def loss(self, model: Model, rows: Array) -> float:
        """Half the deviance, or what takes its place, for every observation or event."""
        likelihood = self.outcomes.likelihood(rows, fitted=False)
        columns = self.x[rows][likelihood.order][:, model.support]
        predictor = model.coefficients @ columns.T + model.constant[:, None]
        return float(likelihood.value(predictor)) / likelihood.effective

    def bic(self, losses: Array, sizes: Array) -> Array:
        """Twice the loss of all observations, and a price for every coefficient."""
        likelihood = self.outcomes.likelihood()
        m = likelihood.effective
        return 2 * m * losses + sizes * likelihood.outputs * np.log(m)

    @property
    def strata(self) -> Array | None:
        """Classes, or events and censored times."""
        return None if self.outcomes.loss == "poisson" else self.outcomes.values[:, -1].astype(int)
