"""The tilt of a row in registers (see kernels/coins.py)."""

from __future__ import annotations

import triton
import triton.language as tl

STEPS = tl.constexpr(96)  # of which every third halves the bracket, if no other does
_STEPS_OF_DOUBLES = tl.constexpr(192)
_INF = tl.constexpr(float("inf"))


@triton.jit
def add3(a0, b0, c0, a1, b1, c1):
    """Three sums in one reduction."""
    return a0 + a1, b0 + b1, c0 + c1


@triton.jit
def extremes(a0, b0, a1, b1):
    """The largest and the smallest in one reduction."""
    return tl.maximum(a0, a1), tl.minimum(b0, b1)


@triton.jit
def add2(a0, b0, a1, b1):
    """Two sums in one reduction."""
    return a0 + a1, b0 + b1


@triton.jit
def add4(a0, b0, c0, d0, a1, b1, c1, d1):
    """Four."""
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1


@triton.jit
def bisect(low, high):
    """Midpoint in the order of floating point numbers: any bracket closes in as many steps as they
    have bits."""
    bits: tl.constexpr = low.dtype.primitive_bitwidth
    whole: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    magnitude: tl.constexpr = (1 << (bits - 1)) - 1
    a = low.to(whole, bitcast=True)
    b = high.to(whole, bitcast=True)
    a = a ^ ((a >> (bits - 1)) & magnitude)
    b = b ^ ((b >> (bits - 1)) & magnitude)
    mid = (a >> 1) + (b >> 1) + (a & b & 1)
    mid = mid ^ ((mid >> (bits - 1)) & magnitude)
    return mid.to(low.dtype, bitcast=True)


@triton.jit
def first_guess(rare, count, mass, squares, depths, spreads):
    """See coins._start; relative to the most likely coin. Sums of e = exp(-d), e^2, d and d^2."""
    bound = tl.log(rare / mass)
    ratio = rare * squares / (mass * mass)
    mean = depths / count
    spread = tl.maximum(spreads / count - mean * mean, 0.0)
    r = tl.sqrt(-2 * tl.log(rare / count))
    quantile = (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r * r) - r
    normal = quantile * tl.sqrt(spread + 3.289868) + mean
    corrected = bound - tl.log(1 - tl.minimum(ratio, 0.25))
    return tl.where(ratio < 0.25, corrected, tl.maximum(bound, normal))


@triton.jit
def depths_of(theta, few, top, use):
    """exp(-d), d, and their squares, for d = |theta - top| of the coins in use."""
    d = tl.where(use, tl.minimum(tl.where(few, top - theta, theta - top), 1e9), 0.0)
    e = tl.where(use, tl.exp(-d), 0.0)
    return e, e * e, d, d * d


@triton.jit
def improve(
    c, excess, variance, few, rare, low, high, low_variance, high_variance, step,
    DOUBLES: tl.constexpr = False,
):  # fmt: skip
    """A step of coins._solve: the next c, the bracket, the variances at its ends, and whether c was
    close. The bracket closes in on a float32 unless there are DOUBLES of logits."""
    mean_rare = tl.maximum(tl.where(few, excess, -excess) + rare, 1e-30)
    move = tl.log(rare / mean_rare) * mean_rare / tl.maximum(variance, 1e-30)
    newton = c + tl.where(few, move, -move)
    close = tl.abs(excess) <= 0.05 * tl.maximum(tl.sqrt(variance), 1.0)
    polish = excess / tl.maximum(variance, 1e-37)
    polish = tl.minimum(tl.maximum(polish, -2.0), 2.0)
    low = tl.where(excess < 0, tl.maximum(low, c), low)
    high = tl.where(excess > 0, tl.minimum(high, c), high)
    low_variance = tl.where(excess < 0, variance, low_variance)
    high_variance = tl.where(excess > 0, variance, high_variance)
    inside = (newton > low) & (newton < high) & (step - 3 * tl.floor(step / 3) < 1.5)
    if DOUBLES:
        middle = bisect(low, high)
    else:
        middle = bisect(low.to(tl.float32), high.to(tl.float32)).to(low.dtype)
    c = tl.where(close, c - polish, tl.where(inside, newton, middle))
    return c, low, high, low_variance, high_variance, close


@triton.jit
def outcome(c, close, step, low, high, low_variance, high_variance):
    """c, if it was close, or if there was nothing to solve; else the end of the bracket that has
    the coins in question near zero (see cpu/tilt.py)."""
    end = tl.where(low_variance > high_variance, low, high)
    return tl.where(close, c, tl.where(step > 0.5, end, c))


@triton.jit
def solve(theta, chosen, count, start, low, high, is_open):
    """See coins._solve. Returns the shift and the deviation of the number of heads."""
    doubles: tl.constexpr = theta.dtype == tl.float64
    steps: tl.constexpr = _STEPS_OF_DOUBLES if doubles else STEPS
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    c = tl.minimum(tl.maximum(start, low), high)
    step = chosen * 0
    deviation = chosen * 0 + 1
    low_variance = chosen * 0 + _INF
    high_variance = chosen * 0 + _INF
    close = is_open < 0
    running = is_open > 0
    while running:
        t = theta + c
        up = t > 0
        e = tl.exp(-tl.abs(t))
        x = e / (1 + e)
        signed = tl.where(up, -x, x)
        signed_sum, variance, heads = tl.reduce((signed, x * (1 - x), up.to(x.dtype)), 0, add3)
        excess = signed_sum + (heads - chosen)
        deviation = tl.maximum(tl.sqrt(variance), 1.0)
        c, low, high, low_variance, high_variance, close = improve(
            c, excess, variance, few, rare, low, high, low_variance, high_variance, step, doubles
        )
        step += 1
        running = tl.where(close, step * 0, steps - step) > 0.5
    return outcome(c, close, step, low, high, low_variance, high_variance), deviation


@triton.jit
def tilt_row(theta, k, inside):
    """The tilted row with its special values, and the shift in two parts (coins.tilt)."""
    free = (tl.abs(theta) < _INF) & inside
    forced = (theta == _INF) & inside
    nan = (theta != theta) & inside
    free_count, forced_count, nan_count = tl.reduce(
        (free.to(theta.dtype), forced.to(theta.dtype), nan.to(theta.dtype)), 0, add3
    )
    free_k = k.to(theta.dtype) - forced_count
    # Flags of the row are numbers: they multiply the flags of its items.
    valid = tl.where(nan_count > 0, 0.0, 1.0)
    valid = tl.where(free_k < 0, 0.0, tl.where(free_k > free_count, 0.0, valid))
    is_open = tl.where(free_k > 0, valid, 0.0)
    is_open = tl.where(free_k < free_count, is_open, 0.0)
    chosen = tl.where(is_open > 0, free_k, 1.0)
    count = tl.where(is_open > 0, free_count, 2.0)
    use = free.to(theta.dtype) * is_open > 0
    row = tl.where(use, theta, -_INF)
    highest, lowest = tl.reduce((row, tl.where(use, theta, _INF)), 0, extremes)
    highest = tl.where(is_open > 0, highest, 0.0)
    lowest = tl.where(is_open > 0, lowest, 0.0)
    odds = tl.log(chosen) - tl.log(count - chosen)
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    top = tl.where(few, highest, lowest)
    e, square, d, spread = depths_of(theta, few, top, use)
    mass, squares, depths, spreads = tl.reduce((e, square, d, spread), 0, add4)
    guess = first_guess(rare, count, mass, squares, depths, spreads)
    start = tl.where(few, guess, -guess) - top
    start = tl.where(is_open > 0, start, 0.0)
    first, deviation = solve(row, chosen, count, start, odds - highest, odds - lowest, is_open)
    row = row + first
    # Far from zero, `first` has no room for all digits; see coins.tilt.
    digits: tl.constexpr = 4e-15 if theta.dtype == tl.float64 else 2e-6
    reach = 1 + digits * tl.abs(first)
    rough = tl.where(tl.abs(first) * deviation * digits > 0.02, is_open, 0.0)
    second, _deviation = solve(row, chosen, count, 0.0 * first, -reach, reach, rough)
    first = tl.where(is_open > 0, first, 0.0)
    second = tl.where(is_open > 0, second, 0.0)
    all_free = tl.where(free_k == free_count, 1.0 - is_open, 0.0)
    t = row + second
    always = forced.to(theta.dtype) + free.to(theta.dtype) * all_free > 0
    t = tl.where(always, _INF, t)
    t = tl.where(inside.to(theta.dtype) * (1 - valid) > 0, float("nan"), t)
    return t, first, second
