"""The tilt of a long row (see kernels/coins.py)."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long.board import load_tiles, share4, share_extremes
from ksubset.kernels.cuda.tilt import (
    STEPS,
    add3,
    add4,
    depths_of,
    first_guess,
    improve,
    outcome,
)

_INF = tl.constexpr(float("inf"))


@triton.jit
def solve(
    source, base, tiles, first, stride, n, chosen, count, start, low, high, is_open,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The shift of source + base for the given tiles (see cuda/tilt.py), all in float64 but the
    tiles. Infinite logits count as none."""
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    c = tl.minimum(tl.maximum(start, low), high)
    step = chosen * 0
    low_variance = chosen * 0 + _INF
    high_variance = chosen * 0 + _INF
    deviation = chosen * 0 + 1
    close = is_open < 0
    running = is_open > 0
    while running:
        signed = tl.zeros([WIDE * TILE], tl.float32)
        spread = tl.zeros([WIDE * TILE], tl.float32)
        likely = tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            _at, inside, t = load_tiles(source, i, first, stride, tiles, n, TILE, WIDE)
            free = inside & (tl.abs(t) < _INF)
            t = (t + base) + c.to(tl.float32)
            up = t > 0
            e = tl.exp(-tl.abs(t))
            x = tl.where(free, e / (1 + e), 0.0)
            signed += tl.where(up, -x, x)
            spread += x * (1 - x)
            likely += (up & free).to(tl.float32)
        a, b, d = tl.reduce((signed, spread, likely), 0, add3)
        a, variance, d, _unused, epoch = share4(a, b, d, d, board, counter, epoch, g, G, GP)
        excess = a + (d - chosen)
        deviation = tl.maximum(tl.sqrt(variance), 1.0)
        c, low, high, low_variance, high_variance, close = improve(
            c, excess, variance, few, rare, low, high, low_variance, high_variance, step
        )
        step += 1
        running = tl.where(close, step * 0, STEPS - step) > 0.5
    c = outcome(c, close, step, low, high, low_variance, high_variance)
    return c, deviation, epoch


@triton.jit
def tilt(
    logits, k, tilted, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the tilted row. Returns whether it is valid (1 or 0), how many are to be chosen of the
    items that are still free, none where all of them have to be, and the shift."""
    tiles = (n + TILE - 1) // TILE
    free_sum = tl.zeros([WIDE * TILE], tl.int32)
    forced_sum = tl.zeros([WIDE * TILE], tl.int32)
    nan_sum = tl.zeros([WIDE * TILE], tl.int32)
    most = tl.full([WIDE * TILE], -_INF, tl.float32)
    least = tl.full([WIDE * TILE], _INF, tl.float32)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        _at, inside, t = load_tiles(logits, i, 0, 1, tiles, n, TILE, WIDE)
        free = inside & (tl.abs(t) < _INF)
        free_sum += free.to(tl.int32)
        forced_sum += (inside & (t == _INF)).to(tl.int32)
        nan_sum += (inside & (t != t)).to(tl.int32)
        most = tl.where(free, tl.maximum(most, t), most)
        least = tl.where(free, tl.minimum(least, t), least)
    a, b, d = tl.reduce((free_sum, forced_sum, nan_sum), 0, add3)
    count, forced, missing, _unused, epoch = share4(a, b, d, d, board, counter, epoch, g, G, GP)
    highest, lowest, epoch = share_extremes(
        tl.max(most, 0), tl.min(least, 0), board, counter, epoch, g, G, GP
    )
    free_k = k.to(tl.float64) - forced
    valid = tl.where(missing > 0, 0.0, 1.0)
    valid = tl.where(free_k < 0, 0.0, tl.where(free_k > count, 0.0, valid))
    is_open = tl.where(free_k > 0, valid, 0.0)
    is_open = tl.where(free_k < count, is_open, 0.0)
    all_free = tl.where(free_k == count, 1.0 - is_open, 0.0)
    chosen = tl.where(is_open > 0, free_k, 1.0)
    total = tl.where(is_open > 0, count, 2.0)
    highest = tl.where(is_open > 0, highest, 0.0)
    lowest = tl.where(is_open > 0, lowest, 0.0)

    few = chosen <= total * 0.5
    rare = tl.where(few, chosen, total - chosen)
    top = tl.where(few, highest, lowest)
    mass = tl.zeros([WIDE * TILE], tl.float32)
    squares = tl.zeros([WIDE * TILE], tl.float32)
    depths = tl.zeros([WIDE * TILE], tl.float32)
    spreads = tl.zeros([WIDE * TILE], tl.float32)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        _at, inside, t = load_tiles(logits, i, 0, 1, tiles, n, TILE, WIDE)
        odds, square, depth, spread = depths_of(
            t, few, top.to(tl.float32), inside & (tl.abs(t) < _INF)
        )
        mass += odds
        squares += square
        depths += depth
        spreads += spread
    a, b, c, d = tl.reduce((mass, squares, depths, spreads), 0, add4)
    a, b, c, d, epoch = share4(a, b, c, d, board, counter, epoch, g, G, GP)
    guess = first_guess(rare, total, tl.maximum(a, 1e-37), b, c, d)
    start = tl.where(few, guess, -guess) - top
    odds = tl.log(chosen) - tl.log(total - chosen)
    first, deviation, epoch = solve(
        logits, 0.0, tiles, 0, 1, n, chosen, total, start, odds - highest, odds - lowest, is_open,
        board, counter, epoch, g, G, GP, TILE, WIDE,
    )  # fmt: skip
    base = first.to(tl.float32)
    reach = 1 + 2e-6 * tl.abs(first)
    rough = tl.where(tl.abs(first) * deviation > 1e4, is_open, 0.0)
    second, _deviation, epoch = solve(
        logits, base, tiles, 0, 1, n, chosen, total, 0.0 * first, -reach, reach, rough,
        board, counter, epoch, g, G, GP, TILE, WIDE,
    )  # fmt: skip
    rest = second.to(tl.float32)
    settled = tl.where(all_free > 0, _INF, -_INF)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, theta = load_tiles(logits, i, 0, 1, tiles, n, TILE, WIDE)
        t = tl.where(is_open > 0, (theta + base) + rest, settled)
        t = tl.where(tl.abs(theta) < _INF, t, theta)
        t = tl.where(valid > 0, t, float("nan"))
        tl.store(tilted + at, t, inside)
    shift = tl.where(is_open > 0, base.to(tl.float64) + rest.to(tl.float64), 0.0)
    return valid, tl.where(all_free > 0, 0.0, free_k), shift, epoch
