"""An exact sample of a row in registers, of coins that are not light (light.py). In the order they
are tried:

* rejection, four tries for each call of Philox; while the number of heads has a wide spread, most
  coins are tossed first and accepted by the rest, much as in kernels/halving.py;
* should tries run out: item by item, from the characteristic function of what is left.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.moments import coins, half_angle, nodes_for, rotation
from ksubset.kernels.cuda.random import GOLDEN, thresholds, toss4, wide_uniform
from ksubset.kernels.cuda.tilt import add4, solve

_INF = tl.constexpr(float("inf"))
_WIDE_VARIANCE = tl.constexpr(32.0)
_ROUNDS = tl.constexpr(64)  # of four tosses, about half of which are accepted
_NODES = tl.constexpr(32)
# Counts beyond N / 2, 5.6 deviations of what is kept, are rejected. Of what it takes these are six
# or more, where an eighth is kept or a quarter.
TAIL, DECAY = tl.constexpr(64.0), tl.constexpr(19.0)
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
def _characteristic(x, signed, number, variance, NODES: tl.constexpr):
    """E exp(i omega (S - ups)) of coins, (NODES,), twice but at the first node."""
    wide = number.to(tl.float64)
    step_sine, step_cosine = half_angle(wide * 0 + 1, wide)
    sine, cosine = wide * 0, wide * 0 + 1
    x, signed = x.to(tl.float64), signed.to(tl.float64)
    lane = tl.arange(0, NODES)
    real = lane.to(tl.float64) * 0
    imag = real
    node = tl.zeros([], tl.int32)
    active = variance >= 0
    while active:
        a, b = tl.reduce((1 - x * (2 * sine * sine), signed * (2 * sine * cosine)), 0, _multiply)
        twice = tl.where(node > 0, 2.0, 1.0)
        real = tl.where(lane == node, twice * a, real)
        imag = tl.where(lane == node, twice * b, imag)
        sine, cosine = (
            sine * step_cosine + cosine * step_sine,
            cosine * step_cosine - sine * step_sine,
        )
        node += 1
        decay = tl.where(2 * node < number, 2 * variance * (sine * sine).to(tl.float32), DECAY)
        active = tl.where(node < NODES, decay, DECAY) < DECAY
    return real, imag


@triton.jit
def draw(t, k, key, at, inside, counter, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """Toss until k heads show. Returns the row, whether that came to pass, and the counter.

    While the number of heads has a wide spread, three quarters of the coins are tossed and
    accepted by the rest, as in kernels/halving.py: a quarter accepts half of all tosses, and four
    come at the price of one.
    """
    wanted = k.to(tl.float32)
    up, x, pq, _skew = coins(t, inside)
    z = x * 0
    # Coins still to be tossed; all others are settled in z.
    left = inside
    variance = tl.sum(pq, 0)
    level = counter * 0
    failed = counter * 0
    splitting = (variance > _WIDE_VARIANCE) & (level < 7)
    while splitting:
        quarter = (at >> (2 * level)) & 3
        v0, v1, v2, v3 = tl.reduce(
            (
                tl.where(left & (quarter == 0), pq, 0.0),
                tl.where(left & (quarter == 1), pq, 0.0),
                tl.where(left & (quarter == 2), pq, 0.0),
                tl.where(left & (quarter == 3), pq, 0.0),
            ),
            0,
            add4,
        )
        # The quarter of the largest variance is kept.
        spread = tl.maximum(tl.maximum(v0, v1), tl.maximum(v2, v3))
        keep = tl.where(v0 == spread, 0, tl.where(v1 == spread, 1, tl.where(v2 == spread, 2, 3)))
        rest = left & (quarter == keep)
        part = left & (quarter != keep)
        signed = tl.where(up, -x, x)
        free = rest & (tl.abs(t) < _INF)
        mean, ups, free_count, forced = tl.reduce(
            (
                tl.where(rest, signed, 0.0), (rest & up).to(tl.float32), free.to(tl.float32),
                (rest & (t == _INF)).to(tl.float32),
            ),
            0,
            add4,
        )  # fmt: skip
        number = nodes_for(spread, free_count, TAIL)
        real, imag = _characteristic(
            tl.where(rest, x, 0.0), tl.where(rest, signed, 0.0), number, spread, _NODES
        )
        high, low = thresholds(tl.where(part, tl.where(up, 1 - x, x), 0.0))
        which = counter * 0 + 8
        turn = counter * 0
        taken = wanted * 0
        tossing = (which > 7) & (turn < _ROUNDS)
        while tossing:
            h0, h1, h2, h3 = toss4(key, counter * BLOCK + at, high, low)
            n0, n1, n2, n3 = tl.reduce(
                (
                    h0.to(tl.float32), h1.to(tl.float32), h2.to(tl.float32), h3.to(tl.float32),
                ),
                0,
                add4,
            )  # fmt: skip
            heads = four(n0, n1, n2, n3)
            which = accept(
                heads.to(tl.float64), (wanted - ups).to(tl.float64), mean.to(tl.float64),
                (forced - ups).to(tl.float64), free_count.to(tl.float64),
                real, imag, number.to(tl.float64),
                key + (counter + 1).to(tl.int64) * GOLDEN, _NODES,
            )  # fmt: skip
            tossed = tl.where(
                which == 0, h0, tl.where(which == 1, h1, tl.where(which == 2, h2, h3))
            )
            z = tl.where(part, tossed.to(tl.float32), z)
            taken = tl.sum(tl.where(tl.arange(0, 8) == which, heads, 0.0), 0)
            counter += 1
            turn += 1
            tossing = (which > 7) & (turn < _ROUNDS)
        failed = tl.where(which > 7, 1, failed)
        wanted = wanted - taken
        left = rest
        # Tilt the rest to its own count, from one step of Newton's on. What is certain stays so.
        chosen = wanted - forced
        is_open = tl.where((chosen > 0) & (chosen < free_count), 1.0, 0.0)
        shift, _deviation = solve(
            tl.where(free, t, -_INF),
            tl.where(is_open > 0, chosen, 1.0), tl.where(is_open > 0, free_count, 2.0),
            (wanted - ups - mean) / tl.maximum(spread, 1e-37),
            -64.0 + 0.0 * chosen, 64.0 + 0.0 * chosen, is_open,
        )  # fmt: skip
        settled = tl.where(chosen > 0, _INF, -_INF)
        t = tl.where(free, tl.where(is_open > 0, t + shift, settled), t)
        up, x, pq, _skew = coins(t, rest)
        variance = tl.sum(pq, 0)
        level += 1
        splitting = (variance > _WIDE_VARIANCE) & (level < 7) & (failed == 0)

    high, low = thresholds(tl.where(left, tl.where(up, 1 - x, x), 0.0))
    found = counter * 0
    turn = counter * 0
    running = (failed == 0) & (turn < ROUNDS)
    while running:
        h0, h1, h2, h3 = toss4(key, counter * BLOCK + at, high, low)
        z0, z1, z2, z3 = (
            h0.to(tl.float32), h1.to(tl.float32), h2.to(tl.float32), h3.to(tl.float32),
        )  # fmt: skip
        n0, n1, n2, n3 = tl.reduce((z0, z1, z2, z3), 0, add4)
        tossed = tl.where(n2 == wanted, z2, z3)
        tossed = tl.where(n1 == wanted, z1, tossed)
        tossed = tl.where(n0 == wanted, z0, tossed)
        z = tl.where(left, tossed, z)
        hit = (n0 == wanted) | (n1 == wanted) | (n2 == wanted) | (n3 == wanted)
        found = tl.where(hit, 1, 0)
        counter += 1
        turn += 1
        running = (found == 0) & (turn < ROUNDS)
    return z, found, counter


@triton.jit
def one_by_one(tilted_row, drawn_row, k, number, free_count, key, n, NODES: tl.constexpr):
    """Draw a row item by item from the characteristic function of what is left, in float64.

    Dividing an item's factor out keeps every node's value to full relative precision.
    """
    node = tl.arange(0, NODES).to(tl.float64)
    use = 2 * node < number
    node = tl.where(use, node, 0.0)
    twice = tl.where(use, tl.where(node > 0, 2.0, 1.0), 0.0).to(tl.float64)
    cosine, sine = rotation(node, number)
    real = twice * 0 + 1.0
    imag = twice * 0
    for i in range(n):
        t = tl.load(tilted_row + i).to(tl.float64)
        if tl.abs(t) < _INF:
            p = 1 / (1 + tl.exp(-t))
            q = 1 / (1 + tl.exp(t))
            a = q + p * cosine
            b = p * sine
            new = real * a - imag * b
            imag = real * b + imag * a
            real = new
    left = k
    rest = free_count
    one = tl.arange(0, 1)
    for i in range(n):
        t = tl.load(tilted_row + i).to(tl.float64)
        take = tl.where(t > 0, 1.0, 0.0).to(tl.float64)
        if tl.abs(t) < _INF:
            p = 1 / (1 + tl.exp(-t))
            q = 1 / (1 + tl.exp(t))
            a = q + p * cosine
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
            u = tl.sum(wide_uniform(key, one + i + _ONE_BY_ONE), 0)
            take = tl.where(u * (heads + tails) < heads, 1.0, 0.0).to(tl.float64)
            take = tl.where(left <= 0.5, 0.0, tl.where(left >= rest - 0.5, 1.0, take))
            left = left - take
            rest = rest - 1
        tl.store(drawn_row + i, take.to(tl.float32))
