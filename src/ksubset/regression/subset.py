"""From data to a support: standardise, train, search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.regression.centred import CentredProblem
from ksubset.regression.exchange import least_penalty
from ksubset.regression.loss import make_problem
from ksubset.regression.problem import Problem
from ksubset.regression.rows import MOST_COLUMNS
from ksubset.regression.search import search as search_supports
from ksubset.regression.training import Settings, Trained, train

# Numbers that are worked on at a time.
_CHUNK = 2**18
# Numbers of which a standardised copy is made.
_MOST_COPIED = 5 * 10**7


@dataclass(frozen=True)
class Standardised:
    """Columns centred where wanted and of norm 1 (0 if they were constant), y of norm 1.

    Attributes:
        problem: on those columns, n of them.
        scale: the norms, (n,); inf for columns that were constant.
        rows: how many observations; weights count them.

    Examples:
        >>> from ksubset.regression import standardise
        >>> x = torch.tensor([[1.0, 5.0], [4.0, 5.0], [1.0, 5.0], [4.0, 5.0]])
        >>> data = standardise(x, torch.tensor([0.0, 1.0, 0.0, 1.0]))
        >>> data.scale, data.rows  # a coefficient divided by its scale is one of X
        (tensor([3., inf]), 4.0)
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
    r"""The least squares problem of X (m, n) and y (m,) or (m, t) on comparable columns.

    Column j becomes :math:`v^{1/2} (x_j - \bar x_j) / s_j`, with weights v, the weighted mean
    :math:`\bar x_j` and the norm :math:`s_j` of what is left; y likewise, all targets together.

    Args:
        x: (m, n).
        y: (m,) or (m, t).
        centre: subtract the means, for a fit with an intercept.
        weights: of the rows, (m,).
        method: "gram", once X'X; "rows", X'X is formed of promising columns only; "auto", the Gram
            matrix up to 256 columns. Of more than 5e7 numbers in float64 there is no
            standardised copy.
        dtype: to compute in; None takes that of x.

    Returns:
        The problem, with the norms that undo it.

    Examples:
        >>> from ksubset.regression import standardise
        >>> x = torch.tensor([[1.0, 5.0], [4.0, 5.0], [1.0, 5.0], [4.0, 5.0]])
        >>> problem = standardise(x, torch.tensor([0.0, 1.0, 0.0, 1.0])).problem
        >>> problem.squares.round(decimals=4), problem.total.round(decimals=4)
        (tensor([1., 0.]), tensor(1.))
    """
    dtype = x.dtype if dtype is None else dtype
    y = y.reshape(len(y), -1)
    share = x.new_full((len(x),), 1 / len(x)) if weights is None else weights / weights.sum()
    middle = share @ x if centre else x.new_zeros(x.shape[1])
    root = None if weights is None else weights.sqrt()
    low, high = _range(x, weights)
    # By the largest value first: squares of the smallest and largest numbers are out of range.
    size = torch.maximum((low - middle).abs(), (high - middle).abs())
    size = torch.where((size > 0) & size.isfinite(), size, 1)
    # With so few digits as float32 has, large means have to go first.
    large = method != "gram" and dtype == x.dtype == torch.float64 and x.numel() > _MOST_COPIED
    columns = x if large else torch.empty(x.shape, dtype=dtype, device=x.device)
    squares = x.new_zeros(x.shape[1])
    chunk = max(1, _CHUNK // x.shape[1])
    for start in range(0, len(x), chunk):
        part = (x[start : start + chunk] - middle).div_(size)
        if root is not None:
            part.mul_(root[start : start + chunk].unsqueeze(-1))
        if not large:
            columns[start : start + chunk] = part
        squares += part.square_().sum(0)
    norms = squares.sqrt().to(dtype)
    # What rounding leaves of a constant column is not a column.
    total = float(len(x) if weights is None else weights.sum())
    rounding = 1e1 * torch.finfo(x.dtype).eps * (middle / size).abs().to(dtype) * total**0.5
    constant = (norms <= rounding) | (norms == 0) | (centre & (low == high))
    norms = torch.where(constant, torch.inf, norms)
    y = standardised_targets(y, centre=centre, weights=weights).to(dtype)
    scale, rows = norms * size.to(dtype), observations(len(x), weights)
    if large:
        return Standardised(CentredProblem(x, y, middle, scale, root), scale, rows)
    columns.div_(norms)
    if method == "auto":  # the search needs few columns of a large Gram matrix
        method = "gram" if columns.shape[1] <= MOST_COLUMNS else "rows"
    return Standardised(make_problem(columns, y, method), scale, rows)


def observations(rows: int, weights: Tensor | None) -> float:
    """How many there are: weights count them, and each that has one counts as one at least."""
    if weights is None:
        return float(rows)
    return max(float(weights.sum()), float((weights > 0).sum()))


def standardised_targets(y: Tensor, *, centre: bool, weights: Tensor | None) -> Tensor:
    """Targets (m, t), centred where wanted, weighted, and of norm 1 together."""
    if centre:
        share = y.new_full((len(y),), 1 / len(y)) if weights is None else weights / weights.sum()
        y = y - share @ y
    y = y if weights is None else y * weights.sqrt().unsqueeze(-1)
    largest = y.abs().max()
    y = y / largest if largest > 0 else y
    length = torch.linalg.vector_norm(y)
    return y / length if length > 0 else y


def _range(x: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of every column, over rows with a weight."""
    rows = None if weights is None else (weights > 0).nonzero().squeeze(-1)
    chunk = max(1, _CHUNK // x.shape[1])
    parts = x.split(chunk) if rows is None else (x[part] for part in rows.split(chunk))
    low, high = x.new_full(x.shape[1:], torch.inf), x.new_full(x.shape[1:], -torch.inf)
    for part in parts:  # one end after the other: much faster than aminmax
        low, high = torch.minimum(low, part.amin(0)), torch.maximum(high, part.amax(0))
    return low, high


@dataclass(frozen=True)
class Choice:
    """A support and how it was found.

    Attributes:
        support: the chosen columns, ascending, (k,).
        marginals: the probability that a column is one of the k, under the posterior over supports
            (docs/sparse-regression.md), (n,), summing to k.
        loss: the share of y'y that the (penalised) fit leaves.
        swaps: made by the search, without those from samples of the posterior.
        trained: the distributions that gave starts, (restarts, n) logits, with their history; None
            where none were trained.

    Examples:
        >>> from ksubset.regression import choose, standardise
        >>> x = torch.eye(8)[:, :4]
        >>> data = standardise(x, x @ torch.tensor([3.0, 0.0, 2.0, 0.0]), centre=False)
        >>> choice = choose(data, 2)
        >>> choice.support, choice.marginals.round(decimals=6)
        (tensor([0, 2]), tensor([1., 0., 1., 0.]))
    """

    support: Tensor
    marginals: Tensor
    loss: float
    swaps: int
    trained: Trained | None


def choose(
    data: Standardised,
    k: int,
    *,
    ridge: float = 0.0,
    search: bool = True,
    settings: Settings | None = None,
    generator: torch.Generator | None = None,
) -> Choice:
    r"""The best k columns: those S of which :math:`\min_w \|y - X_S w\|^2 + \alpha \|w\|^2` is
    least, as far as the search finds them, and how likely each column is.

    Args:
        data: from :func:`standardise`, n columns.
        k: how many columns, 1 to n.
        ridge: :math:`\alpha`, the penalty on squared coefficients of the columns as they were
            given.
        search: take the subset with the smallest loss that the search finds: all subsets are
            compared if they are at most 50,000, else swaps are made from several starts and from
            samples of the posterior. False takes the columns with the largest marginals.
        settings: train distributions, whose most likely subsets are more starts; None trains none.
        generator: the source of randomness, on the CPU; None is seeded with 0.

    Returns:
        The support (k,), and how it was found.

    Examples:
        >>> from ksubset.regression import choose, standardise
        >>> x = torch.randn(100, 20).double()
        >>> choice = choose(standardise(x, 2 * x[:, 3] - x[:, 7]), 2)
        >>> choice.support, choice.loss < 1e-6
        (tensor([3, 7]), True)
    """
    problem = data.problem
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    if not 1 <= k <= problem.n:
        raise ValueError(f"k must be between 1 and {problem.n}, got {k}")
    if not 0 <= ridge < math.inf:
        raise ValueError(f"ridge must be zero or positive, got {ridge!r}")
    asked = ridge / data.scale / data.scale
    penalty = asked.clamp_min(least_penalty(asked.dtype))
    if not problem.total > 0:  # nothing to explain
        first = torch.arange(k, device=penalty.device)
        return Choice(first, penalty.new_full((problem.n,), k / problem.n), 0.0, 0, None)
    trained = None
    if settings is not None:
        trained = train(problem, k, data.rows, penalty, settings, generator)
    starts = None if trained is None else trained.supports()
    found = search_supports(problem, starts, k, asked, data.rows, generator)
    support, loss = found.support, found.loss
    if not search:
        support = found.marginals.topk(k).indices
        loss = float(problem.solve(support.unsqueeze(0), penalty)[1][0])
    return Choice(support.sort().values, found.marginals, loss, found.swaps, trained)
