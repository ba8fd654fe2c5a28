"""The k features that a linear model needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ksubset.sklearn.fitting import (
    Array,
    check_k,
    check_settings,
    choose_columns,
    history,
    prepare,
)


class KSubsetSelector(SelectorMixin, BaseEstimator):
    """Keeps the k features that explain y best in a linear model.

    By default the features with the largest marginals: the trained law weighs all subsets that
    explain y about as well, which finds more true features among correlated ones than the single
    subset with the smallest loss does (docs/sparse-regression.md). ``search=True`` gives that one.

    Args:
        k: how many features; None takes half of them.
        search: finish with the swap search of :class:`KSubsetRegressor`.
        fit_intercept, alpha, gamma, n_restarts, max_iter, method, random_state: as there.

    Attributes:
        support_: which features were chosen, boolean (n,).
        marginals_: how likely each was under the trained law, (n,), summing to k.
        history_: of the training, as there.

    Example:
        >>> from ksubset.sklearn import KSubsetSelector
        >>> x = torch.randn(100, 20).numpy()
        >>> selector = KSubsetSelector(k=2, random_state=0).fit(x, 2 * x[:, 3] - x[:, 7] + 1)
        >>> selector.get_support(indices=True).tolist(), selector.transform(x).shape
        ([3, 7], (100, 2))
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        search: bool = False,
        gamma: float | None = None,
        n_restarts: int = 4,
        max_iter: int = 60,
        method: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.search = search
        self.gamma = gamma
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.method = method
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KSubsetSelector:  # noqa: N803
        """On X (m, n) and y (m,) or (m, t); weights (m,) count observations, as repeating them
        would."""
        x, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True,
            ensure_min_samples=2,
        )  # fmt: skip
        k = check_k(self.k, x.shape[1])
        settings = check_settings(
            alpha=self.alpha, gamma=self.gamma, n_restarts=self.n_restarts, max_iter=self.max_iter
        )
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, x, dtype=np.float64, ensure_non_negative=True
            )
        data = prepare(x, y, weights, self.fit_intercept, self.method)
        choice = choose_columns(data, k, self.alpha, self.search, settings, self.random_state)
        self.support_ = np.zeros(x.shape[1], dtype=bool)
        self.support_[choice.support.numpy()] = True
        self.marginals_ = choice.marginals.numpy()
        self.history_ = history(choice)
        self.n_iter_ = self.max_iter
        return self

    def _get_support_mask(self) -> Array:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
