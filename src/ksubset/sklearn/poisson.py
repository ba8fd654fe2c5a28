"""Best-k regression of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, validate_data

from ksubset.regression import Poisson
from ksubset.sklearn.fitting import KINDS, Array
from ksubset.sklearn.likelihood import LikelihoodEstimator, spread


class KSubsetPoissonRegressor(RegressorMixin, LikelihoodEstimator):
    r"""Poisson regression on the best k features: with :math:`\mu_j = e^{x_j^\top w + b}`,
    :math:`\min_w \sum_j v_j (\mu_j - y_j \log \mu_j) + \frac{\alpha}{2} \|w\|^2` with at most k of
    the coefficients other than zero.

    The search is that of :class:`KSubsetClassifier`, and so is the small penalty that keeps
    coefficients finite where the best ones are not.

    Args:
        k: how many features; None takes ten, or all if there are fewer.
        fit_intercept: with a constant b.
        alpha: a ridge penalty on the coefficients: m times that of scikit-learn's PoissonRegressor
            for m observations.
        search: False stops after forward selection.

    Attributes:
        coef_: (n,), zero except for k columns.
        intercept_: a number.
        support_: which features were chosen, boolean (n,).
        n_swaps_: made by the search.

    Examples:
        >>> import numpy as np
        >>> from ksubset.sklearn import KSubsetPoissonRegressor
        >>> random = np.random.default_rng(0)
        >>> x = random.standard_normal((200, 20))
        >>> y = random.poisson(np.exp(x[:, 3] - x[:, 7] / 2))
        >>> model = KSubsetPoissonRegressor(k=2).fit(x, y)
        >>> model.support_.nonzero()[0].tolist(), model.coef_[[3, 7]].round(1).tolist()
        ([3, 7], [1.0, -0.5])
    """

    _loss = "poisson"

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
    ) -> KSubsetPoissonRegressor:
        """On X and counts y.

        Args:
            X: (m, n).
            y: zero or positive, and not all zero, (m,).
            sample_weight: (m,), counts observations, as repeating them would.

        Returns:
            The estimator itself.
        """
        x, y = validate_data(self, X, y, dtype=KINDS, y_numeric=True, ensure_min_samples=2)
        _, found = self._select(x, y, sample_weight)
        self.coef_: Array = spread(found, x.shape[1])[0]
        self.intercept_ = float(found.constant[0])
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Expected counts, (m,).

        Args:
            X: (m, n).
        """
        return np.exp(self._predictor(X) + self.intercept_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of the deviance that is explained, D²: 1 at best, and 0 for the mean of y.

        Args:
            X: (m, n).
            y: counts, (m,).
            sample_weight: (m,).
        """
        predictor = np.log(np.maximum(self.predict(X), np.finfo(np.float64).tiny))
        counts = np.asarray(y, dtype=np.float64).ravel()
        likelihood = Poisson(counts, _check_sample_weight(sample_weight, counts, dtype=np.float64))
        null = np.broadcast_to(likelihood.null()[:, None], (1, len(counts)))
        return 1 - float(likelihood.value(predictor[None]) / likelihood.value(null))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
