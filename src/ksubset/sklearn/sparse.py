"""Least squares problems of sparse X, which stays sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ksubset.regression import CentredProblem, GramProblem, Standardised
from ksubset.regression.rows import MOST_COLUMNS
from ksubset.regression.subset import observations, standardised_targets

Array = npt.NDArray[Any]

# Columns of the Gram matrix that are formed at a time: each is dense for a moment.
_AT_ONCE = 64


def standardise_sparse(
    x: Any, y: Array, weights: Array | None, centre: bool, method: str
) -> Standardised:
    """What :func:`ksubset.regression.standardise` makes, of a matrix of scipy.sparse (m, n) and
    y (m,) or (m, t)."""
    if weights is not None:
        counted = weights > 0
        x, y, weights = x[counted], y[counted], weights[counted]
    x = x.tocsc(copy=not x.has_canonical_format).astype(np.float64, copy=False)
    x.sum_duplicates()
    middle, scale = _moments(x, weights, centre)
    given = None if weights is None else torch.from_numpy(weights.astype(np.float64))
    targets = torch.from_numpy(y.reshape(len(y), -1).astype(np.float64))
    problem = CentredProblem(
        x,
        standardised_targets(targets, centre=centre, weights=given),
        torch.from_numpy(middle),
        torch.from_numpy(scale),
        None if given is None else given.sqrt(),
    )
    rows, n = observations(len(y), given), x.shape[1]
    if method == "rows" or (method == "auto" and n > MOST_COLUMNS):
        return Standardised(problem, torch.from_numpy(scale), rows)
    gram = torch.cat(
        [problem.products(part.unsqueeze(0))[0] for part in torch.arange(n).split(_AT_ONCE)], 1
    )
    formed = GramProblem((gram + gram.T) / 2, problem.moments, problem.totals)
    return Standardised(formed, torch.from_numpy(scale), rows)


def _moments(x: Any, weights: Array | None, centre: bool) -> tuple[Array, Array]:
    """Means, and norms of what they leave: inf for columns that were constant."""
    m, n = x.shape
    counts = np.ones(m) if weights is None else weights
    total = counts.sum()
    middle = x.T @ (counts / total) if centre else np.zeros(n)
    low, high = (end.toarray().ravel() for end in (x.min(0), x.max(0)))
    # By the largest value first: squares of the smallest and largest numbers are out of range.
    size = np.maximum(np.abs(low - middle), np.abs(high - middle))
    size[size == 0] = 1
    column = np.repeat(np.arange(n), np.diff(x.indptr))
    entries = np.square((x.data - middle[column]) / size[column])
    there = counts[x.indices]
    squares = np.bincount(column, there * entries, n)
    squares += (total - np.bincount(column, there, n)) * np.square(middle / size)
    norms = np.sqrt(squares.clip(0))
    # What rounding leaves of a constant column is not a column.
    rounding = 1e1 * np.finfo(np.float64).eps * np.abs(middle / size) * np.sqrt(total)
    constant = (norms <= rounding) | (centre & (low == high))
    return middle, np.where(constant, np.inf, norms * size)
