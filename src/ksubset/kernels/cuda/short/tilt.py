"""The tilt of rows in registers, several rows at a time (see kernels/coins.py)."""

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
def _solve(theta, chosen, count, start, low, high, is_open):
    """See coins._solve: the shift of every row of theta (R, N), and the standard deviation of its
    number of heads; everything else is (R, 1).

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
    running = tl.max(is_open) > 0
    while running:
        t = theta + c
        up = t > 0
        e = tl.exp(-tl.abs(t))
        x = e / (1 + e)
        signed_sum, variance, heads = tl.reduce(
            (tl.where(up, -x, x), x * (1 - x), up.to(tl.float32)), 1, add3, keep_dims=True
        )
        excess = signed_sum + (heads - chosen)
        deviation = tl.where(done, deviation, tl.maximum(tl.sqrt(variance), 1.0))
        new, low, high, low_variance, high_variance, close = improve(
            c, excess, variance, few, rare, low, high, low_variance, high_variance, step
        )
        c = tl.where(done, c, new)
        done = done | close
        step += 1
        running = tl.max(tl.where(done, 0.0, STEPS - step)) > 0.5
    return outcome(c, done, step, low, high, low_variance, high_variance), deviation


@triton.jit
def tilt_rows(theta, k, inside):
    """The tilted rows (R, N) with their special values, and the shifts (R, 1) in two parts
    (coins.tilt); k is (R, 1)."""
    free = (tl.abs(theta) < _INF) & inside
    forced = (theta == _INF) & inside
    nan = (theta != theta) & inside
    free_count, forced_count, nan_count = tl.reduce(
        (free.to(tl.float32), forced.to(tl.float32), nan.to(tl.float32)), 1, add3, keep_dims=True
    )
    free_k = k.to(tl.float32) - forced_count
    # Flags of a row are numbers: they multiply the flags of its items.
    valid = tl.where(nan_count > 0, 0.0, 1.0)
    valid = tl.where(free_k < 0, 0.0, tl.where(free_k > free_count, 0.0, valid))
    is_open = tl.where(free_k > 0, valid, 0.0)
    is_open = tl.where(free_k < free_count, is_open, 0.0)
    chosen = tl.where(is_open > 0, free_k, 1.0)
    count = tl.where(is_open > 0, free_count, 2.0)
    use = free.to(tl.float32) * is_open > 0
    row = tl.where(use, theta, -_INF)
    highest, lowest = tl.reduce(
        (row, tl.where(use, theta, _INF)), 1, extremes, keep_dims=True
    )
    highest = tl.where(is_open > 0, highest, 0.0)
    lowest = tl.where(is_open > 0, lowest, 0.0)
    odds = tl.log(chosen) - tl.log(count - chosen)
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    top = tl.where(few, highest, lowest)
    e, square, d, spread = depths_of(theta, few, top, use)
    mass, squares, depths, spreads = tl.reduce((e, square, d, spread), 1, add4, keep_dims=True)
    guess = first_guess(rare, count, tl.maximum(mass, 1e-37), squares, depths, spreads)
    start = tl.where(few, guess, -guess) - top
    start = tl.where(is_open > 0, start, 0.0)
    first, deviation = _solve(row, chosen, count, start, odds - highest, odds - lowest, is_open)
    row = row + first
    # Far from zero, `first` has no room for all digits; see coins.tilt.
    reach = 1 + 2e-6 * tl.abs(first)
    rough = tl.where(tl.abs(first) * deviation > 1e4, is_open, 0.0)
    second, _deviation = _solve(row, chosen, count, 0.0 * first, -reach, reach, rough)
    first = tl.where(is_open > 0, first, 0.0)
    second = tl.where(is_open > 0, second, 0.0)
    all_free = tl.where(free_k == free_count, 1.0 - is_open, 0.0)
    t = row + second
    always = forced.to(tl.float32) + free.to(tl.float32) * all_free > 0
    t = tl.where(always, _INF, t)
    t = tl.where(inside.to(tl.float32) * (1 - valid) > 0, float("nan"), t)
    return t, first, second
