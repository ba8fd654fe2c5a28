"""An exact sample of a long row.

All tiles but every WIDE-th are tossed, and these accept or reject the outcome (kernels/halving.py
has halves in place of such parts), until what is left fits in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.light import odds_of, running_sums
from ksubset.kernels.cuda.long.board import NODES, load_tiles, share4, share_vectors, wait
from ksubset.kernels.cuda.long.nodes import spectrum
from ksubset.kernels.cuda.long.tilt import solve
from ksubset.kernels.cuda.moments import coins, nodes_for
from ksubset.kernels.cuda.random import GOLDEN, thresholds, toss4
from ksubset.kernels.cuda.sampling import DECAY, TIMES, accept, draw, four
from ksubset.kernels.cuda.tilt import add4

_INF = tl.constexpr(float("inf"))
_TRIES = tl.constexpr(64)


@triton.jit
def survey_odds(tilted, scratch, n, TILE: tl.constexpr, WIDE: tl.constexpr, PER: tl.constexpr):
    """Store the running sums of the odds (light.py), of a row that has one program. Returns the
    last of them, and the sum of squares."""
    squares = tl.zeros([WIDE * TILE], tl.float32)
    whole = tl.zeros([], tl.float64)
    for i in range(0, n, WIDE * TILE):
        at = i + tl.arange(0, WIDE * TILE)
        odds = odds_of(tl.load(tilted + at, at < n, -_INF), at < n)
        squares += odds * odds
        whole = running_sums(odds, whole, scratch, i, n, WIDE * TILE, PER)
    return whole, tl.sum(squares, 0)


@triton.jit
def draw_row(
    tilted, chosen, key, place, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    LANES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Store a sample of a valid row, of whose free items so many are chosen. Returns 0 if tries
    ran out.

    Every WIDE-th tile is kept, those of the largest variance; the others are tossed and accepted by
    them. What is kept of what was kept, and so on, fits in registers in the end.
    """
    tiles = (n + TILE - 1) // TILE
    first = tiles * 0
    stride = tiles * 0 + 1
    wanted = chosen
    base = tl.zeros([], tl.float32)
    stage = key * 0
    found = tiles * 0 + 1
    bits = place.to(tl.pointer_type(tl.int32), bitcast=True)
    which_tile = tl.arange(0, WIDE * TILE) // TILE
    while (tiles > WIDE) & (found > 0):
        spread = tl.zeros([WIDE * TILE], tl.float32)
        mean_sum = tl.zeros([WIDE * TILE], tl.float32)
        ups_sum = tl.zeros([WIDE * TILE], tl.float32)
        free_sum = tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            _at, inside, t = load_tiles(tilted, i, first, stride, tiles, n, TILE, WIDE)
            up, x, pq, _skew = coins(t + base, inside)
            free = inside & (tl.abs(t) < _INF)
            spread += pq
            mean_sum += tl.where(up, -x, x)
            ups_sum += (up & free).to(tl.float32)
            free_sum += free.to(tl.float32)
        spreads, means, likely, frees = tl.reduce(
            (
                tl.reshape(spread, (WIDE, TILE)), tl.reshape(mean_sum, (WIDE, TILE)),
                tl.reshape(ups_sum, (WIDE, TILE)), tl.reshape(free_sum, (WIDE, TILE)),
            ),
            1,
            add4,
        )  # fmt: skip
        spreads, means, likely, frees, epoch = share_vectors(
            spreads, means, likely, frees, board, counter, epoch, g, G, GP, WIDE
        )
        which_part = tl.arange(0, WIDE)
        keep = tl.min(tl.where(spreads == tl.max(spreads, 0), which_part, WIDE), 0)
        keep = tl.minimum(keep, tiles - 1)
        mine = which_part == keep
        variance, mean, ups, count = tl.reduce(
            (
                tl.where(mine, spreads, 0.0), tl.where(mine, means, 0.0),
                tl.where(mine, likely, 0.0), tl.where(mine, frees, 0.0),
            ),
            0,
            add4,
        )  # fmt: skip
        kept = (tiles - keep + WIDE - 1) // WIDE
        other = first + keep * stride
        number = nodes_for(variance, count, TIMES)
        real, imag, _s, _c, _dr, _di, _nodes, epoch = spectrum(
            tilted, base, kept, other, WIDE * stride, n, number, variance, DECAY,
            tilted, base, base, board, counter, epoch, g, G, GP, TILE, WIDE, False,
        )  # fmt: skip
        taken = wanted * 0
        which = tiles * 0 + 8
        turn = tiles * 0
        tossing = (which > 7) & (turn < _TRIES)
        while tossing:
            stage += GOLDEN
            # Two counts of 16 bits in one number.
            n01 = tl.zeros([WIDE * TILE], tl.int32)
            n23 = tl.zeros([WIDE * TILE], tl.int32)
            for i in range(g, (tiles + WIDE - 1) // WIDE, G):
                at, inside, t = load_tiles(tilted, i, first, stride, tiles, n, TILE, WIDE)
                tossed = inside & (which_tile != keep)
                free = tossed & (tl.abs(t) < _INF)
                up, x, _pq, _skew = coins(t + base, free)
                high, low = thresholds(tl.where(free, tl.where(up, 1 - x, x), 0.0))
                h0, h1, h2, h3 = toss4(key + stage, at, high, low)
                n01 += h0.to(tl.int32) | (h1.to(tl.int32) << 16)
                n23 += h2.to(tl.int32) | (h3.to(tl.int32) << 16)
                shown = (h0.to(tl.int32) | (h1.to(tl.int32) << 1)) | (
                    (h2.to(tl.int32) << 2) | (h3.to(tl.int32) << 3)
                )
                tl.store(bits + at, tl.where(t == _INF, 15, shown), tossed)
            h0, h1, h2, h3, epoch = share4(
                tl.sum(n01 & 0xFFFF, 0), tl.sum((n01 >> 16) & 0xFFFF, 0),
                tl.sum(n23 & 0xFFFF, 0), tl.sum((n23 >> 16) & 0xFFFF, 0),
                board, counter, epoch, g, G, GP,
            )  # fmt: skip
            heads = four(h0, h1, h2, h3)
            which = accept(
                heads, wanted - ups, mean, -ups, count, real, imag, number, key + stage, NODES
            )
            taken = tl.sum(tl.where(tl.arange(0, 8) == which, heads, 0.0), 0)
            turn += 1
            tossing = (which > 7) & (turn < _TRIES)
        found = tl.where(which > 7, 0, 1)
        tl.debug_barrier()
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, _t = load_tiles(tilted, i, first, stride, tiles, n, TILE, WIDE)
            tossed = inside & (which_tile != keep)
            shown = tl.load(bits + at, tossed, 0)
            tl.store(place + at, ((shown >> which) & 1).to(tl.float32), tossed)
        wanted = wanted - taken
        first = other
        stride = WIDE * stride
        tiles = kept
        # Tilt the rest to its own count, from one step of Newton's on.
        is_open = tl.where((wanted > 0) & (wanted < count), 1.0, 0.0)
        start = (wanted - ups - mean) / tl.maximum(variance, 1e-37)
        reach = wanted * 0 + 64.0
        shift, _deviation, epoch = solve(
            tilted, base, tiles, first, stride, n,
            tl.where(is_open > 0, wanted, 1.0), tl.where(is_open > 0, count, 2.0),
            start, -reach, reach, is_open,
            board, counter, epoch, g, G, GP, TILE, WIDE,
        )  # fmt: skip
        # No choice left: everything or nothing of what is free.
        shift = tl.where(is_open > 0, shift, tl.where(wanted > 0, 1e30, -1e30))
        base = base + shift.to(tl.float32)
    # Whoever draws the rest may have to draw everything anew.
    epoch = wait(counter, epoch, G)
    if (found > 0) & (g == 0):
        at, inside, t = load_tiles(tilted, 0, first, stride, tiles, n, TILE, WIDE)
        t = tl.where(inside, t + base, -_INF)
        wanted += tl.sum((t == _INF).to(tl.float64), 0)
        found = draw(
            t, wanted.to(tl.float32), key + stage + GOLDEN, tl.where(inside, at, n), n, place,
            WIDE * TILE, LANES, ROUNDS,
        )  # fmt: skip
    return found, epoch
