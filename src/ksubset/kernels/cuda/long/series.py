"""Moments of a long row from power sums of its coins' probabilities, in one pass for all nodes
(see kernels/cpu/series.py), with seven powers."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long.board import BOARD, NODES, PHI, load_tiles, wait
from ksubset.kernels.cuda.moments import coins, half_angle, sine

_PI = tl.constexpr(3.141592653589793)


@triton.jit
def serves(top, mean, variance, decay):
    """Whether so many powers are enough: powers_for, with seven."""
    error = 4 * (2 * tl.log(top) - 1 - tl.log(variance) + 2.0794415)  # log 8
    error += tl.maximum(2.1972246, tl.log(mean / top) - 2.0794415)  # log 9
    near_zero = tl.where(variance < 32, top, 0.0) > 0.45
    return tl.where(near_zero, 0.0, -error) > decay + 2.5


@triton.jit
def heads(up, x):
    """p of coins that can fall both ways; of others 0: they are not counted."""
    return tl.where(up & (x > 0), 1 - x, x)


@triton.jit
def add8(
    a0, b0, c0, d0, e0, f0, g0, h0, a1, b1, c1, d1, e1, f1, g1, h1
):  # fmt: skip
    """Eight sums in one reduction."""
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1, f0 + f1, g0 + g1, h0 + h1


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
def _step(real, imag, a_real, a_imag, term):
    """Horner's for a series in -a."""
    return term - (a_real * real - a_imag * imag), -(a_real * imag + a_imag * real)


@triton.jit
def _horner(a_real, a_imag, c0, c1, c2, c3, c4, c5, c6, c7):
    """a (c0 - a c1 + a^2 c2 - ...)."""
    real, imag = a_real * 0 + c7, a_real * 0
    real, imag = _step(real, imag, a_real, a_imag, c6)
    real, imag = _step(real, imag, a_real, a_imag, c5)
    real, imag = _step(real, imag, a_real, a_imag, c4)
    real, imag = _step(real, imag, a_real, a_imag, c3)
    real, imag = _step(real, imag, a_real, a_imag, c2)
    real, imag = _step(real, imag, a_real, a_imag, c1)
    real, imag = _step(real, imag, a_real, a_imag, c0)
    return a_real * real - a_imag * imag, a_real * imag + a_imag * real


@triton.jit
def _rotation(angle):
    """Cosine and sine of any angle, in float64."""
    turns = angle * (1 / (2 * _PI))
    half = (turns - tl.floor(turns + 0.5)) * _PI
    s, c = sine(half), sine(0.5 * _PI - tl.abs(half))
    return 1 - 2 * s * s, 2 * s * c


@triton.jit
def _next(real, imag, a_real, a_imag):
    return a_imag * imag - a_real * real, -(a_real * imag + a_imag * real)


@triton.jit
def _coefficients(real, imag, a_real, a_imag, place):
    """The real parts of sums over nodes of (real + i imag) (-a)^m, m = 0 ... 7, to the board."""
    r0, i0 = real, imag
    r1, i1 = _next(r0, i0, a_real, a_imag)
    r2, i2 = _next(r1, i1, a_real, a_imag)
    r3, i3 = _next(r2, i2, a_real, a_imag)
    r4, i4 = _next(r3, i3, a_real, a_imag)
    r5, i5 = _next(r4, i4, a_real, a_imag)
    r6, i6 = _next(r5, i5, a_real, a_imag)
    r7, _i7 = _next(r6, i6, a_real, a_imag)
    r0, r1, r2, r3, r4, r5, r6, r7 = tl.reduce((r0, r1, r2, r3, r4, r5, r6, r7), 0, add8)
    store8(place, r0, r1, r2, r3, r4, r5, r6, r7)


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
    lane = tl.arange(0, NODES)
    within = 2 * lane < number
    node = tl.where(within, lane, 0).to(tl.float64)
    s, c = half_angle(node, number)
    a_real, a_imag = -2 * s * s, 2 * s * c
    p2, p3, p4, p5, p6, p7, p8, _unused = load8(sums)
    real, imag = _horner(
        a_real, a_imag, expected, p2 / 2, p3 / 3, p4 / 4, p5 / 5, p6 / 6, p7 / 7, p8 / 8
    )
    w_real, w_imag = _rotation(imag - node * k * (2 * _PI / number))
    used = within & (2 * variance * s * s < decay)
    modulus = tl.where(used, tl.exp(real), 0.0) * tl.where(lane > 0, 2.0, 1.0)
    w_real, w_imag = w_real * modulus, w_imag * modulus
    total = tl.sum(w_real, 0)
    w_real, w_imag = w_real / total, w_imag / total
    if INFER:
        u_real, u_imag = w_real, w_imag
    else:
        w0, w1, w2, w3, w4, w5, w6, w7 = load8(sums + 8)
        g_real, g_imag = _horner(a_real, a_imag, w0, w1, w2, w3, w4, w5, w6, w7)
        g_real = g_real - tl.sum(w_real * g_real - w_imag * g_imag, 0)
        u_real, u_imag = w_real * g_real - w_imag * g_imag, w_real * g_imag + w_imag * g_real
        t_real = w_real + (w_real * a_real - w_imag * a_imag)
        t_imag = w_imag + (w_real * a_imag + w_imag * a_real)
        _coefficients(t_real, t_imag, a_real, a_imag, place + 8)
    u_real, u_imag = u_real * a_real - u_imag * a_imag, u_real * a_imag + u_imag * a_real
    _coefficients(u_real, u_imag, a_real, a_imag, place)
    tl.debug_barrier()
    return total


@triton.jit
def _polynomial(p, c0, c1, c2, c3, c4, c5, c6, c7):
    return ((((((c7 * p + c6) * p + c5) * p + c4) * p + c3) * p + c2) * p + c1) * p + c0


@triton.jit
def at_items(p, place, INFER: tl.constexpr):
    """As nodes.at_items, of coins with probabilities p."""
    c0, c1, c2, c3, c4, c5, c6, c7 = load8(place)
    across = _polynomial(
        p, c0.to(tl.float32), c1.to(tl.float32), c2.to(tl.float32), c3.to(tl.float32),
        c4.to(tl.float32), c5.to(tl.float32), c6.to(tl.float32), c7.to(tl.float32),
    )  # fmt: skip
    within = across
    if not INFER:
        c0, c1, c2, c3, c4, c5, c6, c7 = load8(place + 8)
        within = _polynomial(
            p, c0.to(tl.float32), (2 * c1).to(tl.float32), (3 * c2).to(tl.float32),
            (4 * c3).to(tl.float32), (5 * c4).to(tl.float32), (6 * c5).to(tl.float32),
            (7 * c6).to(tl.float32), (8 * c7).to(tl.float32),
        )  # fmt: skip
    return across, within
