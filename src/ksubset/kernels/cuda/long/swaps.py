"""Swap product of a long row.

The probability that an item is not as it is in z is b - pq c(p) for a chosen one and b + pq c(p)
for another: b is what its coin says, and c the polynomial that power sums give (:mod:`.series`). So
what flows, and the v that it takes along, are linear in the coefficients of c. For one sample their
sums are taken in the pass that takes the power sums, and the next pass has the product. Rows that
power sums do not serve, and several samples of a row, take a pass for the flows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.long import nodes, series
from ksubset.kernels.cuda.long.board import BOARD, PHI, load_tiles, share4, wait
from ksubset.kernels.cuda.long.moments import in_series, survey
from ksubset.kernels.cuda.moments import DECAY, coins, nodes_for, rarer_sides
from ksubset.kernels.cuda.swaps import flow_of, mean_of, swapped
from ksubset.kernels.cuda.tilt import add2, add4

_INF = tl.constexpr(float("inf"))
# What _sums writes to a program's board: sums of p^2 ... p^8; of pq p^0 ... pq p^7 over chosen
# items; the same times v; the same times v, over the others; eight more; and the largest p.
_OUT, _OF_OUT, _OF_INTO = tl.constexpr(8), tl.constexpr(16), tl.constexpr(24)
_MORE, _TOP, _WORDS = tl.constexpr(32), tl.constexpr(40), tl.constexpr(64)
_AT_ONCE = tl.constexpr(4)  # loads of a thread


@triton.jit
def swap_product(
    tilted, k, drawn, vectors, flows, product, n, stride, samples, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """Store sum_s L(z_s) v_s of a valid row, whose samples are stride apart; flows is working
    space, and may be the product if there is ONE sample."""
    tiles = (n + TILE - 1) // TILE
    wanted = k.to(tl.float64)
    if ONE:
        shift = _typical(tilted, vectors, tiles, n, TILE, WIDE)
        sums, highest, epoch = _sums(
            tilted, drawn, vectors, shift, n, board, counter, epoch, g, G, GP, TILE, WIDE
        )
        variance, ups = tl.load(sums + _MORE), tl.load(sums + _MORE + 1)
        free, sure = tl.load(sums + _MORE + 2), tl.load(sums + _MORE + 3)
        expected = tl.load(sums + _MORE + 4) + sure
        number = nodes_for(variance, free, 1)
        if in_series(highest, expected, variance):
            place = sums + _WORDS
            series.coefficients(
                sums, place, number, variance, DECAY, wanted - (ups - sure), expected, True
            )
            _exchange(
                tilted, drawn, vectors, shift, product, sums, place, tiles, n, g,
                G, TILE, WIDE,
            )  # fmt: skip
        else:
            place, count, _total, epoch = nodes.mixture(
                tilted, tiles, n, number, variance, DECAY, wanted - ups,
                tilted, 0.0, 0.0, board, counter, epoch, g, G, GP, TILE, WIDE, True,
            )  # fmt: skip
            _by_flows(
                tilted, drawn, vectors, flows, product, tiles, n, stride, samples, False, place,
                count, board, counter, epoch, g, G, GP, TILE, WIDE,
            )  # fmt: skip
    else:
        variance, ups, free, _mean, expected, sure, highest, epoch = survey(
            tilted, tilted, n, tiles, board, counter, epoch, g, G, GP, TILE, WIDE, False
        )
        number = nodes_for(variance, free, 1)
        count = tl.zeros([], tl.int32)
        served = in_series(highest, expected, variance)
        if served:
            place, _total, epoch = series.mixture(
                tilted, tiles, n, number, variance, DECAY, wanted - (ups - sure), expected,
                tilted, 0.0, 0.0, board, counter, epoch, g, G, GP, TILE, WIDE, True,
            )  # fmt: skip
        else:
            place, count, _total, epoch = nodes.mixture(
                tilted, tiles, n, number, variance, DECAY, wanted - ups,
                tilted, 0.0, 0.0, board, counter, epoch, g, G, GP, TILE, WIDE, True,
            )  # fmt: skip
        _by_flows(
            tilted, drawn, vectors, flows, product, tiles, n, stride, samples, served, place,
            count, board, counter, epoch, g, G, GP, TILE, WIDE,
        )  # fmt: skip


@triton.jit
def _typical(tilted, vectors, tiles, n, TILE: tl.constexpr, WIDE: tl.constexpr):
    """The mean of v over the first tiles, which all v of the row are taken less: sums in float32
    would lose the digits of numbers far from zero."""
    at, inside, t = load_tiles(tilted, 0, 0, 1, tiles, n, TILE, WIDE)
    _up, _x, pq, _skew = coins(t, inside)
    v = tl.load(vectors + at, inside, 0.0).to(tl.float64)
    weighted, total = tl.reduce(
        (tl.where(pq > 0, v * pq.to(tl.float64), 0.0), pq.to(tl.float64)), 0, add2
    )
    return mean_of(weighted, total).to(tl.float32)


@triton.jit
def _sums(
    tilted, drawn, vectors, shift, n, board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write the row's sums to this program's board. Returns where, and the largest p.

    The eight more are: the variance, how many coins likely fall heads, how many are free, how many
    of these likely fall heads, the expected heads of free coins less those, and what flows out by
    the coins alone, the same times v, and v times what flows into the others.
    """
    # Threads have one item of a load: there are too many sums for more.
    part: tl.constexpr = max(TILE * WIDE // _AT_ONCE, 1)
    parts = (n + part - 1) // part
    nothing = tl.zeros([part], tl.float32)
    powers = ()
    out = ()
    of_out = ()
    of_into = ()
    for _ in tl.static_range(8):
        powers = powers + (nothing,)
        out = out + (nothing,)
        of_out = of_out + (nothing,)
        of_into = of_into + (nothing,)
    spread, signed, top = nothing, nothing, nothing
    coin_out, coin_of_out, coin_of_into = nothing, nothing, nothing
    ups, free = tl.zeros([part], tl.int32), tl.zeros([part], tl.int32)
    sure = tl.zeros([part], tl.int32)
    for i in range(g, (parts + _AT_ONCE - 1) // _AT_ONCE, G):
        for j in tl.static_range(_AT_ONCE):
            at, inside, t = load_tiles(tilted, i * _AT_ONCE + j, 0, 1, parts, n, part, 1)
            z = tl.load(drawn + at, inside, 0.0) > 0.5
            v = tl.load(vectors + at, inside, 0.0) - shift
            up, x, pq, _skew = coins(t, inside)
            p = series.heads(up, x)
            spread += pq
            signed += tl.where(up, -x, x)
            ups += (up & inside).to(tl.int32)
            free += (inside & (tl.abs(t) < _INF)).to(tl.int32)
            sure += (up & (x > 0)).to(tl.int32)
            top = tl.maximum(top, p)
            flow = flow_of(up, pq, x, z)
            taken = tl.where(flow == 0, 0.0, flow * v)
            coin_out += tl.where(z, flow, 0.0)
            coin_of_out += tl.where(z, taken, 0.0)
            coin_of_into += tl.where(z, 0.0, taken)
            weight = tl.where(z, pq, 0.0)
            along = tl.where(pq > 0, pq * v, 0.0)
            away, towards = tl.where(z, along, 0.0), tl.where(z, 0.0, along)
            power = nothing + 1
            new_powers = ()
            new_out = ()
            new_of_out = ()
            new_of_into = ()
            for m in tl.static_range(8):
                new_out = new_out + (out[m] + weight * power,)
                new_of_out = new_of_out + (of_out[m] + away * power,)
                new_of_into = new_of_into + (of_into[m] + towards * power,)
                power = power * p
                # p^2 from the second round on
                if m > 0:
                    new_powers = new_powers + (powers[m - 1] + power,)
            powers = new_powers + (nothing,)
            out, of_out, of_into = new_out, new_of_out, new_of_into
    side = ((epoch // G) % 2) * (G * BOARD) + PHI
    sums = board + side + g * BOARD
    _share8(sums, powers)
    _share8(sums + _OUT, out)
    _share8(sums + _OF_OUT, of_out)
    _share8(sums + _OF_INTO, of_into)
    _share8(
        sums + _MORE, (spread, ups, free, sure, signed, coin_out, coin_of_out, coin_of_into)
    )  # fmt: skip
    highest = tl.max(top, 0).to(tl.float64)
    tl.store(sums + _TOP, highest)
    epoch = wait(counter, epoch, G)
    if G > 1:
        who, lane = tl.arange(0, GP), tl.arange(0, _WORDS)
        all_of = board + side + who * BOARD
        use = (who < G)[:, None] & (lane < _TOP)[None, :]
        added = tl.sum(tl.load(all_of[:, None] + lane[None, :], use, 0.0, volatile=True), 0)
        highest = tl.max(tl.load(all_of + _TOP, who < G, 0.0, volatile=True), 0)
        sums += _WORDS
        tl.store(sums + lane, added)
        tl.debug_barrier()
    return sums, highest, epoch


@triton.jit
def _share8(place, values):
    a, b, c, d, e, f, g, h = tl.reduce(values, 0, series.add8)
    series.store8(place, a, b, c, d, e, f, g, h)


@triton.jit
def _exchange(
    tilted, drawn, vectors, shift, product, sums, place, tiles, n, g,
    G: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store L(z) v, with what :func:`_sums` and series.coefficients found."""
    m = tl.arange(0, 8)
    c = tl.load(place + m)
    out = tl.load(sums + _MORE + 5) - tl.sum(c * tl.load(sums + _OUT + m), 0)
    of_out = tl.load(sums + _MORE + 6) - tl.sum(c * tl.load(sums + _OF_OUT + m), 0)
    of_into = tl.load(sums + _MORE + 7) + tl.sum(c * tl.load(sums + _OF_INTO + m), 0)
    # As much flows into the others as out of chosen items.
    for_others, for_chosen = mean_of(of_out, out), mean_of(of_into, out)
    for i in range(g, (tiles + WIDE - 1) // WIDE, G):
        at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
        chosen = tl.load(drawn + at, inside, 0.0) > 0.5
        v = tl.load(vectors + at, inside, 0.0) - shift
        up, x, pq, _skew = coins(t, inside)
        correction, _unused = series.at_items(series.heads(up, x), place, True)
        flow = flow_of(up, pq, rarer_sides(up, x, pq, correction), chosen)
        tl.store(product + at, swapped(flow, chosen, v, for_others, for_chosen), inside)


@triton.jit
def _by_flows(
    tilted, drawn, vectors, flows, product, tiles, n, stride, samples, served, place, count,
    board, counter, epoch, g,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store sum_s L(z_s) v_s, from what a mixture left at a place."""
    for s in range(samples):
        z_s, v_s = drawn + s * stride, vectors + s * stride
        out = tl.zeros([WIDE * TILE], tl.float64)
        into = tl.zeros([WIDE * TILE], tl.float64)
        of_out = tl.zeros([WIDE * TILE], tl.float64)
        of_into = tl.zeros([WIDE * TILE], tl.float64)
        for i in range(g, (tiles + WIDE - 1) // WIDE, G):
            at, inside, t = load_tiles(tilted, i, 0, 1, tiles, n, TILE, WIDE)
            up, x, pq, skew = coins(t, inside)
            if served:
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
