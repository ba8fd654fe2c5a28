"""How likely each column is: the posterior over supports of k columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.regression.exchange import Exchange, least_penalty
from ksubset.regression.problem import Problem
from ksubset.regression.walk import walk

# Columns that the walk goes through one by one: at least so many, or so many for each chosen one.
_FEWEST_COLUMNS, _COLUMNS_EACH = 256, 8
# Steps for each chosen column, as long as all steps together take a few tenths of a second.
_STEPS_EACH, _FEWEST_STEPS_EACH, _MOST_WORK = 75, 2, 3e8

_MOST_NATS = 600.0  # within the range of float64


@dataclass(frozen=True)
class Posterior:
    """The probability of every column, (n,), and the best support that was seen, (k,)."""

    marginals: Tensor
    support: Tensor


def power(rows: float, targets: int, n: int, marginals: Tensor) -> float:
    r"""The p in the evidence :math:`\ell(S)^{-p}` of a support: half the degrees of freedom.

    A coefficient takes one degree of freedom. A column that was picked because it explains the
    noise best takes more: the largest of n / k squared standard normal numbers is about
    2 log(n / k). How many of the columns are of this kind is what the marginals tell: two supports
    drawn independently have :math:`\sum_j q_j^2` columns in common.

    Args:
        rows: observations.
        targets: how many.
        n: how many columns.
        marginals: q, which sum to k, of some or all columns.
    """
    k, sure = float(marginals.sum()), float(marginals.square().sum())
    taken = sure + (k - sure) * max(1.0, 2 * math.log(n / k))
    return targets * max(rows - taken, rows / 10, 1.0) / 2


def rounding(problem: Problem) -> float:
    """Losses that are less are exact fits."""
    return 1e2 * torch.finfo(problem.moments.dtype).eps * float(problem.total)


def of_losses(supports: Tensor, losses: Tensor, n: int, rows: float, targets: int) -> Tensor:
    """The marginals, (n,), where all supports (b, k) are known, with their losses (b,)."""
    k = supports.shape[1]
    logarithm = losses.log()
    exponent = targets * max(rows - k, 1.0) / 2
    for _ in range(2):  # the first tells how sure the choice is
        weights = torch.softmax(-exponent * logarithm, 0)
        marginals = losses.new_zeros(n)
        marginals.index_put_((supports,), weights.unsqueeze(-1).expand_as(supports), True)
        exponent = power(rows, targets, n, marginals)
    return marginals


def screened_columns(n: int, k: int) -> int:
    """How many of n columns are gone through one by one."""
    return min(n, max(_FEWEST_COLUMNS, _COLUMNS_EACH * k))


def promising(gains: Tensor, support: Tensor) -> Tensor:
    """Columns that may well be in the place of one of a support, ascending, with those of it.

    Args:
        gains: what swaps gain, (n, k).
        support: (k,).
    """
    n, k = gains.shape
    count = screened_columns(n, k)
    if count == n:
        return torch.arange(n, device=support.device)
    score = gains.amax(1).index_fill(0, support, torch.inf)
    return score.topk(count).indices.sort().values


def sample(
    problem: Problem,
    support: Tensor,
    penalty: Tensor,
    rows: float,
    generator: torch.Generator,
    state: Exchange | None = None,
    gains: Tensor | None = None,
) -> Posterior:
    r"""The posterior by a random walk from a good support.

    The weight of a support is :math:`\ell(S)^{-p}`, its evidence under a flat prior of the
    coefficients and of the logarithm of the noise level, with p from :func:`power`. The walk goes
    through the most promising columns; all others together are as likely as they are from the
    support it starts from.

    Args:
        problem: on n columns of norm 1 or 0.
        support: where to start, (k,).
        penalty: of every column, (n,).
        rows: observations.
        generator: the source of randomness, on the CPU.
        state: of the support, with the penalty, where it is known.
        gains: of swaps from there, (n, k), where they are known.
    """
    n, k, targets = problem.n, len(support), problem.moments.shape[1]
    if k == n:
        return Posterior(torch.ones_like(problem.squares), support)
    penalty = penalty.clamp_min(least_penalty(penalty.dtype))
    state = Exchange.of(problem, support.unsqueeze(0), penalty) if state is None else state
    gains = state.swaps(support.unsqueeze(0))[0] if gains is None else gains
    columns = promising(gains, support)
    others = torch.ones(n, dtype=torch.bool, device=columns.device).index_fill(0, columns, False)
    gram = problem.block(columns.unsqueeze(0))[0].double()
    gram.diagonal().add_(penalty[columns])
    gram_array = gram.cpu().numpy()
    moments = problem.moments[columns].double().T.contiguous().cpu().numpy()
    start = torch.searchsorted(columns, support).cpu().numpy()
    # With each other column in the place of each chosen one, relative to no column there.
    floor = rounding(problem)
    without = (state.loss + state.removals()[0]).clamp_min(floor)
    relative = ((state.loss - gains[others]).clamp_min(floor) / without).double().log()
    work = len(columns) * k
    each = int(min(_STEPS_EACH, max(_FEWEST_STEPS_EACH, _MOST_WORK / work / k)))
    exponent = targets * max(rows - k, 1.0) / 2
    best = start
    for steps in (max(1, each // 4) * k, each * k):  # the first tells how sure the choice is
        uniform = torch.rand(steps, generator=generator, dtype=torch.float64).numpy()
        weights = (-exponent * relative).clamp_max(_MOST_NATS).exp()
        walked = walk(
            gram_array, moments, float(problem.total), best, exponent, uniform,
            burn=steps // 4, floor=floor, outside=float(weights.sum(0).mean()),
        )  # fmt: skip
        best = walked.best
        inside = torch.from_numpy(walked.marginals)
        exponent = power(rows, targets, n, inside)
    marginals = problem.squares.new_zeros(n)
    marginals[columns] = inside.to(marginals)
    if len(columns) < n:
        share = weights.sum(1)
        elsewhere = walked.outside * share / share.sum().clamp_min(1e-300)
        marginals[others] = elsewhere.to(marginals)
    return Posterior(marginals, columns[torch.from_numpy(best).to(columns.device)])
