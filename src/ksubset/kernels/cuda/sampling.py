"""An exact sample of a row in registers, of coins that are not light (light.py). In the order they
are tried:

* rejection, four tries for each call of Philox; while the number of heads has a wide spread, most
  coins are tossed first and accepted by the rest, much as in kernels/halving.py;
* should tries run out: item by item, from the characteristic function of what is left.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.angles import half_angle, rotation
from ksubset.kernels.cuda.moments import DECAY_OF_DOUBLES, coins, nodes_for
from ksubset.kernels.cuda.random import GOLDEN, thresholds, toss4, wide_uniform
from ksubset.kernels.cuda.tilt import add4, solve

_INF = tl.constexpr(float("inf"))
_WIDE_VARIANCE = tl.constexpr(32.0)
_ROUNDS = tl.constexpr(64)  # of four tosses, about half of which are accepted
_NODES = tl.constexpr(32)
# Of a row with a wide spread, one part of so many is kept.
PARTS = tl.constexpr(8)
# Counts beyond N / 2 of what is kept are rejected: N is so many times what tails reach.
TIMES, DECAY = tl.constexpr(2), tl.constexpr(19.0)
_NODES_OF_DOUBLES = tl.constexpr(64)
# Where the counters of each kind of number start (those of tosses at 0).
_ONE_BY_ONE, _ACCEPT = tl.constexpr(0x40000000), tl.constexpr(0x7FFFFFF0)


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def accept(heads, left, mean, least, reach, real, imag, number, key, NODES: tl.constexpr):
    """The first of four tosses that the coins set aside accept, or 8.

    heads: of the tosses, in the first four of eight lanes; left: what tosses and the others have to
    show together, counted like mean, the others' expectation, from their likely heads; least,
    reach: the others can show least to least + reach; real, imag: (NODES,) their characteristic
    function, twice but at its first node.
    """
    lane = tl.arange(0, 8)
    # Two more lanes have the likeliest counts: the floor and the ceiling of the mean.
    count = tl.where(lane < 4, left - heads, tl.floor(mean) + (lane - 4).to(tl.float64))
    node = tl.arange(0, NODES).to(tl.float64)
    turn_real, turn_imag = rotation(count[:, None] * node[None, :], number)
    mass = tl.sum(real[None, :] * turn_real + imag[None, :] * turn_imag, 1)
    most = tl.max(tl.where((lane == 4) | (lane == 5), mass, 0.0), 0)
    u = wide_uniform(key, lane + _ACCEPT)
    # Counts further out than half of N are those of aliases, unless N covers all counts; and what
    # the others cannot show has a mass of rounding errors.
    inside = tl.where(reach < number, 0.0, 2 * tl.abs(count - mean)) < number
    inside = inside & (count >= least) & (count <= least + reach)
    return tl.min(tl.where((lane < 4) & inside & (u * most < mass), lane, 8), 0)


@triton.jit
def four(a, b, c, d):
    """Scalars as the first of eight lanes."""
    lane = tl.arange(0, 8)
    return tl.where(lane == 0, a, tl.where(lane == 1, b, tl.where(lane == 2, c, d)))


@triton.jit
def _characteristic(
    x, signed, number, variance, SIZE: tl.constexpr, LANES: tl.constexpr, NODES: tl.constexpr,
    DECAYED: tl.constexpr,
):  # fmt: skip
    """E exp(i omega (S - ups)) of SIZE coins, (NODES,), twice but at the first node.

    As many nodes at a time as there are lanes for.
    """
    room: tl.constexpr = LANES // SIZE
    together: tl.constexpr = 1 if room < 1 else (NODES if room > NODES else room)
    number = number.to(tl.float64)
    x, signed = x.to(tl.float64)[None, :], signed.to(tl.float64)[None, :]
    lane = tl.arange(0, NODES)
    real = lane.to(tl.float64) * 0
    imag = real
    first = tl.zeros([], tl.int32)
    active = variance >= 0
    while active:
        node = first + tl.arange(0, together)
        use = 2 * node < number
        s, c = half_angle(tl.where(use, node, 0).to(tl.float64), number)
        a, b = tl.reduce(
            (1 - x * (2 * s * s)[:, None], signed * (2 * s * c)[:, None]), 1, _multiply
        )
        twice = tl.where(use, tl.where(node > 0, 2.0, 1.0), 0.0)
        here = lane[:, None] == node[None, :]
        real += tl.sum(tl.where(here, (twice * a)[None, :], 0.0), 1)
        imag += tl.sum(tl.where(here, (twice * b)[None, :], 0.0), 1)
        first += together
        furthest = tl.max(tl.where(use, s, 1e3), 0)
        decay = tl.where(first < NODES, 2 * variance * (furthest * furthest), DECAYED)
        active = decay < DECAYED
    return real, imag


@triton.jit
def draw(
    t, wanted, key, at, n, place,
    BLOCK: tl.constexpr, LANES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Store a sample of the coins t, of which so many show heads, at those places that are below n.
    Returns 1, or 0 if tries ran out.

    While the number of heads has a wide spread, seven eighths of the coins are tossed and accepted
    by the rest, as in kernels/halving.py: an eighth accepts a third of all tosses, and four come at
    the price of one.
    """
    up, x, pq, _skew = coins(t, at < n)
    # The variance of fewer coins is not wide.
    if BLOCK > 4 * _WIDE_VARIANCE:
        if tl.sum(pq, 0) > _WIDE_VARIANCE:
            found = _draw_most(t, up, x, pq, wanted, key, at, n, place, BLOCK, LANES, ROUNDS)
        else:
            found = _draw_all(up, x, wanted, key, at, n, place, BLOCK, LANES, ROUNDS)
    else:
        found = _draw_all(up, x, wanted, key, at, n, place, BLOCK, LANES, ROUNDS)
    return found


@triton.jit
def _draw_most(
    t, up, x, pq, wanted, key, at, n, place,
    BLOCK: tl.constexpr, LANES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """All coins but a part of them, and then the rest."""
    kept: tl.constexpr = BLOCK // PARTS
    which = tl.arange(0, PARTS)
    spreads = tl.sum(tl.reshape(pq, (kept, PARTS)), 0)
    # The part of the largest variance is kept.
    variance = tl.max(spreads, 0)
    keep = tl.min(tl.where(spreads == variance, which, PARTS), 0)
    mine = (which == keep)[None, :]
    rest = tl.sum(tl.where(mine, tl.reshape(t, (kept, PARTS)), 0.0), 1)
    rest_at = tl.sum(tl.where(mine, tl.reshape(at, (kept, PARTS)), 0), 1)
    part = (tl.arange(0, BLOCK) % PARTS) != keep

    rest_up, rest_x, _pq, _skew = coins(rest, rest_at < n)
    signed = tl.where(rest_up, -rest_x, rest_x)
    free = tl.abs(rest) < _INF
    mean, ups, count, forced = tl.reduce(
        (
            signed, rest_up.to(x.dtype), free.to(x.dtype), (rest == _INF).to(x.dtype),
        ),
        0,
        add4,
    )  # fmt: skip
    doubles: tl.constexpr = x.dtype == tl.float64
    nodes: tl.constexpr = _NODES_OF_DOUBLES if doubles else _NODES
    decayed: tl.constexpr = DECAY_OF_DOUBLES if doubles else DECAY
    number = nodes_for(variance, count, TIMES, doubles)
    real, imag = _characteristic(rest_x, signed, number, variance, kept, LANES, nodes, decayed)

    high, low = thresholds(tl.where(part, tl.where(up, 1 - x, x), 0.0))
    lane = tl.arange(0, BLOCK)
    z = x * 0
    taken = wanted * 0
    accepted = keep * 0 + 8
    turn = keep * 0
    tossing = accepted > 7
    while tossing:
        key += GOLDEN
        h0, h1, h2, h3 = toss4(key, lane, high, low)
        n0, n1, n2, n3 = tl.reduce(
            (
                h0.to(x.dtype), h1.to(x.dtype), h2.to(x.dtype), h3.to(x.dtype),
            ),
            0,
            add4,
        )  # fmt: skip
        heads = four(n0, n1, n2, n3)
        accepted = accept(
            heads.to(tl.float64), (wanted - ups).to(tl.float64), mean.to(tl.float64),
            (forced - ups).to(tl.float64), count.to(tl.float64),
            real, imag, number.to(tl.float64), key, nodes,
        )  # fmt: skip
        tossed = tl.where(
            accepted == 0, h0, tl.where(accepted == 1, h1, tl.where(accepted == 2, h2, h3))
        )
        z = tossed.to(x.dtype)
        taken = tl.sum(tl.where(tl.arange(0, 8) == accepted, heads, 0.0), 0)
        turn += 1
        tossing = (accepted > 7) & (turn < _ROUNDS)
    tl.store(place + at, z, part & (at < n))

    # Tilt the rest to its own count, from one step of Newton's on. What is certain stays so.
    wanted = wanted - taken
    chosen = wanted - forced
    is_open = tl.where((chosen > 0) & (chosen < count), 1.0, 0.0)
    shift, _deviation = solve(
        tl.where(free, rest, -_INF),
        tl.where(is_open > 0, chosen, 1.0), tl.where(is_open > 0, count, 2.0),
        (wanted - ups - mean) / tl.maximum(variance, 1e-37),
        -64.0 + 0.0 * chosen, 64.0 + 0.0 * chosen, is_open,
    )  # fmt: skip
    settled = tl.where(chosen > 0, _INF, -_INF)
    rest = tl.where(free, tl.where(is_open > 0, rest + shift, settled), rest)
    found = keep * 0
    if accepted < 8:
        found = draw(rest, wanted, key + GOLDEN, rest_at, n, place, kept, LANES, ROUNDS)
    return found


@triton.jit
def _draw_all(
    up, x, wanted, key, at, n, place,
    BLOCK: tl.constexpr, LANES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Toss all coins until as many show heads as are wanted, as often at a time as there are lanes
    for."""
    room: tl.constexpr = LANES // (4 * BLOCK)
    together: tl.constexpr = 1 if room < 1 else (8 if room > 8 else room)
    high, low = thresholds(tl.where(up, 1 - x, x))
    high, low = high[None, :], low[None, :]
    lane = tl.arange(0, BLOCK)
    turns = tl.arange(0, together)
    counters = turns[:, None] * BLOCK + lane[None, :]
    z = x * 0
    found = tl.zeros([], tl.int32)
    turn = found * 0
    running = turn < ROUNDS
    while running:
        h0, h1, h2, h3 = toss4(key, turn * (together * BLOCK) + counters, high, low)
        n0, n1, n2, n3 = tl.reduce(
            (
                h0.to(x.dtype), h1.to(x.dtype), h2.to(x.dtype), h3.to(x.dtype),
            ),
            1,
            add4,
        )  # fmt: skip
        first = tl.where(n0 == wanted, 0, tl.where(n1 == wanted, 1, tl.where(n2 == wanted, 2, 3)))
        hit = (n0 == wanted) | (n1 == wanted) | (n2 == wanted) | (n3 == wanted)
        which = tl.min(tl.where(hit, 4 * turns + first, 4 * together), 0)
        of = which % 4
        tossed = tl.where(of == 0, h0, tl.where(of == 1, h1, tl.where(of == 2, h2, h3)))
        mine = (turns == which // 4)[:, None]
        z = tl.sum(tl.where(mine, tossed.to(x.dtype), 0.0), 0)
        found = tl.where(which < 4 * together, 1, 0)
        turn += 1
        running = (found == 0) & (turn < ROUNDS)
    tl.store(place + at, z, at < n)
    return found


@triton.jit
def one_by_one(tilted_row, drawn_row, k, key, n, NODES: tl.constexpr):
    """Draw a row item by item from the characteristic function of what is left, in float64.

    Dividing an item's factor out keeps every node's value to full relative precision. The more
    items are settled, the more nodes count: whenever three quarters of the variance are gone, what
    is left gets nodes of its own, so that 64 of them are enough for all rows.
    """
    node = tl.arange(0, NODES).to(tl.float64)
    one = tl.arange(0, 1)
    left = k.to(tl.float64)
    start = tl.zeros([], tl.int32)
    while start < n:
        variance = left * 0
        rest = left * 0
        forced = left * 0
        for i in range(start, n):
            t = tl.load(tilted_row + i).to(tl.float64)
            e = tl.exp(-tl.abs(t))
            variance += e / ((1 + e) * (1 + e))
            rest += tl.where(tl.abs(t) < _INF, 1.0, 0.0)
            forced += tl.where(t == _INF, 1.0, 0.0)
        left = tl.where(start == 0, left - forced, left)
        # Wider than for moments: right also far from the mean.
        number = tl.minimum(rest + 1, 26 + 13 * tl.sqrt(variance))
        number = 2 * tl.ceil((number - 1) * 0.5) + 1
        enough = tl.where(number < 2 * NODES, -1.0, 0.25 * variance)
        use = 2 * node < number
        twice = tl.where(use, tl.where(node > 0, 2.0, 1.0), 0.0).to(tl.float64)
        cosine, sine = rotation(tl.where(use, node, 0.0), number)
        real = twice * 0 + 1.0
        imag = twice * 0
        for i in range(start, n):
            t = tl.load(tilted_row + i).to(tl.float64)
            p = tl.where(tl.abs(t) < _INF, 1 / (1 + tl.exp(-t)), 0.0)
            a = 1 - p * (1 - cosine)
            b = p * sine
            new = real * a - imag * b
            imag = real * b + imag * a
            real = new
        going = (start < n) & (variance > enough)
        while going:
            t = tl.load(tilted_row + start).to(tl.float64)
            e = tl.exp(-tl.abs(t))
            is_free = tl.abs(t) < _INF
            p = tl.where(is_free, 1 / (1 + tl.exp(-t)), 0.0)
            q = 1 / (1 + tl.exp(t))
            a = 1 - p * (1 - cosine)
            b = p * sine
            size = a * a + b * b
            new = (real * a + imag * b) / size
            imag = (imag * a - real * b) / size
            real = new
            turn_real, turn_imag = rotation(node * left, number)
            tails = q * tl.sum(twice * (real * turn_real + imag * turn_imag), 0)
            # One head less to come: turned back by omega.
            back_real = turn_real * cosine + turn_imag * sine
            back_imag = turn_imag * cosine - turn_real * sine
            heads = p * tl.sum(twice * (real * back_real + imag * back_imag), 0)
            heads = tl.maximum(heads, 0.0)
            tails = tl.maximum(tails, 0.0)
            u = tl.sum(wide_uniform(key, one + start + _ONE_BY_ONE), 0)
            take = tl.where(u * (heads + tails) < heads, 1.0, 0.0)
            take = tl.where(left <= 0.5, 0.0, tl.where(left >= rest - 0.5, 1.0, take))
            take = tl.where(is_free, take, tl.where(t > 0, 1.0, 0.0))
            left = left - tl.where(is_free, take, 0.0)
            rest = rest - tl.where(is_free, 1.0, 0.0)
            variance = variance - e / ((1 + e) * (1 + e))
            tl.store(drawn_row + start, take)
            start += 1
            going = (start < n) & (variance > enough)
