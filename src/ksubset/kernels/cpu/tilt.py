"""The tilt of a row (see kernels/coins.py for what it is and the table of special values)."""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import allocating, part
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    exp_negative,
    fill,
    largest,
    load,
    rounded,
    smallest,
    store,
    total,
    width,
)

_STEPS = 192  # of which every third halves the bracket, if no other does


@part
def padded(n):
    """n rounded up to whole vectors of either type."""
    return (n + 15) // 16 * 16


@part
def means(theta, size, c):
    """Heads beyond the likely ones in expectation, their variance, the number of likely ones."""
    signed = fill(theta, 0.0)
    variance = fill(theta, 0.0)
    likely = fill(theta, 0.0)
    for i in range(0, size, width(theta)):
        t = load(theta, i) + c
        e = exp_negative(t)
        x = e / (1.0 + e)
        signed = signed + choose(t, 0.0, 0.0 - x, x)
        likely = likely + choose(t, 0.0, fill(theta, 1.0), fill(theta, 0.0))
        variance = variance + (x - x * x)
    return total(signed), total(variance), total(likely)


@part
def _order(x):
    """Numbers as integers in the same order, so that bisection halves what is representable."""
    bits = np.int64(np.float64(x).view(np.int64))
    return bits if bits >= 0 else np.int64(-0x8000000000000000) - bits


@part
def _middle(low, high):
    a, b = _order(low), _order(high)
    middle = (a >> 1) + (b >> 1) + (a & b & 1)
    bits = middle if middle >= 0 else np.int64(-0x8000000000000000) - middle
    return np.int64(bits).view(np.float64)


@part
def solve(theta, size, chosen, count, start, low, high):
    """c with sum sigmoid(theta + c) = chosen, nearly: see coins._solve. And the deviation."""
    few = chosen <= 0.5 * count
    rare = chosen if few else count - chosen
    c = min(max(start, low), high)
    deviation = 1.0
    # At its first ends, never looked at, the bracket has the extreme coins near zero.
    low_variance, high_variance = np.inf, np.inf
    for step in range(_STEPS):
        signed, variance, likely = means(theta, size, c)
        excess = signed + (likely - chosen)
        deviation = math.sqrt(variance)
        if abs(excess) <= 0.05 * max(deviation, 1.0):
            if variance > 0:
                c -= min(max(excess / variance, -2.0), 2.0)
            return c, deviation
        if excess < 0:
            low, low_variance = max(low, c), variance
        else:
            high, high_variance = min(high, c), variance
        mean_rare = max((excess if few else -excess) + rare, 1e-300)
        move = math.log(rare / mean_rare) * mean_rare / max(variance, 1e-300)
        newton = c + (move if few else -move)
        c = newton if low < newton < high and step % 3 != 2 else _middle(low, high)
    # Among logits far apart there may be no number that is close. Of the two neighbours that the
    # bracket has closed in on, the one that has the coins in question near zero leaves the rest to
    # a second solve.
    return (low if low_variance > high_variance else high), deviation


@part
def _survey(theta, size):
    """Counts of finite, +inf and NaN logits, and the largest and smallest finite one."""
    one, zero = fill(theta, 1.0), fill(theta, 0.0)
    finite, forced, missing = zero, zero, zero
    highest, lowest = fill(theta, -np.inf), fill(theta, np.inf)
    for i in range(0, size, width(theta)):
        t = load(theta, i)
        inside = choose(np.inf, absolute(t), one, zero)
        finite = finite + inside
        forced = forced + (choose(t, 0.0, one, zero) - choose(t, 0.0, inside, zero))
        # NaN is neither above -inf nor equal to it: it fails both comparisons.
        missing = missing + (1.0 - choose(t, -np.inf, one, choose(0.0, t, one, zero)))
        highest = choose(inside, 0.5, choose(t, highest, t, highest), highest)
        lowest = choose(inside, 0.5, choose(lowest, t, t, lowest), lowest)
    return total(finite), total(forced), total(missing), largest(highest), smallest(lowest)


@part
def _survey_odds(theta, size, centre):
    """The sums of e = exp(-d), of its square, of d and of its square, d = |theta - centre|, over
    finite logits."""
    mass, squares = fill(theta, 0.0), fill(theta, 0.0)
    depths, spreads = fill(theta, 0.0), fill(theta, 0.0)
    for i in range(0, size, width(theta)):
        t = load(theta, i) - centre
        e = exp_negative(t)
        mass = mass + e
        squares = squares + e * e
        depth = absolute(t)
        depth = choose(np.inf, depth, choose(depth, 1e9, 1e9, depth), 0.0)
        depths = depths + depth
        spreads = spreads + depth * depth
    return total(mass), total(squares), total(depths), total(spreads)


@part
def _quantile(q):
    """Of the standard normal distribution, for q at most 1/2, to 0.003."""
    r = math.sqrt(-2 * math.log(q))
    return (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r * r) - r


@part
def _start(rare, count, mass, squares, depths, spreads):
    """See coins._start; relative to the most likely coin."""
    bound = math.log(rare / mass)
    ratio = rare * squares / (mass * mass)
    if ratio < 0.25:
        return bound - math.log1p(-ratio)
    mean = depths / count
    spread = max(spreads / count - mean * mean, 0.0)
    return max(bound, _quantile(rare / count) * math.sqrt(spread + math.pi**2 / 3) + mean)


@part
def shift_row(theta, size, c):
    """Add c to all of a row."""
    for i in range(0, size, width(theta)):
        store(theta, i, load(theta, i) + c)


@part
def _tilt_free(theta, n, chosen, finite, highest, lowest):
    """Tilt a row of finite logits and -inf, of which some but not all finite ones are chosen."""
    size = padded(n)
    odds = math.log(chosen) - math.log(finite - chosen)
    few = chosen <= 0.5 * finite
    top = highest if few else lowest
    rare = chosen if few else finite - chosen
    # -inf has exp(-inf) = 0 on both sides.
    guess = _start(rare, finite, *_survey_odds(theta, size, top))
    start = (guess if few else -guess) - top
    low, high = odds - highest, odds - lowest
    first, deviation = solve(theta, size, chosen, finite, start, low, high)
    first = rounded(theta, first)
    shift_row(theta, size, first)
    eps = 2.0**-23 if theta.itemsize == 4 else 2.0**-52
    second = 0.0
    if abs(first) * eps * max(deviation, 1.0) > 1e-3:
        # theta + first is exact near the threshold: a second solve gives the shift digits that
        # `first` has no room for when the logits are far from zero.
        reach = 1 + 16 * eps * abs(first)
        second, _ = solve(theta, size, chosen, finite, 0.0, -reach, reach)
        second = rounded(theta, second)
        shift_row(theta, size, second)
    return first + second


@allocating
def tilt_row(theta, n, k):
    """Tilt theta[:n] in place, padded by -inf to whole vectors; return the shift."""
    size = padded(n)
    finite, forced, missing, highest, lowest = _survey(theta, size)
    chosen = k - forced
    if missing > 0 or chosen < 0 or chosen > finite:
        for i in range(n):
            theta[i] = np.nan
        return 0.0
    if chosen == 0 or chosen == finite:
        for i in range(n):
            if abs(theta[i]) < np.inf:
                theta[i] = -np.inf if chosen == 0 else np.inf
        return 0.0
    if forced > 0:
        # Out of the way of the sums: no infinity may be among what they add up.
        free = np.empty(size, theta.dtype)
        for i in range(size):
            free[i] = -np.inf if theta[i] == np.inf else theta[i]
        shift = _tilt_free(free, n, chosen, finite, highest, lowest)
        for i in range(n):
            if theta[i] < np.inf:
                theta[i] = free[i]
        return shift
    return _tilt_free(theta, n, chosen, finite, highest, lowest)
