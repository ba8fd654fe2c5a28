"""Marginals and covariance product of a long row."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long import nodes, series
from ksubset.kernels.cuda.long.board import load_tiles, share4, share_extremes
from ksubset.kernels.cuda.moments import DECAY, coins, nodes_for, rarer_sides
from ksubset.kernels.cuda.series import serves
from ksubset.kernels.cuda.tilt import add3

_INF = tl.constexpr(float("inf"))


@triton.jit
def survey(
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
def in_series(highest, expected, variance):
    """Whether power sums serve the row."""
    return serves(highest, expected, variance, DECAY, 8)


@triton.jit
def moments(
    tilted, k, vectors, marginals, product, theta, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, INFER: tl.constexpr,
):  # fmt: skip
    """Store marginals (INFER) or the covariance product of a valid row. Returns log P(S = k), the
    sums of log(1 - x), of likely logits and of the cross-entropy, and the number of likely heads.
    """
    tiles = (n + TILE - 1) // TILE
    variance, ups, free, mean, expected, sure, highest, epoch = survey(
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
    if in_series(highest, expected, variance):
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
