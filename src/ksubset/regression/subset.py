"""From data to a support: standardise, train, search."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.regression.exchange import least_penalty, swap_search
from ksubset.regression.loss import make_problem
from ksubset.regression.problem import Problem
from ksubset.regression.training import Settings, Trained, train

_CHUNK = 256  # rows


@dataclass(frozen=True)
class Standardised:
    """Columns centred where wanted and of norm 1 (0 if they were constant), y of norm 1.

    Attributes:
        problem: on those columns.
        scale: the norms, (n,).
        rows: how many observations; weights count them.
    """

    problem: Problem
    scale: Tensor
    rows: float


def standardise(
    x: Tensor,
    y: Tensor,
    *,
    centre: bool = True,
    weights: Tensor | None = None,
    method: str = "auto",
    dtype: torch.dtype | None = None,
) -> Standardised:
    """The least squares problem of X (m, n) and y (m,) or (m, t).

    Args:
        weights: of the rows, (m,).
        dtype: to compute in.
    """
    dtype = x.dtype if dtype is None else dtype
    rows = float(len(x))
    if weights is not None:
        rows = max(float(weights.sum()), float((weights > 0).sum()))
    share = x.new_full((len(x),), 1 / len(x)) if weights is None else weights / weights.sum()
    y = y.reshape(len(y), -1)
    middle = share @ x if centre else x.new_zeros(x.shape[1])
    y = y - share @ y if centre else y
    root = None if weights is None else weights.sqrt().unsqueeze(-1)
    columns = torch.empty(x.shape, dtype=dtype, device=x.device)
    for start in range(0, len(x), _CHUNK):  # one copy of X, no more
        part = x[start : start + _CHUNK] - middle
        columns[start : start + _CHUNK] = (
            part if root is None else part * root[start : start + _CHUNK]
        )
    y = y if root is None else y * root
    scale = torch.linalg.vector_norm(columns, dim=0)
    # What rounding leaves of a constant column is not a column.
    size = middle.abs().to(dtype) * (len(x) if weights is None else float(weights.sum())) ** 0.5
    constant = scale <= 1e1 * torch.finfo(x.dtype).eps * size
    scale = torch.where(constant | (scale == 0), torch.inf, scale)
    columns.div_(scale)
    length = torch.linalg.vector_norm(y)
    y = (y / length if length > 0 else y).to(dtype)
    return Standardised(make_problem(columns, y, method), scale, rows)


@dataclass(frozen=True)
class Choice:
    """A support and how it was found.

    Attributes:
        support: the chosen columns, ascending, (k,).
        marginals: how likely each is under the trained laws, (n,).
        loss: the share of y'y that the (penalised) fit leaves.
        swaps: made by the search.
    """

    support: Tensor
    marginals: Tensor
    loss: float
    swaps: int
    trained: Trained


def choose(
    data: Standardised,
    k: int,
    *,
    ridge: float = 0.0,
    search: bool = True,
    settings: Settings | None = None,
    generator: torch.Generator | None = None,
) -> Choice:
    """The best k columns.

    Args:
        ridge: the penalty on squared coefficients of the columns as they were given.
        search: finish with the swap search, from every restart's likeliest subset, and keep the
            best; else take the columns with the largest marginals.
    """
    problem = data.problem
    settings = Settings() if settings is None else settings
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    penalty = ridge / data.scale.square()
    penalty = penalty.clamp_min(least_penalty(penalty.dtype))
    if not problem.total > 0:  # nothing to explain
        n = problem.n
        trained = Trained(penalty.new_zeros(settings.restarts, n), k)
        first = torch.arange(k, device=penalty.device)
        return Choice(first, trained.marginals(), 0.0, 0, trained)
    trained = train(problem, k, data.rows, penalty, settings, generator)
    supports = trained.supports()
    if search:
        starts = torch.unique(supports.sort(-1).values, dim=0)
        found = [swap_search(problem, start, penalty) for start in starts]
        support, loss, swaps = min(found, key=lambda result: float(result[1]))
    else:
        support, swaps = supports[0], 0
        loss = problem.solve(support.unsqueeze(0), penalty)[1][0]
    return Choice(support.sort().values, trained.marginals(), float(loss), swaps, trained)
