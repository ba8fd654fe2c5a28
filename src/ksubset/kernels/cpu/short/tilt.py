"""Tilted logits, and the coins that they are tossed with."""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.short.lanes import (
    FREE,
    IDLE,
    MEAN,
    NO_COIN,
    ODD,
    ODDS,
    RARE,
    SHIFT,
    SHIFT_OF_COINS,
    SIGN,
    SQUARE,
)
from ksubset.kernels.cpu.simd import (
    absolute,
    any_above,
    choose,
    exp,
    fill,
    load,
    load_pair,
    pair,
    root,
    store,
    sum_of_pair,
    width,
)

_STEPS = 32  # most rows take three or four
_NEAR = 0.25  # deviations from k that one more step takes to a hundredth
REACH = 80.0  # exp of it is far from overflow, and exp(-80) no chance at all
_DRIFT = 4.0
_FEW = 60.0  # more than exp of the drift


@inlined
def _finish_pair(theta, n, side):
    """An item to make their number even."""
    if n % 2:
        store(theta, n * width(theta), NO_COIN * side)


@inlined
def _odds_of(t):
    """exp(t), but for logits so far out that they are as good as infinite. What is no coin has no
    odds, however far it is shifted."""
    near = choose(-REACH, t, -REACH, t)
    return choose(0.1 * NO_COIN, t, 0.0, exp(choose(REACH, near, near, REACH)))


@inlined
def tilt(theta, n, marks, scratch, heads, tails):
    """Tilt all lanes in place. What is left of a lane marked as odd is of no use.

    Fills heads and tails, the probabilities of coins (of signed logits) that are tilted nearly
    alike, which is another way to write the same distribution.
    """
    lanes = width(theta)
    zero, one = fill(theta, 0.0), fill(theta, 1.0)
    k, side = load(marks, RARE * lanes), load(marks, SIGN * lanes)
    _finish_pair(theta, n, side)
    mean, square = zero, zero
    for i in range(0, n * lanes, lanes):
        t = side * load(theta, i)
        mean = mean + t
        square = square + t * t
    fewer = choose(n, load(marks, FREE * lanes), one, zero)
    mean = choose(fewer, 0.5, side * load(marks, MEAN * lanes), mean * (1.0 / n))
    square = choose(fewer, 0.5, load(marks, SQUARE * lanes), square * (1.0 / n))
    # NaN, and squares that overflow.
    strange = choose(np.inf, square, load(marks, IDLE * lanes), one)
    spread = square - mean * mean
    # If the logits were normal, sigmoids of them would average to the sigmoid of a stretched mean.
    stretch = root(1.0 + choose(spread, 0.0, spread, 0.0) * 0.3926990817)
    c = choose(strange, 0.5, zero, load(marks, ODDS * lanes) * stretch - mean)
    # Odds once; those of another c are multiples of them.
    base, drift, pending, rebase = c, zero, one, one
    scale, sides = pair(one, one), pair(side, side)
    for step in range(_STEPS):
        if step == 0 or any_above(rebase, 0.5):
            bases, lost, anew = pair(base, base), pair(strange, strange), pair(rebase, rebase)
            for i in range(0, n * lanes, 2 * lanes):
                value = _odds_of(choose(lost, 0.5, 0.0, sides * load_pair(theta, i)) + bases)
                if step > 0:
                    value = choose(anew, 0.5, value, load_pair(scratch, i))
                store(scratch, i, value)
        sums, spreads = fill(scale, 0.0), fill(scale, 0.0)
        for i in range(0, n * lanes, 2 * lanes):
            value = scale * load_pair(scratch, i)
            q = 1.0 / (1.0 + value)
            p = value * q
            store(heads, i, p)
            store(tails, i, q)
            sums = sums + p
            spreads = spreads + p * q
        heads_mean, variance = sum_of_pair(sums), sum_of_pair(spreads)
        excess = heads_mean - k
        variance = choose(variance, 1e-30, variance, 1e-30)
        deviation = root(variance)
        far = choose(absolute(excess), _NEAR * choose(deviation, 1.0, deviation, 1.0), one, zero)
        # Newton on the logarithm of the mean, 2 (r - 1) / (r + 1) for log r; near the root the
        # plain step is the last one.
        move = 2.0 * heads_mean / (k + heads_mean)
        move = choose(far, 0.5, move, one) * (0.0 - excess) / variance
        # Of so few heads twice the odds are twice as many.
        move = choose(k, _FEW * heads_mean, _DRIFT, move)
        move = choose(move, _DRIFT, _DRIFT, choose(0.0 - _DRIFT, move, 0.0 - _DRIFT, move))
        c = c + choose(pending, 0.5, move, zero)
        pending = choose(far, 0.5, pending, zero)
        if not any_above(pending, 0.5):
            break
        drift = choose(pending, 0.5, c - base, drift)
        rebase = choose(absolute(drift), _DRIFT, one, zero)
        base = choose(rebase, 0.5, c, base)
        drift = choose(rebase, 0.5, zero, drift)
        scale = exp(pair(drift, drift))
    for i in range(0, n * lanes, lanes):
        store(theta, i, load(theta, i) + side * c)
    store(marks, SHIFT * lanes, side * c)
    store(marks, SHIFT_OF_COINS * lanes, side * (base + drift))
    # Far from zero, c has no room for the digits that matter.
    store(marks, ODD * lanes, strange + pending + choose(absolute(c), 1000.0, one, zero))


@inlined
def toss(t, n, marks, heads, tails):
    """Probabilities of the coins of tilted logits."""
    lanes = width(t)
    side = load(marks, SIGN * lanes)
    sides = pair(side, side)
    size = fill(sides, 0.0)
    _finish_pair(t, n, side)
    for i in range(0, n * lanes, 2 * lanes):
        at = sides * load_pair(t, i)
        size = size + absolute(at)
        value = _odds_of(at)
        q = 1.0 / (1.0 + value)
        store(heads, i, value * q)
        store(tails, i, q)
    strange = choose(np.inf, sum_of_pair(size), 0.0, fill(t, 1.0))
    store(marks, ODD * lanes, strange + load(marks, IDLE * lanes))
