"""Outcomes of the losses other than least squares: classes, counts and times, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from ksubset.regression import Cox, Likelihood, Logistic, Multinomial, Poisson
from ksubset.sklearn.fitting import Array


@dataclass(frozen=True)
class Outcomes:
    """What a model explains.

    Attributes:
        loss: "logistic", "poisson" or "cox".
        values: numbers of the classes (m, 1), counts (m, 1), or times and events (m, 2).
        classes: their labels, ascending; None for other losses.
    """

    loss: str
    values: Array
    classes: Array | None = None

    def likelihood(
        self, rows: Array | slice = slice(None), weights: Any = None, fitted: bool = True
    ) -> Likelihood:
        """The loss on some of the observations; they must say enough to be fitted, or tested."""
        values = self.values[rows]
        weights = np.ones(len(values)) if weights is None else weights
        if self.loss == "poisson":
            if fitted and not values.any():
                raise ValueError("y must have a positive count in what is fitted, got only zeros")
            return Poisson(values[:, 0], weights)
        if self.loss == "cox":
            if not values[:, 1].any():
                raise ValueError("y must have an event in every part, got only censored times")
            return Cox(values[:, 0], values[:, 1] > 0, weights)
        assert self.classes is not None
        codes = values[:, 0].astype(np.int64)
        counts = np.bincount(codes, minlength=len(self.classes))
        if fitted and not counts.all():
            lacking = self.classes[counts.argmin()]
            raise ValueError(f"y must have all classes in what is fitted, got none of {lacking!r}")
        if len(self.classes) == 2:
            return Logistic(codes.astype(np.float64), weights)
        return Multinomial(codes, weights, len(self.classes))


def read_outcomes(loss: str, y: Any) -> Outcomes:
    """Of y as the estimator of the loss takes it."""
    if loss == "logistic":
        return _classes(y)
    if loss == "poisson":
        counts = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        if counts.shape[1] != 1:
            raise ValueError(f"y must be counts of shape (m,), got shape {np.shape(y)}")
        if (counts < 0).any():
            raise ValueError(f"y must be counts, zero or positive, got {counts.min()}")
        return Outcomes(loss, counts)
    return Outcomes(loss, read_times(y))


def _classes(y: Any) -> Outcomes:
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, got one class: {classes[:1].tolist()}")
    return Outcomes("logistic", codes.reshape(-1, 1), classes)


def read_times(y: Any) -> Array:
    """Times and events (m, 2) of a structured array with one boolean field and one of numbers, of
    two columns, time and event, or of times alone, which are all events."""
    array = np.asarray(y)
    names = array.dtype.names
    if names is not None:
        events = [name for name in names if array.dtype[name].kind == "b"]
        if len(names) != 2 or len(events) != 1 or array.ndim != 1:
            raise ValueError(
                "y must have two fields, one boolean for the event and one for the time, "
                f"got {array.dtype}"
            )
        time = next(name for name in names if name != events[0])
        return np.column_stack([array[time], array[events[0]]]).astype(np.float64)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: y must be times, got {array.dtype}")
    array = array.astype(np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] > 2 or not array.shape[1]:
        raise ValueError(f"y must have two columns, time and event, got shape {array.shape}")
    if array.shape[1] == 1:
        return np.column_stack([array, np.ones(len(array))])
    other = array[:, 1][~np.isin(array[:, 1], (0, 1)) & np.isfinite(array[:, 1])]
    if len(other):
        raise ValueError(f"y must have events of 0 or 1 in its second column, got {other[0]}")
    return array
