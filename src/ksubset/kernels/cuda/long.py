"""Triton kernels for rows that do not fit in registers: in tiles, by several programs per row.

A row is cut into tiles, and they are worked on several at a time: loads of many take hardly longer
than of one. Program g of the row's G takes every G-th such batch. What a whole row must know is
added up tile by tile, written to a board that the row's programs share, and read by all of them
after a barrier; each adds up the parts in the same order, so that all go on with the same numbers.
One launch does everything: no step waits for the host. Where G > 1 all programs must be on the
chip at once, which a cooperative launch guarantees.

The mathematics is that of the other files. A sample is drawn by tossing all tiles but every
eighth, which accept or reject the outcome (kernels/halving.py has halves where these are eighths),
until one tile is left, which is drawn in registers.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher
from ksubset.kernels.cuda.moments import coins, half_angle, nodes_for, rotation
from ksubset.kernels.cuda.sampling import accept, draw, four, one_by_one, thresholds, toss4
from ksubset.kernels.cuda.tilt import add3, bisect


class Shape(NamedTuple):
    """How a row is cut up."""

    tile: int  # items
    wide: int  # tiles worked on at a time
    warps: int


MOMENTS = Shape(tile=2048, wide=1, warps=16)
SAMPLES = Shape(tile=256, wide=8, warps=16)
_INF = tl.constexpr(float("inf"))
_STEPS = tl.constexpr(64)
_TAIL, _DECAY = tl.constexpr(16.0), tl.constexpr(16.0)
# As in sampling.py
_HALVING_TAIL, _HALVING_DECAY = tl.constexpr(30.0), tl.constexpr(19.0)
_TRIES = tl.constexpr(64)
_NODES = tl.constexpr(32)
# The board of a program: sums, then the characteristic function, then coefficients of nodes.
_SUMS, _PHI, _COEFFICIENTS, _BOARD = (
    tl.constexpr(0), tl.constexpr(8), tl.constexpr(8 + 4 * 32), tl.constexpr(8 + 12 * 32),
)  # fmt: skip
_GOLDEN = tl.constexpr(0x1E3779B97F4A7C15)


@triton.jit
def _wait(counter, epoch, G: tl.constexpr):
    """All programs of the row have come this far, and what they wrote can be read."""
    tl.debug_barrier()
    epoch += G
    if G > 1:
        tl.atomic_add(counter, 1, sem="acq_rel")
        while tl.atomic_add(counter, 0, sem="acq_rel") < epoch:
            pass
        tl.debug_barrier()
    return epoch


@triton.jit
def _share4(a, b, c, d, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr):
    """Four sums over the row's programs. Boards alternate: nobody writes on one being read."""
    a, b, c, d = a.to(tl.float64), b.to(tl.float64), c.to(tl.float64), d.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * _BOARD)
        mine = board + side + g * _BOARD
        tl.store(mine + 0, a)
        tl.store(mine + 1, b)
        tl.store(mine + 2, c)
        tl.store(mine + 3, d)
        epoch = _wait(counter, epoch, G)
        who = tl.arange(0, GP)
        all_of = board + side + who * _BOARD
        a = tl.sum(tl.load(all_of + 0, who < G, 0.0, volatile=True), 0)
        b = tl.sum(tl.load(all_of + 1, who < G, 0.0, volatile=True), 0)
        c = tl.sum(tl.load(all_of + 2, who < G, 0.0, volatile=True), 0)
        d = tl.sum(tl.load(all_of + 3, who < G, 0.0, volatile=True), 0)
    return a, b, c, d, epoch


@triton.jit
def _share_extremes(most, least, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr):
    most, least = most.to(tl.float64), least.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * _BOARD)
        tl.store(board + side + g * _BOARD, most)
        tl.store(board + side + g * _BOARD + 1, least)
        epoch = _wait(counter, epoch, G)
        who = tl.arange(0, GP)
        all_of = board + side + who * _BOARD
        most = tl.max(tl.load(all_of, who < G, -_INF, volatile=True), 0)
        least = tl.min(tl.load(all_of + 1, who < G, _INF, volatile=True), 0)
    return most, least, epoch


@triton.jit
def _load(source, i, first, stride, tiles, n, TILE: tl.constexpr, WIDE: tl.constexpr):
    """The i-th WIDE of so many tiles numbered first, first + stride, ...: places, which of them
    exist, values."""
    lane = tl.arange(0, WIDE * TILE)
    tile = i * WIDE + lane // TILE
    at = (first + tile * stride) * TILE + lane % TILE
    inside = (tile < tiles) & (at < n)
    return at, inside, tl.load(source + at, inside, -_INF)


@triton.jit
def _solve(
    source, base, tiles, first, stride, n, chosen, count, start, low, high, is_open,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The shift of source + base for the given tiles (see tilt.solve), all in float64 but the
    tiles. Infinite logits count as none."""
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    c = tl.minimum(tl.maximum(start, low), high)
    step = chosen * 0
    best = c
    least = chosen * 0 + _INF
    deviation = chosen * 0 + 1
    close = is_open < 0
    running = is_open > 0
    while running:
        signed = tl.zeros([WIDE * TILE], tl.float32)
        spread = tl.zeros([WIDE * TILE], tl.float32)
        likely = tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            _at, inside, t = _load(source, i, first, stride, tiles, n, TILE, WIDE)
            free = inside & (tl.abs(t) < _INF)
            t = (t + base) + c.to(tl.float32)
            up = t > 0
            e = tl.exp(-tl.abs(t))
            x = tl.where(free, e / (1 + e), 0.0)
            signed += tl.where(up, -x, x)
            spread += x * (1 - x)
            likely += (up & free).to(tl.float32)
        a, b, d = tl.reduce((signed, spread, likely), 0, add3)
        a, variance, d, _unused, epoch = _share4(a, b, d, d, board, counter, epoch, g, G, GP)
        excess = a + (d - chosen)
        mean_rare = tl.maximum(tl.where(few, excess, -excess) + rare, 1e-30)
        move = tl.log(rare / mean_rare) * mean_rare / tl.maximum(variance, 1e-30)
        newton = c + tl.where(few, move, -move)
        deviation = tl.maximum(tl.sqrt(variance), 1.0)
        close = tl.abs(excess) <= 0.05 * deviation
        polish = excess / tl.maximum(variance, 1e-37)
        polish = tl.minimum(tl.maximum(polish, -2.0), 2.0)
        best = tl.where(tl.abs(excess) < least, c, best)
        least = tl.minimum(least, tl.abs(excess))
        low = tl.where(excess < 0, tl.maximum(low, c), low)
        high = tl.where(excess > 0, tl.minimum(high, c), high)
        inner = (newton > low) & (newton < high) & (step - 3 * tl.floor(step / 3) < 1.5)
        middle = bisect(low.to(tl.float32), high.to(tl.float32)).to(tl.float64)
        c = tl.where(close, c - polish, tl.where(inner, newton, middle))
        step += 1
        running = tl.where(close, step * 0, _STEPS - step) > 0.5
    return tl.where(close, c, best), deviation, epoch


@triton.jit
def _tilt(
    logits, k, tilted, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the tilted row. Returns whether it is valid (1 or 0), how many of its free items are
    to be chosen, and the shift."""
    tiles = (n + TILE - 1) // TILE
    free_sum = tl.zeros([WIDE * TILE], tl.float32)
    forced_sum = tl.zeros([WIDE * TILE], tl.float32)
    nan_sum = tl.zeros([WIDE * TILE], tl.float32)
    most = tl.full([WIDE * TILE], -_INF, tl.float32)
    least = tl.full([WIDE * TILE], _INF, tl.float32)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        _at, inside, t = _load(logits, i, 0, 1, tiles, n, TILE, WIDE)
        free = inside & (tl.abs(t) < _INF)
        free_sum += free.to(tl.float32)
        forced_sum += (inside & (t == _INF)).to(tl.float32)
        nan_sum += (inside & (t != t)).to(tl.float32)
        most = tl.where(free, tl.maximum(most, t), most)
        least = tl.where(free, tl.minimum(least, t), least)
    a, b, d = tl.reduce((free_sum, forced_sum, nan_sum), 0, add3)
    count, forced, missing, _unused, epoch = _share4(a, b, d, d, board, counter, epoch, g, G, GP)
    highest, lowest, epoch = _share_extremes(
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

    low_mass = tl.zeros([WIDE * TILE], tl.float32)
    high_mass = tl.zeros([WIDE * TILE], tl.float32)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        _at, inside, t = _load(logits, i, 0, 1, tiles, n, TILE, WIDE)
        free = inside & (tl.abs(t) < _INF)
        low_mass += tl.where(free, tl.exp(t - highest.to(tl.float32)), 0.0)
        high_mass += tl.where(free, tl.exp(lowest.to(tl.float32) - t), 0.0)
    a, b = tl.sum(low_mass, 0), tl.sum(high_mass, 0)
    a, b, _unused, _unused2, epoch = _share4(a, b, a, a, board, counter, epoch, g, G, GP)
    odds = tl.log(chosen) - tl.log(total - chosen)
    start = tl.where(
        chosen <= total * 0.5,
        tl.log(chosen) - tl.log(tl.maximum(a, 1e-37)) - highest,
        tl.log(tl.maximum(b, 1e-37)) - lowest - tl.log(total - chosen),
    )
    first, deviation, epoch = _solve(
        logits, 0.0, tiles, 0, 1, n, chosen, total, start, odds - highest, odds - lowest, is_open,
        board, counter, epoch, g, G, GP, TILE, WIDE,
    )  # fmt: skip
    base = first.to(tl.float32)
    reach = 1 + 2e-6 * tl.abs(first)
    rough = tl.where(tl.abs(first) * deviation > 1e4, is_open, 0.0)
    second, _deviation, epoch = _solve(
        logits, base, tiles, 0, 1, n, chosen, total, 0.0 * first, -reach, reach, rough,
        board, counter, epoch, g, G, GP, TILE, WIDE,
    )  # fmt: skip
    rest = second.to(tl.float32)
    settled = tl.where(all_free > 0, _INF, -_INF)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, theta = _load(logits, i, 0, 1, tiles, n, TILE, WIDE)
        t = tl.where(is_open > 0, (theta + base) + rest, settled)
        t = tl.where(tl.abs(theta) < _INF, t, theta)
        t = tl.where(valid > 0, t, float("nan"))
        tl.store(tilted + at, t, inside)
    shift = tl.where(is_open > 0, base.to(tl.float64) + rest.to(tl.float64), 0.0)
    return valid, free_k, shift, epoch


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _spectrum(
    source, base, tiles, first, stride, n, number, variance, decay, weights, mean, again,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """E exp(i omega (S - ups)) at all nodes, (NODES,), and if WEIGHTED the deviations
    sum_j v_j (r_j - p_j) of weights v, less mean and again."""
    side = ((epoch // G) % 2) * (G * _BOARD)
    mine = board + side + g * _BOARD + _PHI
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
            at, inside, t = _load(source, i, first, stride, tiles, n, TILE, WIDE)
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
        tl.store(mine + _NODES + node, imag_part)
        real_part, imag_part = tl.reduce((t_real, t_imag), 0, _multiply)
        tl.store(mine + node + 1, real_part)
        tl.store(mine + _NODES + node + 1, imag_part)
        if WEIGHTED:
            tl.store(mine + 2 * _NODES + node, tl.sum(g_real, 0).to(tl.float64))
            tl.store(mine + 3 * _NODES + node, tl.sum(g_imag, 0).to(tl.float64))
            tl.store(mine + 2 * _NODES + node + 1, tl.sum(h_real, 0).to(tl.float64))
            tl.store(mine + 3 * _NODES + node + 1, tl.sum(h_imag, 0).to(tl.float64))
        reach = tl.where(2 * (node + 1) < number, 2 * variance * t_s * t_s, decay)
        nodes = node + tl.where(reach < decay, 2, 1)
        s, c = t_s * step_cosine + t_c * step_sine, t_c * step_cosine - t_s * step_sine
        node += 2
        following = tl.where(2 * node < number, 2 * variance * s * s, decay)
        following = tl.where(nodes == node, following, decay)
        active = tl.where(node < _NODES, following, decay) < decay
    epoch = _wait(counter, epoch, G)
    who = tl.arange(0, GP)
    lane = tl.arange(0, _NODES)
    all_of = board + side + _PHI + who[:, None] * _BOARD + lane[None, :]
    use = (who < G)[:, None] & (lane < nodes)[None, :]
    real = tl.load(all_of, use, 1.0, volatile=True)
    imag = tl.load(all_of + _NODES, use, 0.0, volatile=True)
    real, imag = tl.reduce((real, imag), 0, _multiply)
    twice = tl.where(lane < nodes, tl.where(lane > 0, 2.0, 1.0), 0.0)
    half_sine, half_cosine = half_angle(tl.where(lane < nodes, lane, 0).to(tl.float64), number)
    dev_real = real * 0
    dev_imag = real * 0
    if WEIGHTED:
        dev_real = tl.sum(tl.load(all_of + 2 * _NODES, use, 0.0, volatile=True), 0)
        dev_imag = tl.sum(tl.load(all_of + 3 * _NODES, use, 0.0, volatile=True), 0)
        dev_real = dev_real * (2 * half_sine * half_sine)
        dev_imag = dev_imag * (2 * half_sine * half_cosine)
    return twice * real, twice * imag, half_sine, half_cosine, dev_real, dev_imag, nodes, epoch


@triton.jit
def _moments(
    tilted, k, vectors, marginals, product, theta, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Store marginals (INFER) or the covariance product of a valid row. Returns log P(S = k), the
    sums of log(1 - x), of likely logits and of the cross-entropy, and the number of likely heads.
    """
    tiles = (n + TILE - 1) // TILE
    spread = tl.zeros([WIDE * TILE], tl.float32)
    ups_sum = tl.zeros([WIDE * TILE], tl.float32)
    free_sum = tl.zeros([WIDE * TILE], tl.float32)
    weighted = tl.zeros([WIDE * TILE], tl.float64)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, t = _load(tilted, i, 0, 1, tiles, n, TILE, WIDE)
        up, _x, pq, _skew = coins(t, inside)
        spread += pq
        ups_sum += (up & inside).to(tl.float32)
        free_sum += (inside & (tl.abs(t) < _INF)).to(tl.float32)
        if not INFER:
            v = tl.load(vectors + at, inside, 0.0).to(tl.float64)
            weighted += tl.where(pq > 0, v * pq.to(tl.float64), 0.0)
    a, b, d = tl.reduce((spread, ups_sum, free_sum), 0, add3)
    variance, ups, free, mean, epoch = _share4(
        a, b, d, tl.sum(weighted, 0), board, counter, epoch, g, G, GP
    )
    # In two parts: one of them alone has no room for the digits of a mean far larger than the
    # spread.
    centre = mean / tl.maximum(variance, 1e-37)
    mean = centre.to(tl.float32)
    again = (centre - mean.to(tl.float64)).to(tl.float32)
    number = nodes_for(variance, free, _TAIL)
    real, imag, s, c, dev_real, dev_imag, nodes, epoch = _spectrum(
        tilted, 0.0, tiles, 0, 1, n, number, variance, _DECAY, vectors, mean, again,
        board, counter, epoch, g, G, GP, TILE, WIDE, not INFER,
    )  # fmt: skip
    lane = tl.arange(0, _NODES)
    turn_real, turn_imag = rotation(lane.to(tl.float64) * (k.to(tl.float64) - ups), number)
    w_real = real * turn_real + imag * turn_imag
    w_imag = imag * turn_real - real * turn_imag
    total = tl.sum(w_real, 0)
    w_real, w_imag = w_real / total, w_imag / total
    centre = tl.sum(w_real * dev_real - w_imag * dev_imag, 0)
    dev_real = dev_real - centre
    # Where each item finds what it needs of a node: a board of one's own needs no waiting.
    mine = board + ((epoch // G) % 2) * (G * _BOARD) + g * _BOARD + _COEFFICIENTS
    tl.store(mine + lane, s * s)
    tl.store(mine + _NODES + lane, c * c)
    if INFER:
        tl.store(mine + 2 * _NODES + lane, 2 * s * s * w_real)
        tl.store(mine + 3 * _NODES + lane, -2 * s * c * w_imag)
    else:
        tl.store(mine + 2 * _NODES + lane, 2 * s * s * (w_real * dev_real - w_imag * dev_imag))
        tl.store(mine + 3 * _NODES + lane, -2 * s * c * (w_real * dev_imag + w_imag * dev_real))
        tl.store(mine + 4 * _NODES + lane, w_real * c * c)
        tl.store(mine + 5 * _NODES + lane, 2 * s * c * w_imag)
        tl.store(mine + 6 * _NODES + lane, -w_real * s * s)
    tl.debug_barrier()
    log_tails = tl.zeros([WIDE * TILE], tl.float64)
    likely = tl.zeros([WIDE * TILE], tl.float64)
    cross = tl.zeros([WIDE * TILE], tl.float64)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, t = _load(tilted, i, 0, 1, tiles, n, TILE, WIDE)
        up, x, pq, skew = coins(t, inside)
        square = skew * skew
        across = tl.zeros([WIDE * TILE], tl.float32)
        within = tl.zeros([WIDE * TILE], tl.float32)
        for node in range(nodes):
            s2 = tl.load(mine + node).to(tl.float32)
            c2 = tl.load(mine + _NODES + node).to(tl.float32)
            inverse = 1 / (c2 + s2 * square)
            linear = tl.load(mine + 2 * _NODES + node).to(tl.float32)
            constant = tl.load(mine + 3 * _NODES + node).to(tl.float32)
            across += inverse * (linear * skew + constant)
            if not INFER:
                level = tl.load(mine + 4 * _NODES + node).to(tl.float32)
                slope = tl.load(mine + 5 * _NODES + node).to(tl.float32)
                bend = tl.load(mine + 6 * _NODES + node).to(tl.float32)
                within += (level + skew * (slope + bend * skew)) * inverse * inverse
        if INFER:
            y = x + tl.where(up, -pq, pq) * across
            y = tl.minimum(tl.maximum(y, 0.0), 1.0)
            tl.store(marginals + at, tl.where(up, 1 - y, y), inside)
            given = tl.load(theta + at, inside, 0.0)
            far = tl.where(tl.abs(t) < _INF, tl.abs(t), 0.0) * y
            log_tails += tl.log(1 - x.to(tl.float64))
            likely += tl.where(up & (tl.abs(given) < _INF), given, 0.0).to(tl.float64)
            cross += tl.where(inside, far, 0.0).to(tl.float64)
        else:
            v = tl.load(vectors + at, inside, 0.0)
            v = tl.where(pq > 0, (v - mean) - again, 0.0)
            tl.store(product + at, pq * (across + v * within), inside)
    a, b, d = tl.sum(log_tails, 0), tl.sum(likely, 0), tl.sum(cross, 0)
    if INFER:
        a, b, d, _unused, epoch = _share4(a, b, d, d, board, counter, epoch, g, G, GP)
    return tl.log(total / number), a, b, d, ups, epoch


@triton.jit
def _fill(place, value, n, g, G: tl.constexpr, TILE: tl.constexpr):
    for i in range(g, (n + TILE - 1) // TILE, G):
        at = i * TILE + tl.arange(0, TILE)
        tl.store(place + at, tl.zeros([TILE], tl.float32) + value, at < n)


@triton.jit
def infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies,
    boards, counters, n, G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """See kernels.infer."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = boards + row * (2 * G * _BOARD), counters + row
    k = tl.load(counts + row)
    epoch = tl.zeros([], tl.int32)
    valid, _chosen, shift, epoch = _tilt(
        logits + row * n, k, tilted + row * n, n, board, counter, epoch, g, G, GP, TILE, WIDE
    )
    epoch = _wait(counter, epoch, G)
    if valid > 0:
        mass, tails, likely, cross, ups, epoch = _moments(
            tilted + row * n, k, logits, marginals + row * n, marginals, logits + row * n, n,
            board, counter, epoch, g, G, GP, TILE, WIDE, True,
        )  # fmt: skip
        if g == 0:
            entropy = mass + cross - tails
            entropy = tl.where(entropy < 0, 0.0, entropy)
            tl.store(log_partition + row, mass + likely - tails + shift * (ups - k))
            tl.store(log_mass + row, mass)
            tl.store(shifts + row, shift)
            tl.store(entropies + row, entropy)
    else:
        _fill(marginals + row * n, float("nan"), n, g, G, TILE)
        if g == 0:
            tl.store(log_partition + row, float("nan"))
            tl.store(log_mass + row, float("nan"))
            tl.store(shifts + row, float("nan"))
            tl.store(entropies + row, float("nan"))


@triton.jit
def tilt_kernel(
    logits, counts, tilted, boards, counters, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The tilted logits alone."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = boards + row * (2 * G * _BOARD), counters + row
    _tilt(
        logits + row * n, tl.load(counts + row), tilted + row * n, n,
        board, counter, tl.zeros([], tl.int32), g, G, GP, TILE, WIDE,
    )  # fmt: skip


@triton.jit
def covariance_kernel(
    tilted, counts, vectors, product, boards, counters, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Cov v."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = boards + row * (2 * G * _BOARD), counters + row
    # A row is NaN as a whole or not at all.
    first = tl.load(tilted + row * n)
    if first == first:
        _moments(
            tilted + row * n, tl.load(counts + row), vectors + row * n, product,
            product + row * n, tilted, n, board, counter, tl.zeros([], tl.int32), g,
            G, GP, TILE, WIDE, False,
        )  # fmt: skip
    else:
        _fill(product + row * n, float("nan"), n, g, G, TILE)


@triton.jit
def _share_vector(
    values, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr, SIZE: tl.constexpr
):
    """Sums of up to eight numbers over the row's programs."""
    values = values.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * _BOARD)
        lane = tl.arange(0, SIZE)
        tl.store(board + side + g * _BOARD + lane, values)
        epoch = _wait(counter, epoch, G)
        who = tl.arange(0, GP)
        places = board + side + who[:, None] * _BOARD + lane[None, :]
        use = (who < G)[:, None] & (lane < SIZE)[None, :]
        values = tl.sum(tl.load(places, use, 0.0, volatile=True), 0)
    return values, epoch


@triton.jit
def _draw(
    tilted, chosen, key, place, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Store a sample of a valid row, of whose free items so many are chosen. Returns 0 if tries
    ran out.

    Every WIDE-th tile is kept, those of the largest variance; the others are tossed and accepted by
    them. What is kept of what was kept, and so on, is one tile in the end.
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
    while (tiles > 1) & (found > 0):
        spread = tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            _at, inside, t = _load(tilted, i, first, stride, tiles, n, TILE, WIDE)
            _up, _x, pq, _skew = coins(t + base, inside)
            spread += pq
        by_tile = tl.sum(tl.reshape(spread, (WIDE, TILE)), 1)
        by_tile, epoch = _share_vector(by_tile, board, counter, epoch, g, G, GP, WIDE)
        variance = tl.max(by_tile, 0)
        keep = tl.min(tl.where(by_tile == variance, tl.arange(0, WIDE), WIDE), 0)
        keep = tl.minimum(keep, tiles - 1)
        kept = (tiles - keep + WIDE - 1) // WIDE
        other = first + keep * stride
        mean_sum = tl.zeros([WIDE * TILE], tl.float32)
        ups_sum = tl.zeros([WIDE * TILE], tl.float32)
        free_sum = tl.zeros([WIDE * TILE], tl.float32)
        for i in range(g, (kept + WIDE - 1) // WIDE, G):
            _at, inside, t = _load(tilted, i, other, WIDE * stride, kept, n, TILE, WIDE)
            up, x, _pq, _skew = coins(t + base, inside)
            free = inside & (tl.abs(t) < _INF)
            mean_sum += tl.where(up, -x, x)
            ups_sum += (up & free).to(tl.float32)
            free_sum += free.to(tl.float32)
        a, b, d = tl.reduce((mean_sum, ups_sum, free_sum), 0, add3)
        mean, ups, count, _unused, epoch = _share4(a, b, d, d, board, counter, epoch, g, G, GP)
        number = nodes_for(variance, count, _HALVING_TAIL)
        real, imag, _s, _c, _dr, _di, _nodes, epoch = _spectrum(
            tilted, base, kept, other, WIDE * stride, n, number, variance, _HALVING_DECAY,
            tilted, base, base, board, counter, epoch, g, G, GP, TILE, WIDE, False,
        )  # fmt: skip
        taken = wanted * 0
        which = tiles * 0 + 8
        turn = tiles * 0
        tossing = (which > 7) & (turn < _TRIES)
        while tossing:
            stage += _GOLDEN
            # Two counts of 16 bits in one number.
            n01 = tl.zeros([WIDE * TILE], tl.int32)
            n23 = tl.zeros([WIDE * TILE], tl.int32)
            for i in range(g, (tiles + WIDE - 1) // WIDE, G):
                at, inside, t = _load(tilted, i, first, stride, tiles, n, TILE, WIDE)
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
            h0, h1, h2, h3, epoch = _share4(
                tl.sum(n01 & 0xFFFF, 0), tl.sum(n01 >> 16, 0),
                tl.sum(n23 & 0xFFFF, 0), tl.sum(n23 >> 16, 0),
                board, counter, epoch, g, G, GP,
            )  # fmt: skip
            heads = four(h0, h1, h2, h3)
            which = accept(
                heads, wanted - ups, mean, real, imag, number, count, key + stage, _NODES
            )
            taken = tl.sum(tl.where(tl.arange(0, 8) == which, heads, 0.0), 0)
            turn += 1
            tossing = (which > 7) & (turn < _TRIES)
        found = tl.where(which > 7, 0, 1)
        tl.debug_barrier()
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, _t = _load(tilted, i, first, stride, tiles, n, TILE, WIDE)
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
        shift, _deviation, epoch = _solve(
            tilted, base, tiles, first, stride, n,
            tl.where(is_open > 0, wanted, 1.0), tl.where(is_open > 0, count, 2.0),
            start, -reach, reach, is_open,
            board, counter, epoch, g, G, GP, TILE, WIDE,
        )  # fmt: skip
        # No choice left: everything or nothing of what is free.
        shift = tl.where(is_open > 0, shift, tl.where(wanted > 0, 1e30, -1e30))
        base = base + shift.to(tl.float32)
    # Whoever draws the rest may have to draw everything anew.
    epoch = _wait(counter, epoch, G)
    if (found > 0) & (g == 0):
        at, inside, t = _load(tilted, 0, first, stride, 1, n, TILE, 1)
        t = tl.where(inside, t + base, -_INF)
        lane = tl.arange(0, TILE)
        wanted += tl.sum((inside & (t == _INF)).to(tl.float64), 0)
        z, found, _counter = draw(
            t, wanted, key + stage + _GOLDEN, lane, inside, tl.zeros([], tl.int32), TILE, ROUNDS
        )
        tl.store(place + at, z, inside)
    return found, epoch


@triton.jit
def sample_kernel(
    logits, counts, keys, drawn, tilted, boards, counters, n, rows, samples,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, ROUNDS: tl.constexpr,
    FALLBACK: tl.constexpr,
):  # fmt: skip
    """Samples, and the tilted logits."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = boards + row * (2 * G * _BOARD), counters + row
    k = tl.load(counts + row)
    epoch = tl.zeros([], tl.int32)
    valid, chosen, _shift, epoch = _tilt(
        logits + row * n, k, tilted + row * n, n, board, counter, epoch, g, G, GP, TILE, WIDE
    )
    epoch = _wait(counter, epoch, G)
    for s in range(samples):
        place = drawn + (s * rows + row) * n
        key = tl.load(keys + s * rows + row)
        if valid > 0:
            found, epoch = _draw(
                tilted + row * n, chosen, key, place, n, board, counter, epoch, g,
                G, GP, TILE, WIDE, ROUNDS,
            )  # fmt: skip
            if (found == 0) & (g == 0):
                _whole_row(tilted + row * n, k, key, place, n, TILE, FALLBACK)
        else:
            _fill(place, float("nan"), n, g, G, TILE)


@triton.jit
def _whole_row(tilted, k, key, place, n, TILE: tl.constexpr, FALLBACK: tl.constexpr):
    """Item by item, by one program: for rows whose tries ran out."""
    spread = tl.zeros([TILE], tl.float32)
    free = tl.zeros([TILE], tl.float32)
    forced = tl.zeros([TILE], tl.float32)
    tiles = (n + TILE - 1) // TILE
    for i in range(tiles):
        _at, inside, t = _load(tilted, i, 0, 1, tiles, n, TILE, 1)
        _up, _x, pq, _skew = coins(t, inside)
        spread += pq
        free += (inside & (tl.abs(t) < _INF)).to(tl.float32)
        forced += (inside & (t == _INF)).to(tl.float32)
    variance, count, certain = tl.reduce((spread, free, forced), 0, add3)
    number = tl.minimum(count + 1, 26 + 13 * tl.sqrt(variance))
    number = 2 * tl.ceil((number - 1) * 0.5) + 1
    one_by_one(
        tilted, place, k.to(tl.float64) - certain.to(tl.float64), number.to(tl.float64),
        count.to(tl.float64), key, n, FALLBACK,
    )  # fmt: skip


_CONSTANTS = ("G", "GP", "TILE", "WIDE")
_infer = Launcher(infer_kernel, *_CONSTANTS)
_tilt_alone = Launcher(tilt_kernel, *_CONSTANTS)
_covariance = Launcher(covariance_kernel, *_CONSTANTS)
_sample = Launcher(sample_kernel, *_CONSTANTS, "ROUNDS", "FALLBACK")


@cache
def _programs(rows: int, n: int, width: int, device: torch.device) -> int:
    """Programs per row: as many as fill the chip with all rows, and one where rows do that."""
    if device.type != "cuda" or rows >= 64:
        return 1
    chip = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(-(-n // width), chip // max(rows, 1)))


def _launch(
    launcher: Launcher,
    cut: Shape,
    given: tuple[Tensor, ...],
    made: tuple[Tensor, ...],
    numbers: tuple[int, ...] = (),
    constants: tuple[int, ...] = (),
) -> None:
    rows, n = given[0].shape
    if not rows:
        return
    per_row = _programs(rows, n, cut.tile * cut.wide, given[0].device)
    boards = given[0].new_empty(rows * per_row * 2 * _BOARD.value, dtype=torch.float64)
    # A row's only program waits for nobody.
    fresh = torch.zeros if per_row > 1 else torch.empty
    counters = fresh(rows, dtype=torch.int32, device=boards.device)
    power = 1 << (per_row - 1).bit_length()
    launcher(
        rows * per_row, given, (*made, boards, counters), (n, *numbers),
        (per_row, power, cut.tile, cut.wide, *constants), cut.warps, per_row > 1,
    )  # fmt: skip


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits, k = logits.contiguous(), k.contiguous()
    rows = len(logits)
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    log_partition, log_mass, entropy = (logits.new_empty(rows) for _ in range(3))
    shift = logits.new_empty(rows, dtype=torch.float64)
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    _launch(_infer, MOMENTS, (logits, k), results)
    return results


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = logits.contiguous(), k.contiguous()
    tilted = torch.empty_like(logits)
    _launch(_tilt_alone, MOMENTS, (logits, k), (tilted,))
    return tilted


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, k, v = tilted.contiguous(), k.contiguous(), v.contiguous()
    product = torch.empty_like(tilted)
    _launch(_covariance, MOMENTS, (tilted, k, v), (product,))
    return product


def sample(logits: Tensor, k: Tensor, seeds: Tensor, rounds: int = 1024) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = logits.contiguous(), k.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    drawn = logits.new_empty(len(seeds), rows, n)
    tilted = torch.empty_like(logits)
    made, numbers = (drawn, tilted), (rows, len(seeds))
    _launch(_sample, SAMPLES, (logits, k, seeds), made, numbers, (rounds, 512))
    return drawn, tilted
