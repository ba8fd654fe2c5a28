"""The search for a support: all subsets where they are few, else swaps from many starts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ksubset.regression.exchange import Exchange, least_penalty, swap_search
from ksubset.regression.problem import GramProblem, Problem
from ksubset.regression.rows import MOST_COLUMNS, Rows

# Subsets of which all losses are computed: a few tenths of a second.
MOST_SUBSETS = 50_000


def search(
    problem: Problem,
    starts: Tensor,
    marginals: Tensor,
    penalty: Tensor,
    observations: float,
) -> tuple[Tensor, float, int]:
    r"""The best support where subsets are few, else one that no swap of one column improves.

    Up to ``MOST_SUBSETS`` subsets are all compared. Beyond, swaps start from the given subsets,
    from orthogonal matching and from backward elimination, and the best result is kept. Among at
    most ``MOST_COLUMNS`` columns it is then improved by swaps of one and of two columns whose
    losses come from the rows, not from the Gram matrix, where these are fewer than
    ``MOST_SUBSETS``.

    Args:
        problem: on n columns.
        starts: subsets, (b, k).
        marginals: how likely each column is under the trained distributions, (n,).
        penalty: of every column, (n,), at least zero.
        observations: how many are behind the problem.

    Returns:
        The support (k,), its penalised loss and the swaps that led to it.
    """
    k = starts.shape[1]
    exact = _rows(problem, penalty)
    if exact is not None and math.comb(problem.n, k) <= MOST_SUBSETS:
        support, loss = exact.best(k)
        return support, float(loss), 0
    positive = penalty.clamp_min(least_penalty(penalty.dtype))
    if exact is not None and len(exact.y) >= problem.n:
        left = exact.backward(k)
    else:
        left = backward(problem, k, positive, marginals, observations)
    starts = torch.cat([starts, forward(problem, k, positive).unsqueeze(0), left.unsqueeze(0)])
    starts = torch.unique(starts.sort(-1).values, dim=0)
    found = [swap_search(problem, start, positive) for start in starts]
    swaps = sum(result[2] for result in found)
    if exact is None:
        support, loss, _ = min(found, key=lambda result: float(result[1]))
        return support, float(loss), swaps
    # The penalty, or the Gram matrix's rounding, may lead away from a start that fits exactly.
    support, loss = exact.least(torch.cat([starts, torch.stack([result[0] for result in found])]))
    return _improve(exact, support, loss, swaps)


def _improve(rows: Rows, support: Tensor, loss: Tensor, swaps: int) -> tuple[Tensor, float, int]:
    """By swaps of one column, and of two once none of these helps."""
    k, others = len(support), rows.x.shape[1] - len(support)
    count = 1
    while count <= 2 and loss > rows.rounding:
        if not 0 < math.comb(k, count) * math.comb(others, count) <= MOST_SUBSETS:
            break
        other, least = rows.least(rows.swapped(support, count))
        if least < (1 - 1e-9) * loss:
            support, loss, swaps, count = other, least, swaps + count, 1
        else:
            count += 1
    return support, float(loss), swaps


def forward(problem: Problem, k: int, penalty: Tensor) -> Tensor:
    """The k columns of orthogonal matching, (k,): the one that lowers the loss most beside those
    before it is added, again and again."""
    alone = problem.moments.square().sum(-1) / (problem.squares + penalty)
    support = alone.argmax().reshape(1)
    products = problem.products(support.unsqueeze(0))
    while len(support) < k:
        state = Exchange.of(problem, support.unsqueeze(0), penalty, products)
        gains = state.additions()[0].index_fill(0, support, -torch.inf)
        new = gains.argmax().reshape(1)
        support = torch.cat([support, new])
        products = torch.cat([products, problem.products(new.unsqueeze(0))], -1)
    return support


def backward(
    problem: Problem, k: int, penalty: Tensor, marginals: Tensor, observations: float
) -> Tensor:
    """The k columns that backward elimination leaves of those with the largest marginals, (k,)."""
    most = min(MOST_COLUMNS, 4 * k, int(observations) // 2)
    columns = marginals.topk(min(max(k, most), problem.n)).indices
    block = problem.block(columns.unsqueeze(0))[0]
    part = Rows.from_gram(block, problem.moments[columns], problem.totals)
    return columns[part.penalised(penalty[columns]).backward(k)]


def _rows(problem: Problem, penalty: Tensor) -> Rows | None:
    """The problem with its penalty as rows; None where there are too many columns for them."""
    if not isinstance(problem, GramProblem) or problem.n > MOST_COLUMNS:
        return None
    return problem.rows().penalised(penalty)
