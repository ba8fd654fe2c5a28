"""How likely each column is: the posterior over supports of k columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.device import are_compiled
from ksubset.regression.exchange import Exchange, least_penalty
from ksubset.regression.problem import Problem
from ksubset.regression.walk import Array, Walked, climb, loss_of, walk

# Columns that the walk goes through one by one: at least so many, or so many for each chosen one.
_FEWEST_COLUMNS, _COLUMNS_EACH = 256, 8
# Steps for each chosen column, as long as all steps together take a few tenths of a second.
_STEPS_EACH, _FEWEST_STEPS_EACH, _MOST_WORK = 60, 2, 3e8

# Parts of the walk, each with swaps from its end.
_PARTS = 10
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
    return marginals.clamp_max(1)  # sums of weights round


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
    # Each of the other columns in the place of each chosen one, relative to no column there.
    without = (state.loss + state.removals()[0]).clamp_min(rounding(problem))
    relative = (state.loss - gains[others]).clamp_min(rounding(problem)) / without
    screen = _Screen.of(problem, columns, penalty, relative.double().log(), generator)
    work = len(columns) * k * k
    each = int(min(_STEPS_EACH, max(_FEWEST_STEPS_EACH, _MOST_WORK / work)))
    # The first walk tells how sure the choice is.
    start, steps = torch.searchsorted(columns, support).cpu().numpy(), max(1, each // 4) * k
    first = screen.walk(start, targets * max(rows - k, 1.0) / 2, steps, steps // 4)
    exponent = power(rows, targets, n, torch.from_numpy(first.marginals))
    found, parts = [first], min(_PARTS, each)
    for _ in range(parts):
        found.append(screen.walk(found[-1].support, exponent, each // parts * k, 0))
    best = screen.best(found)
    marginals = problem.squares.new_zeros(n)
    inside = np.mean([part.marginals for part in found[1:]], 0)
    marginals[columns] = torch.from_numpy(inside).to(marginals)
    share = screen.weights(exponent).sum(1)
    outside = float(np.mean([part.outside for part in found[1:]]))
    marginals[others] = (outside * share / share.sum().clamp_min(1e-300)).to(marginals)
    return Posterior(marginals.clamp_max(1), columns[torch.from_numpy(best).to(columns.device)])


@dataclass(frozen=True)
class _Screen:
    """The promising columns: what a walk over them needs, and the logarithms of losses with each of
    the other columns, (others, k), for their weights."""

    gram: Array
    moments: Array
    total: float
    floor: float
    relative: Tensor
    generator: torch.Generator

    @classmethod
    def of(
        cls,
        problem: Problem,
        columns: Tensor,
        penalty: Tensor,
        relative: Tensor,
        generator: torch.Generator,
    ) -> _Screen:
        gram = problem.block(columns.unsqueeze(0))[0].double()
        gram.diagonal().add_(penalty[columns])
        moments = problem.moments[columns].double().T.contiguous().cpu().numpy()
        total, floor = float(problem.total), rounding(problem)
        return cls(gram.cpu().numpy(), moments, total, floor, relative, generator)

    def weights(self, exponent: float) -> Tensor:
        """Of the other columns, (others, k)."""
        return (-exponent * self.relative).clamp_max(_MOST_NATS).exp()

    def walk(self, support: Array, exponent: float, steps: int, burn: int) -> Walked:
        uniform = torch.rand(steps, generator=self.generator, dtype=torch.float64).numpy()
        return walk(
            self.gram, self.moments, self.total, support, exponent, uniform, burn=burn,
            floor=self.floor, outside=float(self.weights(exponent).sum(0).mean()),
        )  # fmt: skip

    def best(self, found: list[Walked]) -> Array:
        """The support with the smallest loss, of those on the way and where swaps lead from the
        ends."""
        tried = [each.best for each in found]
        if are_compiled(torch.empty(0), "auto"):
            for each in found:
                tried.append(
                    climb(
                        self.gram, self.moments, self.total, each.support, len(each.support),
                        self.floor,
                    )[0]
                )  # fmt: skip
        return min(tried, key=lambda support: loss_of(self.gram, self.moments, self.total, support))
