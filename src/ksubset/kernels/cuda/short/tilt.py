"""The tilt of several short rows in registers (see kernels/coins.py and :mod:`.items`)."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.tilt import (
    STEPS,
    add3,
    add4,
    depths_of,
    extremes,
    first_guess,
    improve,
    outcome,
)

_INF = tl.constexpr(float("inf"))


@triton.jit
def _solve(theta, chosen, count, start, low, high, is_open, PER: tl.constexpr):
    """See coins._solve: the shift of every row, and the standard deviation of its number of heads.

    Rows go on together until the last one is done. A row that is done keeps its shift, so that it
    does not depend on the others.
    """
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    c = tl.minimum(tl.maximum(start, low), high)
    step = chosen * 0
    deviation = chosen * 0 + 1
    low_variance = chosen * 0 + _INF
    high_variance = chosen * 0 + _INF
    done = is_open <= 0
    running = tl.max((is_open > 0).to(tl.int32)) > 0
    while running:
        signed = chosen * 0
        spread = chosen * 0
        ups = chosen * 0
        for i in tl.static_range(PER):
            t = theta[i] + c
            e = tl.exp(-tl.abs(t))
            x = e / (1 + e)
            up = t > 0
            signed += tl.where(up, -x, x)
            spread = tl.fma(x, 1 - x, spread)
            ups += up.to(tl.float32)
        signed, variance, heads = tl.reduce((signed, spread, ups), 1, add3, keep_dims=True)
        excess = signed + (heads - chosen)
        variance = variance + chosen * 0
        deviation = tl.where(done, deviation, tl.maximum(tl.sqrt(variance), 1.0))
        new, low, high, low_variance, high_variance, close = improve(
            c, excess, variance, few, rare, low, high, low_variance, high_variance, step
        )
        c = tl.where(done, c, new)
        done = done | close
        step += 1
        running = tl.max(((done == 0) & (step < STEPS)).to(tl.int32)) > 0
    return outcome(c, done, step, low, high, low_variance, high_variance), deviation


@triton.jit
def tilt_rows(theta, k, lane, n, PER: tl.constexpr, LANES: tl.constexpr):
    """The tilted rows with their special values, and the shifts in two parts (coins.tilt). Where
    there are no items, theta is -inf."""
    none = k.to(tl.float32) * 0
    free_count = none
    forced_count = none
    nan_count = none
    for i in tl.static_range(PER):
        free_count += (tl.abs(theta[i]) < _INF).to(tl.float32)
        forced_count += (theta[i] == _INF).to(tl.float32)
        nan_count += (theta[i] != theta[i]).to(tl.float32)
    free_count, forced_count, nan_count = tl.reduce(
        (free_count, forced_count, nan_count), 1, add3, keep_dims=True
    )
    free_k = k.to(tl.float32) - forced_count
    # Flags of a row are numbers: they multiply the flags of its items.
    valid = tl.where(nan_count > 0, 0.0, 1.0 + none)
    valid = tl.where(free_k < 0, 0.0, tl.where(free_k > free_count, 0.0, valid))
    is_open = tl.where(free_k > 0, valid, 0.0)
    is_open = tl.where(free_k < free_count, is_open, 0.0)
    chosen = tl.where(is_open > 0, free_k, 1.0)
    count = tl.where(is_open > 0, free_count, 2.0)
    row = ()
    highest = none - _INF
    lowest = none + _INF
    for i in tl.static_range(PER):
        use = (tl.abs(theta[i]) < _INF) & (is_open > 0)
        row = row + (tl.where(use, theta[i], -_INF),)
        highest = tl.maximum(highest, row[i])
        lowest = tl.minimum(lowest, tl.where(use, theta[i], _INF))
    highest, lowest = tl.reduce((highest, lowest), 1, extremes, keep_dims=True)
    highest = tl.where(is_open > 0, highest, 0.0)
    lowest = tl.where(is_open > 0, lowest, 0.0)
    odds = tl.log(chosen) - tl.log(count - chosen)
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    top = tl.where(few, highest, lowest)
    mass = none
    squares = none
    depths = none
    spreads = none
    for i in tl.static_range(PER):
        e, square, d, spread = depths_of(row[i], few, top, row[i] > -_INF)
        mass += e
        squares += square
        depths += d
        spreads += spread
    mass, squares, depths, spreads = tl.reduce(
        (mass, squares, depths, spreads), 1, add4, keep_dims=True
    )
    guess = first_guess(rare, count, tl.maximum(mass, 1e-37), squares, depths, spreads)
    start = tl.where(few, guess, -guess) - top
    start = tl.where(is_open > 0, start, 0.0)
    low, high = odds - highest, odds - lowest
    first = none
    second = none
    running = is_open
    for turn in range(2):
        shift, deviation = _solve(row, chosen, count, start, low, high, running, PER)
        shift = tl.where(running > 0, shift, 0.0)
        shifted = ()
        for i in tl.static_range(PER):
            shifted = shifted + (row[i] + shift,)
        row = shifted
        second = shift
        first = tl.where(turn == 0, shift, first)
        # Far from zero, `first` has no room for all digits; see coins.tilt.
        running = tl.where(tl.abs(shift) * deviation > 1e4, is_open, 0.0)
        reach = 1 + 2e-6 * tl.abs(shift)
        start, low, high = 0.0 * shift, -reach, reach
    all_free = (free_k == free_count) & (is_open == 0)
    tilted = ()
    for i in tl.static_range(PER):
        t = row[i]
        free = tl.abs(theta[i]) < _INF
        always = (theta[i] == _INF) | (free & all_free)
        t = tl.where(always, _INF, t)
        inside = i * LANES + lane < n
        tilted = tilted + (tl.where(inside & (valid == 0), float("nan"), t),)
    return tilted, first, second
