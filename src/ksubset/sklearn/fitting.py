"""What the estimators share: checked arrays in, a choice and refitted coefficients out."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from ksubset.regression import Choice, Settings, Standardised, choose, standardise
from ksubset.sklearn.sparse import standardise_sparse

Array = npt.NDArray[Any]

# What features may be.
KINDS = [np.float64, np.float32]
# Beyond this many numbers, columns in float32 are searched in float32.
_MOST_DOUBLES = 5 * 10**7
# Up to this many numbers, zeros among them, sparse X are made dense.
_DENSE = 10**6


def check_targets(y: Any) -> None:
    """Labels are no numbers: least squares takes classes as columns of 0 and 1."""
    values = np.asarray(y)
    if values.dtype.kind not in "OU":
        return
    label = next((value for value in values.flat if isinstance(value, str)), None)
    if label is not None:
        raise ValueError(
            f"y must be numbers, got labels such as {str(label)!r}: "
            "sklearn.preprocessing.LabelBinarizer makes a column of 0 and 1 of every class, "
            "and KSubsetClassifier takes labels as they are"
        )


def check_k(k: Any, n: int) -> int:
    """The number of columns to choose of n; None is half of them."""
    if k is None:
        return max(1, n // 2)
    if isinstance(k, bool) or not isinstance(k, numbers.Integral):
        raise TypeError(f"k must be an int or None, got {k!r}")
    if not 1 <= int(k) <= n:
        raise ValueError(f"k must be between 1 and n_features = {n}, got {k}")
    return int(k)


def check_alpha(alpha: Any) -> float:
    """A ridge penalty."""
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real):
        raise TypeError(f"alpha must be a number, got {alpha!r}")
    if not 0 <= float(alpha) < math.inf:
        raise ValueError(f"alpha must be zero or positive, got {alpha!r}")
    return float(alpha)


def check_settings(
    *, alpha: float, gamma: float | None, n_restarts: int, max_iter: int
) -> Settings | None:
    """Of the training, from an estimator's parameters; None without restarts."""
    check_alpha(alpha)
    if gamma is not None:
        if isinstance(gamma, bool) or not isinstance(gamma, numbers.Real):
            raise TypeError(f"gamma must be a number, got {gamma!r}")
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma must be positive or None, got {gamma!r}")
    for name, count, fewest in (("n_restarts", n_restarts, 0), ("max_iter", max_iter, 1)):
        if isinstance(count, bool) or not isinstance(count, numbers.Integral):
            raise TypeError(f"{name} must be an int, got {count!r}")
        if count < fewest:
            raise ValueError(f"{name} must be at least {fewest}, got {count}")
    if n_restarts == 0:
        return None
    return Settings(steps=max_iter, restarts=n_restarts, gamma=gamma)


def prepare(
    x: Any, y: Array, weights: Array | None, fit_intercept: bool, method: str = "auto"
) -> Standardised:
    """The standardised problem of X (m, n), an array or sparse, and y (m,) or (m, t)."""
    if issparse(x):
        if x.shape[0] * x.shape[1] > _DENSE:
            return standardise_sparse(x, y, weights, fit_intercept, method)
        x = x.toarray()
    work = x if x.size > _MOST_DOUBLES else x.astype(np.float64, copy=False)
    with warnings.catch_warnings():
        # The array may be read-only: nothing writes to it.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        columns = torch.from_numpy(np.ascontiguousarray(work))
    return standardise(
        columns,
        torch.from_numpy(np.array(y, dtype=work.dtype)),
        centre=fit_intercept,
        weights=None if weights is None else torch.from_numpy(weights.astype(work.dtype)),
        method=method,
    )


def choose_columns(
    data: Standardised,
    k: int,
    alpha: float,
    search: bool,
    settings: Settings | None,
    random_state: Any,
) -> Choice:
    """With a generator of torch's made from scikit-learn's random state."""
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    generator = torch.Generator().manual_seed(seed)
    return choose(data, k, ridge=alpha, search=search, settings=settings, generator=generator)


def refit(
    x: Any, y: Array, weights: Array | None, support: Array, alpha: float, fit_intercept: bool
) -> tuple[Array, Array]:
    """Coefficients (t, k) and intercepts (t,) of least squares on the chosen columns, with ridge
    penalty alpha; of several solutions the shortest."""
    columns = x[:, support]
    columns = (columns.toarray() if issparse(columns) else columns).astype(np.float64)
    targets = y.reshape(len(y), -1).astype(np.float64)
    share = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
    middle, level = np.zeros(columns.shape[1]), np.zeros(targets.shape[1])
    if fit_intercept:
        middle, level = share @ columns, share @ targets
        counted = columns if weights is None else columns[weights > 0]
        # Of a constant column rounding would leave something, and fit it.
        constant = counted.min(0) == counted.max(0)
        columns, targets = columns - middle, targets - level
        columns[:, constant] = 0
    if weights is not None:
        root = np.sqrt(weights)[:, None]
        columns, targets = columns * root, targets * root
    if alpha:
        width = columns.shape[1]
        columns = np.concatenate([columns, np.sqrt(alpha) * np.eye(width)])
        targets = np.concatenate([targets, np.zeros((width, targets.shape[1]))])
    # Columns of norm 1, so that the solver's cut-off does not depend on units; by their largest
    # value first, as squares of the largest numbers are out of range.
    size = np.abs(columns).max(0)
    size[size == 0] = 1
    columns /= size
    norms = np.linalg.norm(columns, axis=0)
    norms[norms == 0] = 1
    coefficients = np.linalg.lstsq(columns / norms, targets, rcond=None)[0].T / norms / size
    return coefficients, level - coefficients @ middle


def choose_for(
    estimator: Any, x: Any, y: Any, sample_weight: Any
) -> tuple[Any, Array, Array | None, Choice]:
    """What fitting is for both estimators: data are checked, columns chosen, and what is known
    about the choice becomes attributes. Returns the checked data with it."""
    check_targets(y)
    x, y = validate_data(
        estimator, x, y, dtype=KINDS, multi_output=True, y_numeric=True,
        ensure_min_samples=2, accept_sparse="csc",
    )  # fmt: skip
    k = check_k(estimator.k, x.shape[1])
    settings = check_settings(
        alpha=estimator.alpha, gamma=estimator.gamma, n_restarts=estimator.n_restarts,
        max_iter=estimator.max_iter,
    )  # fmt: skip
    weights = None
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
    data = prepare(x, y, weights, estimator.fit_intercept, estimator.method)
    choice = choose_columns(
        data, k, estimator.alpha, estimator.search, settings, estimator.random_state
    )
    estimator.support_ = np.zeros(x.shape[1], dtype=bool)
    estimator.support_[choice.support.numpy()] = True
    estimator.marginals_ = choice.marginals.numpy()
    estimator.history_ = _history(choice)
    estimator.n_iter_ = estimator.max_iter
    return x, y, weights, choice


def _history(choice: Choice) -> dict[str, Array]:
    """Of every step of the training: arrays by name."""
    steps = [] if choice.trained is None else choice.trained.history
    return {name: np.array([step[name] for step in steps]) for name in (steps[0] if steps else ())}
