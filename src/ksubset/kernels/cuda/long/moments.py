"""Marginals, covariance product and swap product of a long row."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long import nodes, series
from ksubset.kernels.cuda.long.board import load_tiles, share4, share_extremes
from ksubset.kernels.cuda.moments import DECAY, coins, nodes_for, rarer_sides
from ksubset.kernels.cuda.swaps import flow_of, mean_of, swapped
from ksubset.kernels.cuda.tilt import add3, add4

_INF = tl.constexpr(float("inf"))


@triton.jit
def _survey(
    tilted, vectors, n, tiles, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """The variance, how many coins likely fall heads, how many are free, sum v pq (if WEIGHTED),
    the expected heads of free coins, how many of these likely fall heads, and the largest p."""
    spread = tl.zeros([WIDE * TILE], tl.float32)
    ups_sum = tl.zeros([WIDE * TILE], tl.int32)
    free_sum = tl.zeros([WIDE * TILE], tl.int32)
    signed_sum = tl.zeros([WIDE * TILE], tl.float32)
    likely_sum = tl.zeros([WIDE * TILE], tl.int32)
    top = tl.zeros([WIDE * TILE], tl.float32)
    weighted = tl.zeros([WIDE * TILE], tl.float64)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
        up, x, pq, _skew = coins(t, inside)
        spread += pq
        ups_sum += (up & inside).to(tl.int32)
        free_sum += (inside & (tl.abs(t) < _INF)).to(tl.int32)
        signed_sum += tl.where(up, -x, x)
        likely_sum += (up & (x > 0)).to(tl.int32)
        top = tl.maximum(top, series.heads(up, x))
        if WEIGHTED:
            v = tl.load(vectors + at, inside, 0.0).to(tl.float64)
            weighted += tl.where(pq > 0, v * pq.to(tl.float64), 0.0)
    a, b, c = tl.reduce((spread, ups_sum, free_sum), 0, add3)
    variance, ups, free, mean, epoch = share4(
        a, b, c, tl.sum(weighted, 0), board, counter, epoch, g, G, GP
    )
    a, b, c = tl.reduce((signed_sum, likely_sum, likely_sum), 0, add3)
    signed, sure, _unused, _unused2, epoch = share4(a, b, c, c, board, counter, epoch, g, G, GP)
    highest = tl.max(top, 0)
    highest, _unused, epoch = share_extremes(highest, highest, board, counter, epoch, g, G, GP)
    return variance, ups, free, mean, signed + sure, sure, highest, epoch


@triton.jit
def _in_series(highest, expected, variance):
    return series.serves(
        tl.maximum(highest, 1e-37), tl.maximum(expected, 1e-37), tl.maximum(variance, 1e-37), DECAY
    )


@triton.jit
def swap_product(
    tilted, k, drawn, vectors, flows, product, n, stride, samples, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store sum_s L(z_s) v_s of a valid row, whose samples are stride apart; flows is working
    space, and may be the product if there is one sample."""
    tiles = (n + TILE - 1) // TILE
    variance, ups, free, _mean, expected, sure, highest, epoch = _survey(
        tilted, tilted, n, tiles, board, counter, epoch, g, G, GP, TILE, WIDE, False
    )
    number = nodes_for(variance, free, 1)
    wanted = k.to(tl.float64)
    count = tl.zeros([], tl.int32)
    in_series = _in_series(highest, expected, variance)
    if in_series:
        place, _total, epoch = series.mixture(
            tilted, tiles, n, number, variance, DECAY, wanted - (ups - sure), expected,
            tilted, 0.0, 0.0, board, counter, epoch, g, G, GP, TILE, WIDE, True,
        )  # fmt: skip
    else:
        place, count, _total, epoch = nodes.mixture(
            tilted, tiles, n, number, variance, DECAY, wanted - ups,
            tilted, 0.0, 0.0, board, counter, epoch, g, G, GP, TILE, WIDE, True,
        )  # fmt: skip
    for s in range(samples):
        z_s, v_s = drawn + s * stride, vectors + s * stride
        out = tl.zeros([WIDE * TILE], tl.float64)
        into = tl.zeros([WIDE * TILE], tl.float64)
        of_out = tl.zeros([WIDE * TILE], tl.float64)
        of_into = tl.zeros([WIDE * TILE], tl.float64)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
            up, x, pq, skew = coins(t, inside)
            if in_series:
                correction, _unused = series.at_items(series.heads(up, x), place, True)
            else:
                correction, _unused = nodes.at_items(skew, place, count, True)
            chosen = tl.load(z_s + at, inside, 0.0) > 0.5
            v = tl.load(v_s + at, inside, 0.0)
            flow = flow_of(up, pq, rarer_sides(up, x, pq, correction), chosen)
            # With a sign that says whether the item is chosen.
            tl.store(flows + at, tl.where(chosen, flow, -flow), inside)
            wide = flow.to(tl.float64)
            of_v = tl.where(flow == 0, 0.0, wide * v)
            out += tl.where(chosen, wide, 0.0)
            into += tl.where(chosen, 0.0, wide)
            of_out += tl.where(chosen, of_v, 0.0)
            of_into += tl.where(chosen, 0.0, of_v)
        a, b, c, d = tl.reduce((out, of_out, into, of_into), 0, add4)
        a, b, c, d, epoch = share4(a, b, c, d, board, counter, epoch, g, G, GP)
        for_others, for_chosen = mean_of(b, a), mean_of(d, c)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, flow = load_tiles(flows, i, 0, 1, tiles, n, TILE, WIDE)
            flow = tl.where(inside, flow, 0.0)
            v = tl.load(v_s + at, inside, 0.0)
            moved = swapped(tl.abs(flow), flow > 0, v, for_others, for_chosen)
            if s > 0:
                moved += tl.load(product + at, inside, 0.0)
            tl.store(product + at, moved, inside)


@triton.jit
def moments(
    tilted, k, vectors, marginals, product, theta, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Store marginals (INFER) or the covariance product of a valid row. Returns log P(S = k), the
    sums of log(1 - x), of likely logits and of the cross-entropy, and the number of likely heads.
    """
    tiles = (n + TILE - 1) // TILE
    variance, ups, free, mean, expected, sure, highest, epoch = _survey(
        tilted, vectors, n, tiles, board, counter, epoch, g, G, GP, TILE, WIDE, not INFER
    )
    # In two parts: one of them alone has no room for the digits of a mean far larger than the
    # spread.
    centre = mean / tl.maximum(variance, 1e-37)
    mean = centre.to(tl.float32)
    again = (centre - mean.to(tl.float64)).to(tl.float32)
    number = nodes_for(variance, free, 1)
    wanted = k.to(tl.float64)
    log_tails = tl.zeros([WIDE * TILE], tl.float64)
    likely = tl.zeros([WIDE * TILE], tl.float64)
    cross = tl.zeros([WIDE * TILE], tl.float64)
    total = wanted * 0
    if _in_series(highest, expected, variance):
        place, total, epoch = series.mixture(
            tilted, tiles, n, number, variance, DECAY, wanted - (ups - sure), expected,
            vectors, mean, again, board, counter, epoch, g, G, GP, TILE, WIDE, INFER,
        )  # fmt: skip
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
            up, x, pq, _skew = coins(t, inside)
            across, within = series.at_items(series.heads(up, x), place, INFER)
            if INFER:
                tails_of, likely_of, cross_of = _marginals(
                    at, inside, t, up, x, pq, across, theta, marginals
                )
                log_tails += tails_of
                likely += likely_of
                cross += cross_of
            else:
                _product(at, inside, pq, across, within, vectors, mean, again, product)
    else:
        place, count, total, epoch = nodes.mixture(
            tilted, tiles, n, number, variance, DECAY, wanted - ups,
            vectors, mean, again, board, counter, epoch, g, G, GP, TILE, WIDE, INFER,
        )  # fmt: skip
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
            up, x, pq, skew = coins(t, inside)
            across, within = nodes.at_items(skew, place, count, INFER)
            if INFER:
                tails_of, likely_of, cross_of = _marginals(
                    at, inside, t, up, x, pq, across, theta, marginals
                )
                log_tails += tails_of
                likely += likely_of
                cross += cross_of
            else:
                _product(at, inside, pq, across, within, vectors, mean, again, product)
    a, b, c = tl.sum(log_tails, 0), tl.sum(likely, 0), tl.sum(cross, 0)
    if INFER:
        a, b, c, _unused, epoch = share4(a, b, c, c, board, counter, epoch, g, G, GP)
    return tl.log(total / number), a, b, c, ups, epoch


@triton.jit
def _marginals(at, inside, t, up, x, pq, correction, theta, marginals):
    """Store; and the terms of log(1 - x), of likely logits and of the cross-entropy."""
    y = rarer_sides(up, x, pq, correction)
    tl.store(marginals + at, tl.where(up, 1 - y, y), inside)
    given = tl.load(theta + at, inside, 0.0)
    far = tl.where(tl.abs(t) < _INF, tl.abs(t), 0.0) * y
    return (
        tl.log(1 - x.to(tl.float64)),
        tl.where(up & (tl.abs(given) < _INF), given, 0.0).to(tl.float64),
        tl.where(inside, far, 0.0).to(tl.float64),
    )


@triton.jit
def _product(at, inside, pq, across, within, vectors, mean, again, product):
    v = tl.load(vectors + at, inside, 0.0)
    v = tl.where(pq > 0, (v - mean) - again, 0.0)
    tl.store(product + at, pq * (across + v * within), inside)


@triton.jit
def fill(place, value, n, g, G: tl.constexpr, TILE: tl.constexpr):
    """The same value for all items."""
    for i in range(g, (n + TILE - 1) // TILE, G):
        at = i * TILE + tl.arange(0, TILE)
        tl.store(place + at, tl.zeros([TILE], tl.float32) + value, at < n)
