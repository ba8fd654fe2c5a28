"""Best-k linear regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.sklearn.fitting import KINDS, Array, choose_for, refit


class KSubsetRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression on the best k features:
    :math:`\min_w \sum_j v_j (y_j - x_j^\top w - b)^2 + \alpha \|w\|^2` with at most k of the
    coefficients other than zero.

    Up to 50,000 subsets are all compared. Where there are more, swaps of one feature for another
    start from forward selection and from samples of the posterior over subsets, and end where none
    lowers the loss: then the result need not be the best subset, but no single swap improves it.
    Several targets share their features.

    The loss is that of the training data: with much noise, the subset that fits best has features
    that fit the noise. ``marginals_`` tells which ones to trust.

    Constant features are chosen only if nothing else is left; of features that are the same, one.
    With k or fewer observations the fit is exact and not unique: the shortest is taken. X of
    more than 5e7 numbers in float32 is searched in float32, and refitted in float64.

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
        coef_: (n,), or (t, n) for y of two dimensions; zero but for k of them.
        intercept_: a number, or (t,).
        support_: which features were chosen, boolean (n,).
        marginals_: the probability of each feature to be one of the k, (n,), summing to k: its
            share of the evidence of all subsets of k features (docs/sparse-regression.md).
        history_: of the training, arrays by name, a value for every step: the sampled loss as a
            share of y's sum of squares, the noise level, gamma and the entropy of the distribution.
            Empty without ``n_restarts``.
        n_swaps_: made by the search, without those from samples of the posterior.

    Examples:
        >>> from ksubset.sklearn import KSubsetRegressor
        >>> x = torch.randn(100, 20).numpy()
        >>> y = 2 * x[:, 3] - x[:, 7] + 1
        >>> model = KSubsetRegressor(k=2, random_state=0).fit(x, y)
        >>> model.support_.nonzero()[0].tolist(), model.coef_[[3, 7]].round(3).tolist()
        ([3, 7], [2.0, -1.0])
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KSubsetRegressor:  # noqa: N803
        """On X and y; several targets share their features.

        Args:
            X: (m, n), an array or sparse: it is neither centred nor made dense as a whole.
            y: (m,) or (m, t).
            sample_weight: (m,), counts observations, as repeating them would.

        Returns:
            The estimator itself.
        """
        x, y, weights, choice = choose_for(self, X, y, sample_weight)
        support = choice.support.numpy()
        coefficients, intercepts = refit(x, y, weights, support, self.alpha, self.fit_intercept)
        full = np.zeros((len(coefficients), x.shape[1]))
        full[:, support] = coefficients
        self.coef_: Array = full if y.ndim == 2 else full[0]
        self.intercept_: Any = intercepts if y.ndim == 2 else float(intercepts[0])
        self.n_swaps_ = choice.swaps
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Predictions, (m,) or (m, t).

        Args:
            X: (m, n), an array or sparse.
        """
        check_is_fitted(self)
        x = validate_data(self, X, dtype=KINDS, reset=False, accept_sparse="csc")
        chosen = np.flatnonzero(self.support_)
        return x[:, chosen] @ self.coef_[..., chosen].T + self.intercept_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
