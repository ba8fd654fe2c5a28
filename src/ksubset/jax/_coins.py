"""From logits to tilted coins, for rows (rows, n): ``kernels/coins.py`` as array code of JAX.

Tilted logits have the special values of that file's table. Nothing here is differentiated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

# Most rows take three or four; only logits far apart take more.
_MAX_STEPS = 128


class Coins(NamedTuple):
    """Independent coins with logits t whose number of heads S is conditioned to be k, in terms of
    the rarer outcome of each coin, ``x = min(p, q)``."""

    t: Array
    k: Array
    up: Array  # heads is the likelier outcome
    x: Array  # min(p, q)
    pq: Array
    variance: Array  # of S, (rows,)
    excess: Array  # E[S] - k, (rows,)

    @property
    def p(self) -> Array:
        """P(heads)."""
        return jnp.where(self.up, 1 - self.x, self.x)

    @property
    def q(self) -> Array:
        """P(tails)."""
        return jnp.where(self.up, self.x, 1 - self.x)

    @property
    def skew(self) -> Array:
        """p - q."""
        return jnp.where(self.up, 1 - 2 * self.x, 2 * self.x - 1)

    def centre(self, v: Array) -> Array:
        """v less its variance-weighted mean, zero on coins that cannot fall both ways: linear in v.

        Cov 1 = 0, so this changes no covariance product; it removes their cancellation. Twice, for
        what rounding left of a mean far larger than the spread.
        """
        alive = self.pq > 0
        total = jnp.maximum(self.variance, jnp.finfo(v.dtype).tiny)
        for _ in range(2):
            v = jnp.where(alive, v, 0)
            v = v - ((v * self.pq).sum(-1) / total)[:, None]
        return jnp.where(alive, v, 0)

    def heads(self, rarer: Array) -> Array:
        """The probability of heads from that of the rarer side."""
        return jnp.where(self.up, 1 - rarer, rarer)


def zeros(like: Array) -> Array:
    """Of the shape and type of an array of floats, and varying over a mesh as it does, which loops
    inside of ``shard_map`` ask of what they begin with."""
    return jnp.where(like > 0, 0, jnp.zeros_like(like))


def count_of(which: Array, dtype: Any) -> Array:
    """How many in each row, as floats: XLA's CPU compiler sums integers ten times as slowly."""
    return which.astype(dtype).sum(-1)


def coins(t: Array, k: Array) -> Coins:
    """From tilted logits (rows, n) and counts (rows,)."""
    up = t > 0
    x = jax.nn.sigmoid(-jnp.abs(t))
    pq = x * (1 - x)
    excess = jnp.where(up, -x, x).sum(-1) + (count_of(up, t.dtype) - k)
    return Coins(t, k, up, x, pq, pq.sum(-1), excess)


def tilt(logits: Array, k: Array) -> tuple[Array, Array]:
    """Shift each row so that its coins' expected number of heads is k.

    Returns:
        The tilted logits t (rows, n), and the shift c (rows,) with t = logits + c wherever both are
        finite.
    """
    dtype = logits.dtype
    free = jnp.isfinite(logits)
    forced = logits == jnp.inf
    free_count = count_of(free, dtype)
    free_k = k - count_of(forced, dtype)
    invalid = jnp.isnan(logits).any(-1) | (free_k < 0) | (free_k > free_count)
    has_choice = ~invalid & (free_k > 0) & (free_k < free_count)

    chosen = jnp.where(has_choice, free_k, 1)
    count = jnp.where(has_choice, free_count, 2)
    theta = jnp.where(free & has_choice[:, None], logits, -jnp.inf)
    odds = jnp.log(chosen) - jnp.log(count - chosen)
    highest = theta.max(-1)
    lowest = jnp.where(theta == -jnp.inf, jnp.inf, theta).min(-1)

    def zero(x: Array) -> Array:
        return jnp.where(has_choice, x, 0)

    start = zero(_start(theta, chosen, count, highest, lowest))
    low, high = zero(odds - highest), zero(odds - lowest)
    # theta + shift is exact near the threshold, so a second solve around zero gives the shift
    # digits that the first has no room for when the logits are far from zero.

    def solve(at: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], Array]:
        theta, start, low, high = at
        found = _solve(theta, chosen, count, start, low, high, ~has_choice)
        reach = 1 + 16 * jnp.finfo(dtype).eps * jnp.abs(found)
        return (theta + found[:, None], zeros(found), -reach, reach), found

    (tilted, *_), shifts = lax.scan(solve, (theta, start, low, high), None, length=2)

    all_free = ~has_choice & (free_k == free_count)
    tilted = jnp.where(forced | (free & all_free[:, None]), jnp.inf, tilted)
    tilted = jnp.where(invalid[:, None], jnp.nan, tilted)
    return tilted, zero(shifts.sum(0))


def _start(theta: Array, chosen: Array, count: Array, highest: Array, lowest: Array) -> Array:
    """Where to look for the shift first (docs/mathematics.md, "Where to start")."""
    few = chosen <= count / 2
    rare = jnp.where(few, chosen, count - chosen)
    # As if the rarer side were heads.
    y = jnp.where(theta == -jnp.inf, -jnp.inf, jnp.where(few[:, None], theta, -theta))
    top = jnp.where(few, highest, -lowest)
    depth = jnp.maximum(y - top[:, None], -1e9)
    odds = jnp.exp(depth)
    mass, squares = odds.sum(-1), (odds * odds).sum(-1)
    bound = jnp.log(rare / mass)
    ratio = rare * squares / (mass * mass)
    depth = jnp.where(y == -jnp.inf, 0, depth)
    mean = depth.sum(-1) / count
    spread = jnp.maximum((depth * depth).sum(-1) / count - mean * mean, 0)
    normal = _quantile(rare / count) * jnp.sqrt(spread + math.pi**2 / 3) - mean
    guess = jnp.where(
        ratio < 0.25, bound - jnp.log1p(-jnp.minimum(ratio, 0.25)), jnp.maximum(bound, normal)
    )
    return jnp.where(few, guess - top, top - guess)


def _quantile(q: Array) -> Array:
    """Of the standard normal distribution, for q at most 1/2, to 0.003."""
    r = jnp.sqrt(-2 * jnp.log(q))
    return (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r * r) - r


class _Search(NamedTuple):
    step: Array
    c: Array
    low: Array
    high: Array
    # At its first ends, never looked at, the bracket has the extreme coins near zero.
    low_variance: Array
    high_variance: Array
    done: Array


def _solve(
    theta: Array, chosen: Array, count: Array, start: Array, low: Array, high: Array, done: Array
) -> Array:
    """Newton on the logarithm of the mean of the rarer outcome, safeguarded by bisection.

    Stops when the mean is within a small part of a standard deviation of its target, then
    takes one more Newton step: the formulas carry the remainder, it only must be small.
    """
    few = chosen <= count / 2
    rare = jnp.where(few, chosen, count - chosen)
    tiny = jnp.finfo(theta.dtype).tiny

    def step(at: _Search) -> _Search:
        t = theta + at.c[:, None]
        up = t > 0
        x = jax.nn.sigmoid(-jnp.abs(t))
        # One pass: likely heads count as 1 - x.
        excess = jnp.where(up, -x, x).sum(-1) + (count_of(up, x.dtype) - chosen)
        variance = (x * (1 - x)).sum(-1)
        mean_rare = jnp.maximum(jnp.where(few, excess, -excess) + rare, tiny)
        move = jnp.log(rare / mean_rare) * mean_rare / jnp.maximum(variance, tiny)
        newton = at.c + jnp.where(few, move, -move)

        close = jnp.abs(excess) <= 0.05 * jnp.maximum(jnp.sqrt(variance), 1)
        # Near the root the plain step is exact enough and cannot run away.
        plain = jnp.where(variance > 0, excess / jnp.where(variance > 0, variance, 1), 0)
        polished = at.c - jnp.clip(plain, -2, 2)
        under, over = excess < 0, excess > 0
        low = jnp.where(under, jnp.maximum(at.low, at.c), at.low)
        high = jnp.where(over, jnp.minimum(at.high, at.c), at.high)
        inside = (newton > low) & (newton < high) & (at.step % 3 != 2)
        following = jnp.where(inside, newton, _middle(low, high))
        return _Search(
            at.step + 1,
            jnp.where(at.done, at.c, jnp.where(close, polished, following)),
            low,
            high,
            jnp.where(under, variance, at.low_variance),
            jnp.where(over, variance, at.high_variance),
            at.done | close,
        )

    infinite = zeros(start) + jnp.inf
    begin = _Search(jnp.int32(0), jnp.clip(start, low, high), low, high, infinite, infinite, done)
    end = lax.while_loop(lambda at: (at.step < _MAX_STEPS) & ~at.done.all(), step, begin)
    # Among logits far apart there may be no number that is close. Of the two neighbours that the
    # bracket has closed in on, the one that has the coins in question near zero leaves the rest to
    # a second solve.
    neighbour = jnp.where(end.low_variance > end.high_variance, end.low, end.high)
    return jnp.where(end.done, end.c, neighbour)


def _middle(low: Array, high: Array) -> Array:
    """Midpoint in a scale that is linear near zero and logarithmic far out.

    Bisection then needs tens of steps, not a hundred, when users forbid items with -1e30.
    """
    middle = jnp.sinh((jnp.arcsinh(low) + jnp.arcsinh(high)) / 2)
    # For a bracket far from zero and narrow, sinh(asinh) rounds outside of it.
    plain = low + (high - low) / 2
    return jnp.where((middle > low) & (middle < high), middle, plain)
