"""A random walk over supports: one column after the other is drawn anew, given the others."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ksubset.kernels.device import are_compiled

Array = npt.NDArray[Any]

# Nats: what is less likely than the most likely by more does not count.
_LEAST = 30.0
_MOST_SWAPS = 1000
# The share of a column that rounding leaves of it in the span of others.
_ALONE = 1e3 * float(np.finfo(np.float64).eps)


class Walked(NamedTuple):
    """Where a walk ended, its best support, the mean probability of every column that is here,
    (n,), and of those that are not, together."""

    support: Array
    best: Array
    marginals: Array
    outside: float


def walk(
    gram: Array,
    moments: Array,
    total: float,
    support: Array,
    power: float,
    uniform: Array,
    *,
    burn: int = 0,
    floor: float = 0.0,
    outside: float = 0.0,
) -> Walked:
    r"""Gibbs sampling of supports with weights :math:`\ell(S)^{-p}`, compiled where it can be.

    Every step takes the next place of the support, and draws its column from all that are not in
    another place. What counts is the probability of each column, not the one drawn.

    Args:
        gram: X'X with the penalty on its diagonal, (n, n).
        moments: X'y, (t, n).
        total: y'y.
        support: where to start, (k,).
        power: p.
        uniform: of [0, 1), one for every step.
        burn: steps that do not count.
        floor: losses below it are alike.
        outside: the weight of all columns that are not here, together, in units of a column that
            explains nothing.
    """
    if not are_compiled(torch.empty(0), "auto"):
        return walk_plainly(
            gram, moments, total, support, power, uniform, burn=burn, floor=floor, outside=outside
        )
    from ksubset.kernels.cpu import supports

    n, k, t = len(gram), len(support), len(moments)
    end, best, marginals = support.copy(), support.copy(), np.empty(n)
    elsewhere = supports.walk(
        gram, moments, float(total), float(power), float(floor), float(outside), uniform, burn,
        end, best, marginals, *supports.room(n, k, t),
    )  # fmt: skip
    return Walked(end, best, marginals, elsewhere)


def climb(
    gram: Array, moments: Array, total: float, support: Array, size: int, tolerance: float
) -> tuple[Array, int]:
    """The best swaps while one gains more than the tolerance, compiled: the support they lead to,
    (k,), and how many they were.

    Args:
        gram: X'X with the penalty on its diagonal, (n, n).
        moments: X'y, (t, n).
        total: y'y.
        support: where to start, (k,).
        size: how many of these count; the others come from forward selection.
        tolerance: in units of the loss.
    """
    from ksubset.kernels.cpu import supports

    end = support.copy()
    room = supports.room(len(gram), len(support), len(moments))
    made = supports.climb(
        gram, moments, float(total), size, float(tolerance), _MOST_SWAPS, end, *room
    )  # fmt: skip
    return end, made


def walk_plainly(
    gram: Array,
    moments: Array,
    total: float,
    support: Array,
    power: float,
    uniform: Array,
    *,
    burn: int = 0,
    floor: float = 0.0,
    outside: float = 0.0,
) -> Walked:
    """What :func:`walk` computes, with a solve for every step."""
    n, own = len(gram), gram.diagonal()
    support = support.copy()
    best, lowest = support.copy(), loss_of(gram, moments, total, support)
    marginals, elsewhere, counted = np.zeros(n), 0.0, len(uniform) - burn
    for step, number in enumerate(uniform):
        out = step % len(support)
        old, others = support[out], np.delete(support, out)
        block = gram[np.ix_(others, others)]
        mixed = np.linalg.solve(block, gram[others])
        common = moments - moments[:, others] @ mixed
        left = own - (gram[others] * mixed).sum(0)
        without = loss_of(gram, moments, total, others)
        seen = left > _ALONE * own
        gains = np.square(common).sum(0) / np.where(seen, left, 1) * seen
        losses = np.maximum(without - gains, floor)
        losses[others] = np.inf
        least = min(losses.min(), max(without, floor))
        weights = np.exp(-power * np.log(losses / least))
        weights[losses > least * math.exp(_LEAST / power)] = 0
        rest = outside * math.exp(-power * math.log(max(without, floor) / least))
        if step >= burn:
            marginals[others] += 1 / counted
            marginals += weights / (weights.sum() + rest) / counted
            elsewhere += rest / (weights.sum() + rest) / counted
        reached = np.cumsum(weights) > number * weights.sum()
        new = int(reached.argmax()) if reached.any() else int(np.flatnonzero(weights)[-1])
        if new != old:
            # The last column takes the place that is free, as in the compiled walk.
            support[out] = support[-1]
            support[-1] = new
            loss = loss_of(gram, moments, total, support)
            if loss < lowest:
                best, lowest = support.copy(), loss
    return Walked(support, best, marginals, elsewhere)


def loss_of(gram: Array, moments: Array, total: float, support: Array) -> float:
    """Of a support, (k,)."""
    weights = np.linalg.solve(gram[np.ix_(support, support)], moments[:, support].T)
    return total - float((moments[:, support] * weights.T).sum())
