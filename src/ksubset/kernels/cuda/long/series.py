"""Power sums of a long row, in one pass for all nodes, and what follows from them (see
kernels/cuda/series.py)."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long.board import BOARD, NODES, PHI, load_tiles, wait
from ksubset.kernels.cuda.moments import coins
from ksubset.kernels.cuda.series import add8, heads, polynomial
from ksubset.kernels.cuda.series import coefficients as of_sums


@triton.jit
def store8(place, a, b, c, d, e, f, g, h):
    """Side by side, in float64."""
    tl.store(place, a.to(tl.float64))
    tl.store(place + 1, b.to(tl.float64))
    tl.store(place + 2, c.to(tl.float64))
    tl.store(place + 3, d.to(tl.float64))
    tl.store(place + 4, e.to(tl.float64))
    tl.store(place + 5, f.to(tl.float64))
    tl.store(place + 6, g.to(tl.float64))
    tl.store(place + 7, h.to(tl.float64))


@triton.jit
def load8(place):
    """What :func:`store8` stored."""
    return (
        tl.load(place), tl.load(place + 1), tl.load(place + 2), tl.load(place + 3),
        tl.load(place + 4), tl.load(place + 5), tl.load(place + 6), tl.load(place + 7),
    )  # fmt: skip


@triton.jit
def _sums(
    tilted, tiles, n, vectors, mean, again, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Write sum p^2 ... p^8, nothing, then sum w p^0 ... w p^7 to this program's board, w = pq v.
    Returns where."""
    p2_sum = tl.zeros([WIDE * TILE], tl.float32)
    p3_sum = tl.zeros([WIDE * TILE], tl.float32)
    p4_sum = tl.zeros([WIDE * TILE], tl.float32)
    p5_sum = tl.zeros([WIDE * TILE], tl.float32)
    p6_sum = tl.zeros([WIDE * TILE], tl.float32)
    p7_sum = tl.zeros([WIDE * TILE], tl.float32)
    p8_sum = tl.zeros([WIDE * TILE], tl.float32)
    w0_sum = tl.zeros([WIDE * TILE], tl.float32)
    w1_sum = tl.zeros([WIDE * TILE], tl.float32)
    w2_sum = tl.zeros([WIDE * TILE], tl.float32)
    w3_sum = tl.zeros([WIDE * TILE], tl.float32)
    w4_sum = tl.zeros([WIDE * TILE], tl.float32)
    w5_sum = tl.zeros([WIDE * TILE], tl.float32)
    w6_sum = tl.zeros([WIDE * TILE], tl.float32)
    w7_sum = tl.zeros([WIDE * TILE], tl.float32)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
        up, x, pq, _skew = coins(t, inside)
        p = heads(up, x)
        p2 = p * p
        p3, p4 = p2 * p, p2 * p2
        p5, p6, p7, p8 = p4 * p, p4 * p2, p4 * p3, p4 * p4
        p2_sum += p2
        p3_sum += p3
        p4_sum += p4
        p5_sum += p5
        p6_sum += p6
        p7_sum += p7
        p8_sum += p8
        if not INFER:
            v = tl.load(vectors + at, inside, 0.0)
            w = pq * tl.where(pq > 0, (v - mean) - again, 0.0)
            w0_sum += w
            w1_sum += w * p
            w2_sum += w * p2
            w3_sum += w * p3
            w4_sum += w * p4
            w5_sum += w * p5
            w6_sum += w * p6
            w7_sum += w * p7
    side = ((epoch // G) % 2) * (G * BOARD) + PHI
    mine = board + side + g * BOARD
    a, b, c, d, e, f, h, _zero = tl.reduce(
        (p2_sum, p3_sum, p4_sum, p5_sum, p6_sum, p7_sum, p8_sum, w0_sum), 0, add8
    )
    store8(mine, a, b, c, d, e, f, h, _zero)
    if not INFER:
        a, b, c, d, e, f, h, i = tl.reduce(
            (w0_sum, w1_sum, w2_sum, w3_sum, w4_sum, w5_sum, w6_sum, w7_sum), 0, add8
        )
        store8(mine + 8, a, b, c, d, e, f, h, i)
    epoch = wait(counter, epoch, G)
    if G > 1:
        who, lane = tl.arange(0, GP), tl.arange(0, 16)
        use = (who < G)[:, None] & (lane < 16)[None, :]
        all_of = board + side + who[:, None] * BOARD + lane[None, :]
        added = tl.sum(tl.load(all_of, use, 0.0, volatile=True), 0)
        mine += NODES
        tl.store(mine + lane, added)
        tl.debug_barrier()
    return mine, epoch


@triton.jit
def mixture(
    tilted, tiles, n, number, variance, decay, k, expected, vectors, mean, again,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Write the coefficients of the polynomials that :func:`at_items` takes to this program's
    board. Returns where, and N P(S = k); k and the expected S count free coins."""
    sums, epoch = _sums(
        tilted, tiles, n, vectors, mean, again, board, counter, epoch, g, G, GP, TILE, WIDE, INFER
    )
    place = sums + 2 * NODES
    return place, coefficients(sums, place, number, variance, decay, k, expected, INFER), epoch


@triton.jit
def coefficients(sums, place, number, variance, decay, k, expected, INFER: tl.constexpr):
    """Of power sums, to a place. Returns N P(S = k)."""
    powers = load8(sums)
    weights = powers
    if not INFER:
        weights = load8(sums + 8)
    total, across, within = of_sums(
        powers, weights, number, variance, decay, k, expected, tl.float64, INFER, 8
    )
    _store(place, across)
    if not INFER:
        _store(place + 8, within)
    tl.debug_barrier()
    return total


@triton.jit
def _store(place, values):
    a, b, c, d, e, f, g, h = values
    store8(place, a, b, c, d, e, f, g, h)


@triton.jit
def at_items(p, place, INFER: tl.constexpr):
    """As nodes.at_items, of coins with probabilities p."""
    across = polynomial(p, load8(place), 8)
    within = across
    if not INFER:
        within = polynomial(p, load8(place + 8), 8)
    return across, within
