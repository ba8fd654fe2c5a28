"""The loss of proportional hazards."""

from __future__ import annotations

import numpy as np

from ksubset.regression.likelihoods import Array

# Beyond this distance from the largest, a hazard adds nothing to a sum in float64; within it, no
# hazard underflows.
_LEAST_LOG_HAZARD = -600.0


class Cox:
    r"""Proportional hazards: the partial likelihood with Breslow's form of ties,
    :math:`-\sum_{i\ \mathrm{event}} v_i (\eta_i - \log \sum_{t_j \ge t_i} v_j e^{\eta_j})`.

    Observations are kept by falling time, so that sums over those at risk are cumulative sums.

    Args:
        time: (m,).
        event: whether the time is that of the event, not of censoring, boolean (m,).
        weights: v, (m,).

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Cox
        >>> time, event = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
        >>> loss = Cox(time, event, np.ones(3))
        >>> float(loss.value(np.zeros((1, 3))).round(4))  # log 3 + log 2
        1.7918
    """

    constant = False
    outputs = 1

    def __init__(self, time: Array, event: Array, weights: Array) -> None:
        self.order = np.argsort(-time, kind="stable")
        time, event = time[self.order], event[self.order]
        self.weights = weights[self.order]
        self.effective = float((self.weights * event).sum())
        starts = np.flatnonzero(np.r_[True, time[1:] != time[:-1]])
        sizes = np.diff(np.r_[starts, len(time)])
        group = np.repeat(np.arange(len(starts)), sizes)
        events = np.bincount(group, self.weights * event)
        # Of the times with an event: the last who is at risk then, and the weight of the events.
        with_event = np.flatnonzero(events)
        self.last = (starts + sizes - 1)[with_event]
        self.events = events[with_event]
        # Every observation is at risk at all of these times from its own on.
        self.first = np.searchsorted(with_event, group)
        self.own = self.weights * event

    def _hazards(self, predictor: Array) -> tuple[Array, Array, Array]:
        """Weighted hazards (..., m), up to a factor, their sums at the events (..., e) and the
        factor's logarithm (...)."""
        eta = predictor[..., 0, :]
        top = eta.max(-1)
        hazards = self.weights * np.exp(np.maximum(eta - top[..., None], _LEAST_LOG_HAZARD))
        return hazards, hazards.cumsum(-1)[..., self.last], top

    def value(self, predictor: Array) -> Array:
        """Losses (...) of predictors (..., 1, m)."""
        _, sums, top = self._hazards(predictor)
        centred = predictor[..., 0, :] - top[..., None]
        return np.log(sums) @ self.events - centred @ self.own

    def _expected(self, hazards: Array, sums: Array) -> Array:
        """How many events the model expects of every observation, (..., m)."""
        after = np.cumsum((self.events / sums)[..., ::-1], -1)[..., ::-1]
        after = np.concatenate([after, np.zeros((*after.shape[:-1], 1))], -1)
        return hazards * after[..., self.first]

    def gradient(self, predictor: Array) -> Array:
        """Derivatives (..., 1, m)."""
        hazards, sums, _ = self._hazards(predictor)
        return (self._expected(hazards, sums) - self.own)[..., None, :]

    def _means(self, features: Array, hazards: Array, sums: Array) -> Array:
        """Of those at risk at every event, (..., p, e)."""
        total = (features * hazards[..., None, :]).cumsum(-1)[..., self.last]
        return total / sums[..., None, :]

    def hessian(self, features: Array, predictor: Array) -> Array:
        """Second derivatives (..., q, 1, q, 1) in the coefficients of features (..., q, m)."""
        hazards, sums, _ = self._hazards(predictor)
        expected = self._expected(hazards, sums)[..., None, :]
        means = self._means(features, hazards, sums)
        product = features @ np.swapaxes(features * expected, -1, -2)
        product -= means @ np.swapaxes(means * self.events, -1, -2)
        return product[..., :, None, :, None]

    def across(self, features: Array, chosen: Array, predictor: Array) -> tuple[Array, Array]:
        """Of features (n, m) with those chosen, (n, 1, q, 1), and with themselves, (n, 1, 1)."""
        hazards, sums, _ = self._hazards(predictor)
        expected = self._expected(hazards, sums)
        means, there = (self._means(block, hazards, sums) for block in (features, chosen))
        product = features @ (chosen * expected).T - means @ (there * self.events).T
        squares = np.einsum("pm,pm,m->p", features, features, expected)
        squares -= np.einsum("pe,pe,e->p", means, means, self.events)
        return product[:, None, :, None], squares[:, None, None]

    def null(self) -> Array:
        """No constant term: it cancels."""
        return np.zeros(1)
