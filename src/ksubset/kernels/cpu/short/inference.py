"""Marginals and what partition function and entropy are made of, by tables of counts."""

from __future__ import annotations

import math

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.short.lanes import FREE, ODD, RARE, SIGN, pairs
from ksubset.kernels.cpu.short.tilt import REACH
from ksubset.kernels.cpu.simd import absolute, choose, fill, load, store, width

# One number of each lane: the probability of k heads, the product of the probabilities of the
# likelier sides, the sum of |t| times the marginals of the rarer ones, and of positive t their
# number and the sum of their logits.
MASS, LIKELIER, CROSS, UPS, LIKELY, TOTALS = 0, 1, 2, 3, 4, 5
# Of sums of logits: those near the end of the range of float64 may cancel, and must not overflow.
SCALE = 2.0**-64


@inlined
def rarer_sides(n, least, most, marks, heads, tails, prefix, suffix, rarer):
    """Fill rarer with the probability that an item's coin shows its rarer side, given k heads.
    Returns the probability of k heads, lane by lane; of no use for odd lanes.

    P(S_i = j) over the first i items and over the others, two items at a time, and only counts
    from which k can be reached: see product.py. An item's rarer side has its probability as a
    factor, and so all digits.
    prefix: (pairs(n) / 2 + 1, n // 2 + 3, lanes), zeros at first, with two states of them before
    each row; suffix: (n // 2 + 3, lanes).
    """
    lanes = width(rarer)
    zero, one = fill(rarer, 0.0), fill(rarer, 1.0)
    k, items = load(marks, RARE * lanes), pairs(n)
    line = (n // 2 + 3) * lanes
    store(prefix, 2 * lanes, one)
    for i in range(0, items, 2):
        p, q = load(heads, i * lanes), load(heads, (i + 1) * lanes)
        no_p, no_q = load(tails, i * lanes), load(tails, (i + 1) * lanes)
        none, single, both = no_p * no_q, no_p * q + p * no_q, p * q
        lowest, last = max(0, least - (items - 2 - i)), min(i + 2, most)
        at = i // 2 * line + lowest * lanes
        z, y = load(prefix, at), load(prefix, at + lanes)
        for _ in range(lowest, last + 1):
            x = load(prefix, at + 2 * lanes)
            store(prefix, at + 2 * lanes + line, none * x + single * y + both * z)
            z, y = y, x
            at += lanes

    mass = zero
    for j in range(most + 3):
        last = choose(0.5, absolute(k - j), one, zero)
        store(suffix, j * lanes, last)
        if least <= j <= most:
            mass = mass + last * load(prefix, items // 2 * line + (j + 2) * lanes)
    inverse = 1.0 / mass
    for i in range(items - 2, -1, -2):
        lowest, last = max(0, least - (items - i)), min(i, most)
        p, q = load(heads, i * lanes), load(heads, (i + 1) * lanes)
        no_p, no_q = load(tails, i * lanes), load(tails, (i + 1) * lanes)
        none, single, both = no_p * no_q, no_p * q + p * no_q, p * q
        at, to = i // 2 * line + (lowest + 2) * lanes, lowest * lanes
        x, y = load(suffix, to), load(suffix, to + lanes)
        # The chances of the others to lack 0, 1 and 2 heads.
        full, lack, lack_both = zero, zero, zero
        for _ in range(lowest, last + 1):
            z, chance = load(suffix, to + 2 * lanes), load(prefix, at)
            full = full + chance * x
            lack = lack + chance * y
            lack_both = lack_both + chance * z
            store(suffix, to, none * x + single * y + both * z)
            x, y = y, z
            at, to = at + lanes, to + lanes
        first = choose(p, 0.5, no_p * (no_q * full + q * lack), p * (no_q * lack + q * lack_both))
        other = choose(q, 0.5, no_q * (no_p * full + p * lack), q * (no_p * lack + p * lack_both))
        store(rarer, i * lanes, first * inverse)
        store(rarer, (i + 1) * lanes, other * inverse)
    return mass


@inlined
def infer(n, least, most, marks, theta, t, heads, tails, prefix, suffix, marginals, totals):
    """Fill marginals and totals from logits, tilted ones and their coins; of no use for odd lanes.

    Tables as in :func:`rarer_sides`.
    """
    lanes = width(t)
    zero, one = fill(t, 0.0), fill(t, 1.0)
    mass = rarer_sides(n, least, most, marks, heads, tails, prefix, suffix, marginals)
    side = load(marks, SIGN * lanes)
    likelier, cross, ups, likely, furthest = one, zero, zero, zero, zero
    for i in range(0, n * lanes, lanes):
        p, rarer = load(heads, i), load(marginals, i)
        at = choose(p, 0.0, load(t, i), zero)  # but of what is no coin
        distance = absolute(at)
        furthest = choose(distance, furthest, distance, furthest)
        likelier = likelier * choose(p, 0.5, p, load(tails, i))
        cross = cross + distance * rarer
        ups = ups + choose(at, 0.0, one, zero)
        likely = likely + choose(at, 0.0, load(theta, i) * SCALE, zero)
        heads_here = choose(p, 0.5, 1.0 - rarer, rarer)
        tails_here = choose(p, 0.5, rarer, 1.0 - rarer)
        store(marginals, i, choose(side, 0.0, heads_here, tails_here))
    store(totals, MASS * lanes, mass)
    store(totals, LIKELIER * lanes, likelier)
    store(totals, CROSS * lanes, cross)
    store(totals, UPS * lanes, ups)
    store(totals, LIKELY * lanes, likely)
    # Beyond the reach coins are all alike, and not as rare as they should be.
    odd = load(marks, ODD * lanes)
    store(marks, ODD * lanes, odd + choose(furthest, REACH, one, zero))


@inlined
def logarithms(totals, lane, marks, shift):
    """The log-partition of a lane, the logarithm of the probability of k heads, the entropy."""
    lanes = width(totals)
    rare = marks[RARE * lanes + lane]
    k = rare if marks[SIGN * lanes + lane] > 0 else marks[FREE * lanes + lane] - rare
    mass = math.log(totals[MASS * lanes + lane])
    likelier = math.log(totals[LIKELIER * lanes + lane])
    more = totals[UPS * lanes + lane] - k
    logits = (totals[LIKELY * lanes + lane] + shift * SCALE * more) / SCALE
    log_partition = mass - likelier + logits
    return log_partition, mass, max(mass + totals[CROSS * lanes + lane] - likelier, 0.0)
