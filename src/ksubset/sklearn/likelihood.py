"""What the estimators of likelihoods share: the search, and its result as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ksubset.regression import Selection, select
from ksubset.sklearn.fitting import KINDS, Array, check_alpha, check_k
from ksubset.sklearn.outcomes import Outcomes, read_outcomes


class LikelihoodEstimator(BaseEstimator):
    """Parameters and fitting; a subclass names the loss and predicts."""

    _loss: str

    def __init__(
        self,
        k: int | None = None,
        *,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        search: bool = True,
    ) -> None:
        self.k = k
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.search = search

    def _select(self, x: Array, y: Any, sample_weight: Any) -> tuple[Outcomes, Selection]:
        """Of checked data. Observations without weight are left out, as if they were not there."""
        n = x.shape[1]
        k = check_k(min(10, n) if self.k is None else self.k, n)
        alpha = check_alpha(self.alpha)
        weights = np.ones(len(x))
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, x, dtype=np.float64, ensure_non_negative=True
            )
            some = weights > 0
            if not some.any():
                raise ValueError("sample_weight must have a positive value, got only zeros")
            x, y, weights = x[some], y[some], weights[some]
        outcomes = read_outcomes(self._loss, y)
        likelihood = outcomes.likelihood(weights=weights)
        constant = getattr(self, "fit_intercept", False)
        found = select(x, likelihood, k, alpha=alpha, fit_intercept=constant, search=self.search)
        self.support_: Array = np.zeros(x.shape[1], dtype=bool)
        self.support_[found.support] = True
        self.n_swaps_ = found.swaps
        return outcomes, found

    def _predictor(self, X: Any) -> Array:  # noqa: N803
        """The chosen columns times their coefficients, (m,) or (m, t); without constant terms."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=KINDS, reset=False)
        chosen = np.flatnonzero(self.support_)
        return x[:, chosen] @ self.coef_[..., chosen].T


def spread(found: Selection, n: int) -> Array:
    """Coefficients of all n columns, (t, n)."""
    full = np.zeros((found.coefficients.shape[1], n))
    full[:, found.support] = found.coefficients.T
    return full
