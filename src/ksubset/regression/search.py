"""The search for a support: all subsets where they are few, else swaps from several starts and from
samples of the posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.device import are_compiled
from ksubset.regression import posterior
from ksubset.regression.exchange import Exchange, least_penalty, swap_search
from ksubset.regression.problem import GramProblem, Problem
from ksubset.regression.rows import MOST_COLUMNS, Rows
from ksubset.regression.walk import climb

# Subsets of which all losses are computed: a few tenths of a second.
MOST_SUBSETS = 50_000
# Columns that backward elimination starts from, for each that is wanted.
_TIMES = 12
# Times that promising columns are chosen anew before swaps are over all columns.
_ROUNDS = 8


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        support: (k,).
        loss: penalised.
        swaps: made from all starts, without those from samples of the posterior.
        marginals: of every column under the posterior over supports, (n,).
    """

    support: Tensor
    loss: float
    swaps: int
    marginals: Tensor


def search(
    problem: Problem,
    starts: Tensor | None,
    k: int,
    penalty: Tensor,
    observations: float,
    generator: torch.Generator,
) -> Found:
    r"""The best support where subsets are few, else one that no swap of one column improves.

    Up to ``MOST_SUBSETS`` subsets are all compared. Beyond, swaps start from the given subsets,
    from forward selection, among at most ``MOST_COLUMNS`` columns from backward elimination, and
    from samples of the posterior; the best result is kept. Among at most
    ``MOST_COLUMNS`` columns it is then improved by swaps of one and of two columns whose losses
    come from the rows, not from the Gram matrix, where these are fewer than ``MOST_SUBSETS``.

    Args:
        problem: on n columns.
        starts: subsets, (b, k), if there are any.
        k: how many columns.
        penalty: of every column, (n,), at least zero.
        observations: how many are behind the problem.
        generator: the source of randomness, on the CPU.
    """
    exact = _rows(problem, penalty)
    if exact is None:
        return _among_many(problem, starts, k, penalty, observations, generator)
    if math.comb(problem.n, k) <= MOST_SUBSETS:
        supports = exact.subsets(k)
        losses = exact.losses(supports)
        support, loss = exact.least(supports, losses)
        weighed = losses.clamp_min(float(exact.rounding.clamp_min(1e-300)))
        targets = problem.moments.shape[1]
        likely = posterior.of_losses(supports, weighed, problem.n, observations, targets)
        return Found(support, float(loss), 0, likely)
    return _among_few(problem, exact, starts, k, penalty, observations, generator)


def _among_few(
    problem: Problem,
    exact: Rows,
    starts: Tensor | None,
    k: int,
    penalty: Tensor,
    observations: float,
    generator: torch.Generator,
) -> Found:
    """Losses come from the rows in the end."""
    positive = penalty.clamp_min(least_penalty(penalty.dtype))
    first = forward(problem, k, positive)
    sampled = posterior.sample(problem, first, positive, observations, generator)
    if len(exact.y) >= problem.n:
        left = exact.backward(k)
    else:
        left = from_more(problem, exact, k, positive)
    tried = torch.stack([first, left, sampled.support])
    tried = tried if starts is None else torch.cat([starts, tried])
    tried = torch.unique(tried.sort(-1).values, dim=0)
    found = [swap_search(problem, start, positive) for start in tried]
    swaps = sum(result[2] for result in found)
    # The penalty, or the Gram matrix's rounding, may lead away from a start that fits exactly.
    support, loss = exact.least(torch.cat([tried, torch.stack([result[0] for result in found])]))
    support, least, swaps = _improve(exact, support, loss, swaps)
    if not torch.equal(support.sort().values, sampled.support.sort().values):
        sampled = posterior.sample(problem, support, positive, observations, generator)
    return Found(support, least, swaps, sampled.marginals)


def _among_many(
    problem: Problem,
    starts: Tensor | None,
    k: int,
    penalty: Tensor,
    observations: float,
    generator: torch.Generator,
) -> Found:
    """Losses come from the Gram matrix of promising columns, and no swap of any column is left."""
    positive = penalty.clamp_min(least_penalty(penalty.dtype))
    found = [screened(problem, None, k, positive)]
    for start in () if starts is None else starts:
        found.append(screened(problem, start, k, positive))
    best = min(found, key=lambda result: float(result.state.loss[0]))
    sampled = posterior.sample(
        problem, best.support, positive, observations, generator, best.state, best.gains
    )
    if not torch.equal(sampled.support.sort().values, best.support.sort().values):
        found.append(screened(problem, sampled.support, k, positive))
        best = min(found, key=lambda result: float(result.state.loss[0]))
    swaps = sum(result.swaps for result in found)
    return Found(best.support, float(best.state.loss[0]), swaps, sampled.marginals)


@dataclass(frozen=True)
class Optimum:
    """A support (k,) that no swap of one column improves, the quantities of it alone, what swaps
    gain, (n, k), and the swaps that led to it."""

    support: Tensor
    state: Exchange
    gains: Tensor
    swaps: int


def screened(problem: Problem, support: Tensor | None, k: int, penalty: Tensor) -> Optimum:
    """As :func:`swap_search`, with most of the swaps among the most promising columns, which the
    gains of all columns' swaps choose anew until none is left.

    Args:
        problem: on n columns.
        support: where to start, (k,); None for forward selection.
        k: how many columns.
        penalty: of every column, (n,), positive.
    """
    swaps = 0
    if support is None:
        alone = problem.moments.square().sum(-1) / (problem.squares + penalty)
        columns = alone.topk(posterior.screened_columns(problem.n, k)).indices.sort().values
        support, swaps = _climb(problem, columns, None, k, penalty)
    for turn in range(_ROUNDS + 1):
        state = Exchange.of(problem, support.unsqueeze(0), penalty)
        gains = state.swaps(support.unsqueeze(0))[0]
        if not gains.max() > posterior.rounding(problem) or turn == _ROUNDS:
            break
        if turn < _ROUNDS - 1:
            columns = posterior.promising(gains, support)
            support, made = _climb(problem, columns, support, k, penalty)
        else:
            support, _, made = swap_search(problem, support, penalty)
        swaps += made
    return Optimum(support, state, gains, swaps)


def _climb(
    problem: Problem, columns: Tensor, support: Tensor | None, k: int, penalty: Tensor
) -> tuple[Tensor, int]:
    """Swaps among some columns, ascending, from a support or from forward selection."""
    gram, moments, own = (
        problem.block(columns.unsqueeze(0))[0],
        problem.moments[columns],
        penalty[columns],
    )
    if not are_compiled(torch.empty(0), "auto"):
        part = GramProblem(gram, moments, problem.totals)
        start = forward(part, k, own) if support is None else torch.searchsorted(columns, support)
        place, _, made = swap_search(part, start, own)
        return columns[place], made
    places = np.zeros(k, np.int64)
    if support is not None:
        places[:] = torch.searchsorted(columns, support).cpu().numpy()
    gram.diagonal().add_(own)
    places, made = climb(
        gram.double().cpu().numpy(), moments.T.double().contiguous().cpu().numpy(),
        float(problem.total), places, 0 if support is None else k, posterior.rounding(problem),
    )  # fmt: skip
    return columns[torch.from_numpy(places).to(columns.device)], made


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


def from_more(problem: Problem, exact: Rows, k: int, penalty: Tensor) -> Tensor:
    """The k columns that backward elimination leaves of several times as many, (k,): a good support
    with more columns than are wanted contains the columns of an equation without noise, where
    single swaps of k columns do not lead to them."""
    size = max(k, min(_TIMES * k, len(exact.y) // 2))
    columns, _, _ = swap_search(problem, forward(problem, size, penalty), penalty)
    columns = columns.sort().values
    return columns[Rows(exact.x[:, columns], exact.y).backward(k)]


def _rows(problem: Problem, penalty: Tensor) -> Rows | None:
    """The problem with its penalty as rows; None where there are too many columns for them."""
    if not isinstance(problem, GramProblem) or problem.n > MOST_COLUMNS:
        return None
    return problem.rows().penalised(penalty)
