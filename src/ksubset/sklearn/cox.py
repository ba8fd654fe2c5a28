"""Best-k regression of times to an event."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from ksubset.sklearn.fitting import KINDS, Array
from ksubset.sklearn.likelihood import LikelihoodEstimator, spread
from ksubset.sklearn.outcomes import read_times


class KSubsetCox(LikelihoodEstimator):
    r"""Cox's proportional hazards on the best k features:
    :math:`\min_w -\sum_{j\ \mathrm{event}} v_j \bigl( x_j^\top w - \log \sum_{t_i \ge t_j} v_i
    e^{x_i^\top w} \bigr) + \frac{\alpha}{2} \|w\|^2` with at most k of the coefficients other than
    zero. Events at the same time are treated as Breslow did.

    The search is that of :class:`KSubsetClassifier`, and so is the small penalty that keeps
    coefficients finite where the best ones are not.

    Args:
        k: how many features; None takes ten, or all if there are fewer.
        alpha: a ridge penalty on the coefficients.
        search: False stops after forward selection.

    Attributes:
        coef_: (n,), logarithms of hazard ratios, zero except for k columns.
        support_: which features were chosen, boolean (n,).
        n_swaps_: made by the search.

    Examples:
        >>> import numpy as np
        >>> from ksubset.sklearn import KSubsetCox
        >>> random = np.random.default_rng(0)
        >>> x = random.standard_normal((200, 20))
        >>> time, end = random.exponential(np.exp(x[:, 7] - 2 * x[:, 3])), random.uniform(0, 5, 200)
        >>> y = np.column_stack([np.minimum(time, end), time <= end])
        >>> model = KSubsetCox(k=2).fit(x, y)
        >>> model.support_.nonzero()[0].tolist(), model.score(x, y) > 0.8
        ([3, 7], True)
    """

    _loss = "cox"

    def __init__(self, k: int | None = None, *, alpha: float = 0.0, search: bool = True) -> None:
        self.k = k
        self.alpha = alpha
        self.search = search

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KSubsetCox:  # noqa: N803
        """On X and times y.

        Args:
            X: (m, n).
            y: two columns, the time and 1 for an event or 0 for censoring; a structured array with
                a boolean field for the event and one for the time; or times alone, all of them
                events.
            sample_weight: (m,), counts observations, as repeating them would in Breslow's form.

        Returns:
            The estimator itself.
        """
        x, times = self._read(X, y)
        _, found = self._select(x, times, sample_weight)
        self.coef_: Array = spread(found, x.shape[1])[0]
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Logarithms of the hazard, up to a constant, (m,): the event is earlier for larger ones.

        Args:
            X: (m, n).
        """
        return self._predictor(X)

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Harrell's concordance: how often, of two observations of which it is known whose event
        was first, that one has the larger hazard. Equal hazards count one half.

        Args:
            X: (m, n).
            y: as for ``fit``.
        """
        times = read_times(y)
        return concordance(times[:, 0], times[:, 1] > 0, self.predict(X))

    def _read(self, X: Any, y: Any) -> tuple[Array, Array]:  # noqa: N803
        times = None if y is None else read_times(y)
        x, checked = validate_data(
            self, X, times, dtype=KINDS, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        return x, checked

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def concordance(time: Array, event: Array, hazard: Array) -> float:
    """Of pairs with a known order, the share that the hazards put in that order."""
    agreed = known = 0.0
    for i in np.flatnonzero(event):
        # Who is censored at the time of an event had none until then.
        later = hazard[(time > time[i]) | ((time == time[i]) & ~event)]
        known += len(later)
        agreed += (later < hazard[i]).sum() + 0.5 * (later == hazard[i]).sum()
    if not known:
        raise ValueError("y must have two observations whose order is known, got none")
    return float(agreed / known)
