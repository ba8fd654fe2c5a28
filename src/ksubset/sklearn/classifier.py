"""Best-k classification."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.regression import Multinomial
from ksubset.sklearn.fitting import KINDS, Array
from ksubset.sklearn.likelihood import LikelihoodEstimator, spread


class KSubsetClassifier(ClassifierMixin, LikelihoodEstimator):
    r"""Logistic regression on the best k features:
    :math:`\min_w -\sum_j v_j \log p_w(y_j \mid x_j) + \frac{\alpha}{2} \|w\|^2` with coefficients
    other than zero for at most k features. Three classes or more have one model, multinomial, and
    share their features.

    Forward selection, backward elimination and searches under larger penalties give supports to
    start from. Swaps of one feature for another, and of up to five at once, then improve them while
    the loss falls (docs/sparse-regression.md). The search is deterministic.

    **Classes that can be separated** have no best coefficients without a penalty. A ridge penalty
    on standardised columns of 10⁻⁹ per observation, which is always there, keeps them finite, at
    about 20 divided by the margin in standard deviations; it changes other models in the ninth
    digit. Of several supports that separate the classes, the one that needs the smallest
    coefficients is chosen.

    Args:
        k: how many features; None takes ten, or all if there are fewer.
        fit_intercept: with a constant for every class.
        alpha: a ridge penalty on the coefficients: 1 / C of scikit-learn's LogisticRegression.
        search: False stops after forward selection.

    Attributes:
        classes_: the labels, ascending.
        coef_: (1, n) for two classes, else (classes, n); zero except for k columns.
        intercept_: (1,) for two classes, else (classes,).
        support_: which features were chosen, boolean (n,).
        n_swaps_: made by the search.

    Examples:
        >>> import numpy as np
        >>> from ksubset.sklearn import KSubsetClassifier
        >>> random = np.random.default_rng(0)
        >>> x = random.standard_normal((200, 20))
        >>> score = 2 * x[:, 3] - x[:, 7] + random.logistic(size=200)
        >>> model = KSubsetClassifier(k=2).fit(x, np.where(score > 0, "yes", "no"))
        >>> model.support_.nonzero()[0].tolist(), model.predict(x[:3]).tolist()
        ([3, 7], ['no', 'yes', 'no'])
    """

    _loss = "logistic"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KSubsetClassifier:  # noqa: N803
        """On X and labels y.

        Args:
            X: (m, n).
            y: labels of two classes or more, (m,).
            sample_weight: (m,), counts observations, as repeating them would.

        Returns:
            The estimator itself.
        """
        x, y = validate_data(self, X, y, dtype=KINDS, ensure_min_samples=2)
        outcomes, found = self._select(x, y, sample_weight)
        assert outcomes.classes is not None
        self.classes_: Array = outcomes.classes
        self.coef_: Array = spread(found, x.shape[1])
        self.intercept_: Array = found.constant
        if len(self.classes_) > 2:
            likelihood = outcomes.likelihood()
            assert isinstance(likelihood, Multinomial)
            self.coef_ = likelihood.scores(self.coef_)
            self.intercept_ = likelihood.scores(self.intercept_[:, None])[:, 0]
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Scores: of the second of two classes, (m,), or of all classes, (m, classes).

        Args:
            X: (m, n).
        """
        scores = self._predictor(X) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Logarithms of the probabilities of the classes, (m, classes).

        Args:
            X: (m, n).
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return -np.logaddexp(0, np.column_stack([scores, -scores]))
        scores = scores - scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities of the classes, (m, classes).

        Args:
            X: (m, n).
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The most likely labels, (m,).

        Args:
            X: (m, n).
        """
        check_is_fitted(self)
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)
        return self.classes_[best]
