"""Moments of a long row node by node, two nodes a pass: for rows that power sums do not serve, and
for what is left of a row in sampling."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.angles import half_angle, rotation
from ksubset.kernels.cuda.long.board import BOARD, COEFFICIENTS, NODES, PHI, load_tiles, wait
from ksubset.kernels.cuda.moments import coins


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def spectrum(
    source, base, tiles, first, stride, n, number, variance, decay, weights, mean, again,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """E exp(i omega (S - ups)) at all nodes, (NODES,), and if WEIGHTED the deviations
    sum_j v_j (r_j - p_j) of weights v, less mean and again."""
    side = ((epoch // G) % 2) * (G * BOARD)
    mine = board + side + g * BOARD + PHI
    step_sine, step_cosine = half_angle(number * 0 + 1, number)
    s, c = number * 0, number * 0 + 1
    nodes = tl.zeros([], tl.int32)
    node = tl.zeros([], tl.int32)
    active = variance >= 0
    while active:
        # Two nodes in one pass: their coins are the same. The second may be one too many.
        t_s, t_c = s * step_cosine + c * step_sine, c * step_cosine - s * step_sine
        real, imag = tl.full([WIDE * TILE], 1.0, tl.float64), tl.zeros([WIDE * TILE], tl.float64)
        t_real, t_imag = (
            tl.full([WIDE * TILE], 1.0, tl.float64),
            tl.zeros([WIDE * TILE], tl.float64),
        )
        g_real, g_imag = tl.zeros([WIDE * TILE], tl.float32), tl.zeros([WIDE * TILE], tl.float32)
        h_real, h_imag = tl.zeros([WIDE * TILE], tl.float32), tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, t = load_tiles(source, i, first, stride, tiles, n, TILE, WIDE)
            up, x, pq, skew = coins(t + base, inside)
            wide = x.to(tl.float64)
            signed = tl.where(up, -wide, wide)
            real, imag = _multiply(real, imag, 1 - wide * (2 * s * s), signed * (2 * s * c))
            t_real, t_imag = _multiply(
                t_real, t_imag, 1 - wide * (2 * t_s * t_s), signed * (2 * t_s * t_c)
            )
            if WEIGHTED:
                v = tl.load(weights + at, inside, 0.0)
                v = tl.where(pq > 0, (v - mean) - again, 0.0) * pq
                square = skew * skew
                ratio = v / ((c * c).to(tl.float32) + (s * s).to(tl.float32) * square)
                g_real += ratio * skew
                g_imag += ratio
                ratio = v / ((t_c * t_c).to(tl.float32) + (t_s * t_s).to(tl.float32) * square)
                h_real += ratio * skew
                h_imag += ratio
        real_part, imag_part = tl.reduce((real, imag), 0, _multiply)
        tl.store(mine + node, real_part)
        tl.store(mine + NODES + node, imag_part)
        real_part, imag_part = tl.reduce((t_real, t_imag), 0, _multiply)
        tl.store(mine + node + 1, real_part)
        tl.store(mine + NODES + node + 1, imag_part)
        if WEIGHTED:
            tl.store(mine + 2 * NODES + node, tl.sum(g_real, 0).to(tl.float64))
            tl.store(mine + 3 * NODES + node, tl.sum(g_imag, 0).to(tl.float64))
            tl.store(mine + 2 * NODES + node + 1, tl.sum(h_real, 0).to(tl.float64))
            tl.store(mine + 3 * NODES + node + 1, tl.sum(h_imag, 0).to(tl.float64))
        reach = tl.where(2 * (node + 1) < number, 2 * variance * t_s * t_s, decay)
        nodes = node + tl.where(reach < decay, 2, 1)
        s, c = t_s * step_cosine + t_c * step_sine, t_c * step_cosine - t_s * step_sine
        node += 2
        following = tl.where(2 * node < number, 2 * variance * s * s, decay)
        following = tl.where(nodes == node, following, decay)
        active = tl.where(node < NODES, following, decay) < decay
    epoch = wait(counter, epoch, G)
    who = tl.arange(0, GP)
    lane = tl.arange(0, NODES)
    all_of = board + side + PHI + who[:, None] * BOARD + lane[None, :]
    use = (who < G)[:, None] & (lane < nodes)[None, :]
    real = tl.load(all_of, use, 1.0, volatile=True)
    imag = tl.load(all_of + NODES, use, 0.0, volatile=True)
    real, imag = tl.reduce((real, imag), 0, _multiply)
    twice = tl.where(lane < nodes, tl.where(lane > 0, 2.0, 1.0), 0.0)
    half_sine, half_cosine = half_angle(tl.where(lane < nodes, lane, 0).to(tl.float64), number)
    dev_real = real * 0
    dev_imag = real * 0
    if WEIGHTED:
        dev_real = tl.sum(tl.load(all_of + 2 * NODES, use, 0.0, volatile=True), 0)
        dev_imag = tl.sum(tl.load(all_of + 3 * NODES, use, 0.0, volatile=True), 0)
        dev_real = dev_real * (2 * half_sine * half_sine)
        dev_imag = dev_imag * (2 * half_sine * half_cosine)
    return twice * real, twice * imag, half_sine, half_cosine, dev_real, dev_imag, nodes, epoch


@triton.jit
def mixture(
    tilted, tiles, n, number, variance, decay, k, vectors, mean, again,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Write what items need of every node to this program's board, for :func:`at_items`. Returns
    where, the number of nodes, and N P(S = k); k counts from the likely heads."""
    real, imag, s, c, dev_real, dev_imag, nodes, epoch = spectrum(
        tilted, 0.0, tiles, 0, 1, n, number, variance, decay, vectors, mean, again,
        board, counter, epoch, g, G, GP, TILE, WIDE, not INFER,
    )  # fmt: skip
    lane = tl.arange(0, NODES)
    turn_real, turn_imag = rotation(lane.to(tl.float64) * k, number)
    w_real = real * turn_real + imag * turn_imag
    w_imag = imag * turn_real - real * turn_imag
    total = tl.sum(w_real, 0)
    w_real, w_imag = w_real / total, w_imag / total
    centre = tl.sum(w_real * dev_real - w_imag * dev_imag, 0)
    dev_real = dev_real - centre
    # A board of one's own needs no waiting.
    mine = board + ((epoch // G) % 2) * (G * BOARD) + g * BOARD + COEFFICIENTS
    tl.store(mine + lane, s * s)
    tl.store(mine + NODES + lane, c * c)
    if INFER:
        tl.store(mine + 2 * NODES + lane, 2 * s * s * w_real)
        tl.store(mine + 3 * NODES + lane, -2 * s * c * w_imag)
    else:
        tl.store(mine + 2 * NODES + lane, 2 * s * s * (w_real * dev_real - w_imag * dev_imag))
        tl.store(mine + 3 * NODES + lane, -2 * s * c * (w_real * dev_imag + w_imag * dev_real))
        tl.store(mine + 4 * NODES + lane, w_real * c * c)
        tl.store(mine + 5 * NODES + lane, 2 * s * c * w_imag)
        tl.store(mine + 6 * NODES + lane, -w_real * s * s)
    tl.debug_barrier()
    return mine, nodes, total, epoch


@triton.jit
def at_items(skew, mine, nodes, INFER: tl.constexpr):
    """The two parts of the product at items, over pq (INFER: the correction of marginals)."""
    square = skew * skew
    across = skew * 0
    within = skew * 0
    for node in range(nodes):
        s2 = tl.load(mine + node).to(tl.float32)
        c2 = tl.load(mine + NODES + node).to(tl.float32)
        inverse = 1 / (c2 + s2 * square)
        linear = tl.load(mine + 2 * NODES + node).to(tl.float32)
        constant = tl.load(mine + 3 * NODES + node).to(tl.float32)
        across += inverse * (linear * skew + constant)
        if not INFER:
            level = tl.load(mine + 4 * NODES + node).to(tl.float32)
            slope = tl.load(mine + 5 * NODES + node).to(tl.float32)
            bend = tl.load(mine + 6 * NODES + node).to(tl.float32)
            within += (level + skew * (slope + bend * skew)) * inverse * inverse
    return across, within
