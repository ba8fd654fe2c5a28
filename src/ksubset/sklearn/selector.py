"""The k features that a linear model needs."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ksubset.sklearn.fitting import Array, choose_for


class KSubsetSelector(SelectorMixin, BaseEstimator):
    r"""Keeps the k features that explain y best in a linear model:
    :math:`\min_w \sum_j v_j (y_j - x_j^\top w - b)^2 + \alpha \|w\|^2` with at most k of the
    coefficients other than zero. ``transform`` takes X (m, n) to (m, k).

    The choice is that of :class:`~ksubset.sklearn.KSubsetRegressor` with the same parameters.

    Args:
        k: how many features; None takes half of them.
        fit_intercept: with a constant b.
        alpha: a ridge penalty on the coefficients, as in scikit-learn's Ridge.
        search: take the subset with the smallest loss that the search finds; False takes the
            features with the largest marginals.
        gamma: the prior variance of a coefficient on a column of norm 1, in units of the noise's,
            for the training; None estimates it with the noise level.
        n_restarts: distributions to train, whose most likely subsets give the search more starts;
            it rarely needs them, and takes many times as long with them.
        max_iter: steps of training.
        method: "gram", "rows", or "auto", by the number of features.
        random_state: of the samples.

    Attributes:
        support_: which features were chosen, boolean (n,).
        marginals_: the probability of each feature to be one of the k, (n,), summing to k: its
            share of the evidence of all subsets of k features (docs/sparse-regression.md).
        history_: of the training, arrays by name, a value for every step: the sampled loss as a
            share of y's sum of squares, the noise level, gamma and the entropy of the distribution.
            Empty without ``n_restarts``.

    Examples:
        >>> from ksubset.sklearn import KSubsetSelector
        >>> x = torch.randn(100, 20).numpy()
        >>> y = 2 * x[:, 3] - x[:, 7] + 1
        >>> selector = KSubsetSelector(k=2, random_state=0).fit(x, y)
        >>> selector.get_support(indices=True).tolist(), selector.transform(x).shape
        ([3, 7], (100, 2))
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        search: bool = True,
        gamma: float | None = None,
        n_restarts: int = 0,
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
        """On X and y; several targets share their features.

        Args:
            X: (m, n), an array or sparse: it is neither centred nor made dense as a whole.
            y: (m,) or (m, t).
            sample_weight: (m,), counts observations, as repeating them would.

        Returns:
            The estimator itself.
        """
        choose_for(self, X, y, sample_weight)
        return self

    def _get_support_mask(self) -> Array:
        check_is_fitted(self)
        support: Array = self.support_
        return support

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
