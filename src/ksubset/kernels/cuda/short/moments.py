"""Moments of rows in registers, by the spectral method (see kernels/spectral.py).

Three steps, each of which has work for all lanes and waits for the others once:

1. what a whole row has to know, by sums over the tile (R, N) of rows and items;
2. the characteristic function and the weights of the nodes (docs/mathematics.md, section 3): a lane
   has one node of a row and multiplies up the factors of a part of its items;
3. each item's sums over the nodes, on the tile again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.moments import DECAY, coins, half_angle, nodes_for, rotation
from ksubset.kernels.cuda.tilt import add2, add3

_INF = tl.constexpr(float("inf"))
NODES = 16  # of which a row uses 12 at most
_USED = tl.constexpr(12)
# What the third step needs of a node.
_NUMBERS = tl.constexpr(5)


def words(block: int) -> int:
    """Numbers of working space for a row: see :func:`_share`."""
    return 0 if in_lanes(block) else 5 * 12


def in_lanes(block: int) -> bool:
    """Whether nodes' numbers are passed on from lane to lane: rows so short would need several
    times their own memory for them."""
    return block <= 32


@triton.jit
def survey(t, k, inside):
    """Of tilted rows (R, N) and k (R, 1): the coins' parts up, x, pq and skew; the variance, the
    heads beyond those of coins that likely show them, and the number of nodes."""
    up, x, pq, skew = coins(t, inside)
    free = (tl.abs(t) < _INF) & inside
    variance, free_count, ups = tl.reduce(
        (pq, free.to(tl.float32), (up & inside).to(tl.float32)), 1, add3, keep_dims=True
    )
    number = nodes_for(tl.where(variance == variance, variance, 0.0), free_count, 1)
    return up, x, pq, skew, variance, k.to(tl.float32) - ups, number


@triton.jit
def centre(v, pq, variance):
    """v less its mean weighted by pq: Cov 1 = 0. Items without a choice have none."""
    alive = pq > 0
    v = tl.where(alive, v, 0.0)
    weighted = tl.sum(v * pq, 1, keep_dims=True)
    return tl.where(alive, v - weighted / tl.maximum(variance, 1e-37), 0.0)


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _multiply_and_add(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def nodes_of(
    signed, weights, variance, heads, number, n,
    R: tl.constexpr, PARTS: tl.constexpr, NODES: tl.constexpr, WIDE: tl.constexpr,
    PRODUCT: tl.constexpr,
):  # fmt: skip
    """For every node, (R, NODES): the numbers that :func:`at_items` needs, and the sum P(S = k) N,
    (R, 1). signed and weights point at the rows' first items, (R, 1): min(p, q), negative where
    heads are likely, and pq v.

    WIDE multiplies in float64: a thousand equal factors round the same way, and P(S = k) shows it;
    its ratios, which are the moments, do not.
    """
    node = tl.arange(0, NODES)[None, :].to(tl.float64)
    wide = number.to(tl.float64)
    used = (2 * node < wide) & (node < _USED)
    node = tl.where(used, node, 0.0)
    s_wide, c_wide = half_angle(node, wide)
    turn_real, turn_imag = rotation(node * heads.to(tl.float64), wide)
    s, c = s_wide.to(tl.float32), c_wide.to(tl.float32)
    used = used & (2 * variance * s * s < DECAY)
    down, turned = 2 * s_wide * s_wide, 2 * s_wide * c_wide
    if not WIDE:
        down, turned = down.to(tl.float32), turned.to(tl.float32)
    down, turned = down[:, None, :], turned[:, None, :]
    bend = (s * s)[:, None, :]

    per = (n + PARTS - 1) // PARTS
    first = (tl.arange(0, PARTS) * per)[None, :, None]
    end = tl.minimum(first + per, n) + tl.zeros([R, PARTS, NODES], tl.int32)
    place = signed[:, :, None] + first + tl.zeros([R, PARTS, NODES], tl.int32)
    other = weights[:, :, None] + first + tl.zeros([R, PARTS, NODES], tl.int32)
    at = first + tl.zeros([R, PARTS, NODES], tl.int32)
    real = tl.zeros([R, PARTS, NODES], down.dtype) + 1
    imag = real * 0
    g_real = tl.zeros([R, PARTS, NODES], tl.float32)
    g_imag = g_real
    for _i in range(per):
        y = tl.load(place, at < end, 0.0)
        x = tl.abs(y)
        factor_real, factor_imag = 1 - x.to(down.dtype) * down, y.to(down.dtype) * turned
        new = real * factor_real - imag * factor_imag
        imag = real * factor_imag + imag * factor_real
        real = new
        if PRODUCT:
            w = tl.load(other, at < end, 0.0)
            skew = tl.where(y < 0, 1 - 2 * x, 2 * x - 1)
            ratio = w / (1 - bend * (1 - skew * skew))
            g_real += ratio * skew
            g_imag += ratio
            other += 1
        place += 1
        at += 1
    if PRODUCT:
        real, imag, g_real, g_imag = tl.reduce(
            (real, imag, g_real, g_imag), 1, _multiply_and_add
        )
    else:
        real, imag = tl.reduce((real, imag), 1, _multiply)
        g_real = s * 0
        g_imag = g_real
    twice = tl.where(used, tl.where(node > 0, 2.0, 1.0), 0.0).to(real.dtype)
    turn_real, turn_imag = turn_real.to(real.dtype), turn_imag.to(real.dtype)
    w_real = twice * (real * turn_real + imag * turn_imag)
    w_imag = twice * (imag * turn_real - real * turn_imag)
    total = tl.sum(w_real, 1, keep_dims=True)
    w_real, w_imag = (w_real / total).to(tl.float32), (w_imag / total).to(tl.float32)
    across, turning = 2 * s * s, 2 * s * c
    u_real, u_imag = w_real, w_imag
    if PRODUCT:
        g_real, g_imag = g_real * across, g_imag * turning
        u_real = w_real * g_real - w_imag * g_imag
        u_imag = w_real * g_imag + w_imag * g_real
        mean = tl.sum(u_real, 1, keep_dims=True)
        u_real -= mean * w_real
        u_imag -= mean * w_imag
    count = tl.max(tl.max(tl.where(used, node, 0.0).to(tl.int32) + 1, 1), 0)
    return (
        across * u_real, turning * u_imag, turning * w_imag, s * s * w_real, w_real, s * s,
        count, total,
    )  # fmt: skip


@triton.jit
def _share(value, i: tl.constexpr, shared, real, NODES: tl.constexpr):
    """Write a node's i-th number to the row's working space."""
    node = tl.arange(0, NODES)[None, :]
    tl.store(shared + i * _USED + node, value, real & (node < _USED))


@triton.jit
def _of_node(value, i: tl.constexpr, shared, v, IN_LANES: tl.constexpr, NODES: tl.constexpr):
    """The i-th number of node v, (R, 1)."""
    if IN_LANES:
        mine = tl.arange(0, NODES)[None, :] == v
        found = tl.sum(tl.where(mine, value, 0.0), 1, keep_dims=True)
    else:
        found = tl.load(shared + i * _USED + v)
    return found


@triton.jit
def at_items(
    pq, skew, nodes, shared, real,
    NODES: tl.constexpr, PRODUCT: tl.constexpr, IN_LANES: tl.constexpr,
):  # fmt: skip
    """Each item's sums over nodes, on the tile: that of the marginals' correction or, with PRODUCT,
    of the covariance product across items, and that within an item (docs/mathematics.md, section
    3). shared points at the rows' working space, (R, 1), of rows that are real."""
    across, turning, around, bent, weight, bend, count, _total = nodes
    if not IN_LANES:
        _share(across, 0, shared, real, NODES)
        _share(turning, 1, shared, real, NODES)
        _share(bend, 2, shared, real, NODES)
        if PRODUCT:
            _share(around, 3, shared, real, NODES)
            _share(weight, 4, shared, real, NODES)
        tl.debug_barrier()
    pq4 = 4 * pq
    square = 1 + skew * skew
    sums = pq * 0
    within = pq * 0
    for v in range(count):
        a = _of_node(across, 0, shared, v, IN_LANES, NODES)
        b = _of_node(turning, 1, shared, v, IN_LANES, NODES)
        f = _of_node(bend, 2, shared, v, IN_LANES, NODES)
        inverse = 1 / (1 - f * pq4)
        sums += inverse * (skew * a - b)
        if PRODUCT:
            y = _of_node(around, 3, shared, v, IN_LANES, NODES)
            w = _of_node(weight, 4, shared, v, IN_LANES, NODES)
            within += (w + (skew * y - (w * f) * square)) * (inverse * inverse)
    return sums, within
