"""Short rows, as many side by side as a vector has lanes: one lane, one row.

Arrays are (items, lanes), flat, with room for an even number of items. With so few items the
paper's O(nk) tables, in linear space thanks to the tilt, take less work than nodes (moments.py): a
state is a handful of instructions for all lanes. Where more than half of the items are chosen,
lanes work on those left out: their logits change sign, which a covariance does not notice. Rows
with anything out of the ordinary (an infinite logit, no choice, a tilt that does not converge) are
left to tilt.py, moments.py and sampling.py. No lane depends on the others.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.noise import key, random_bits
from ksubset.kernels.cpu.simd import (
    BYTES,
    absolute,
    any_above,
    append,
    as_numbers,
    as_words,
    choose,
    exp,
    fill,
    finer_shares,
    flag,
    halves,
    load,
    load_pair,
    load_seeds,
    no_flags,
    pair,
    root,
    shares,
    store,
    sum_of_pair,
    transpose,
    where,
    width,
)

MOST_ITEMS = 64  # half of them, 32, is as many flags as there are bits to a float32
# What lanes have one number of: items to choose, on which side, the logarithm of their odds,
# whether there is nothing to choose, and whether the row is left to others.
RARE, SIGN, ODDS, IDLE, ODD, MARKS = 0, 1, 2, 3, 4, 5
_STEPS = 12
_NEAR = 0.25  # deviations from k that one more step takes to a hundredth
_REACH = 80.0  # exp of it is far from overflow, and exp(-80) no chance at all ...
_NONE = 2e-35  # ... nor a variance
_DRIFT = 4.0
_LIKELY = 2.0**31 - 2.0**22


@inlined
def pairs(n):
    """n rounded up to whole pairs of items."""
    return n + n % 2


def room_for_coins(rows: int, n: int, itemsize: int) -> int:
    """How many numbers are kept of rows: see :func:`keep`. 0 where they are not short."""
    if not 2 <= n <= MOST_ITEMS:
        return 0
    lanes = BYTES // itemsize
    return -(-rows // lanes) * (n + n % 2 + 1) * lanes


@inlined
def keep(n, heads, tails, marks, kept, at):
    """Write the coins of a group, for :func:`recall`, from a place on: of each the rarer side,
    negative if it is tails (no chance is 0 here, see _odds_of). And which lanes are odd."""
    lanes = width(kept)
    for i in range(0, n * lanes, 2 * lanes):
        p = load_pair(heads, i)
        store(kept, at + i, choose(p, 0.5, 0.0 - load_pair(tails, i), p))
    store(kept, at + pairs(n) * lanes, load(marks, ODD * lanes))


@inlined
def recall(n, kept, at, heads, tails, marks):
    """The opposite."""
    lanes = width(kept)
    for i in range(0, n * lanes, 2 * lanes):
        rarer = load_pair(kept, at + i)
        x = absolute(rarer)
        store(heads, i, choose(0.0, rarer, 1.0 - x, x))
        store(tails, i, choose(0.0, rarer, x, 1.0 - x))
    store(marks, ODD * lanes, load(kept, at + pairs(n) * lanes))


@inlined
def any_odd(marks):
    """Whether any lane is left to others."""
    return any_above(load(marks, ODD * width(marks)), 0.0)


@inlined
def gather(rows, first, have, items):
    """Transpose ``have`` rows from ``first`` on into the lanes; the other lanes repeat the last."""
    lanes, n = width(items), rows.shape[-1]
    if have == lanes and n >= lanes:
        for i in range(0, n, lanes):
            block = min(i, n - lanes)  # the last two may overlap
            transpose(rows, first * n + block, n, items, block * lanes, lanes)
        return
    for lane in range(lanes):
        row = first + min(lane, have - 1)
        for i in range(n):
            items[i * lanes + lane] = rows[row, i]


@inlined
def scatter(items, rows, first, have):
    """And back."""
    lanes, n = width(items), rows.shape[-1]
    if have == lanes and n >= lanes:
        for i in range(0, n, lanes):
            block = min(i, n - lanes)
            transpose(items, block * lanes, lanes, rows, first * n + block, n)
        return
    for lane in range(have):
        for i in range(n):
            rows[first + lane, i] = items[i * lanes + lane]


@inlined
def gather_counts(k, first, have, n, before, marks):
    """How many items lanes choose or, where SIGN is -1, leave out: at least 1, at most n / 2.

    Returns the least and the most. ``before`` is what the group before got, (0, 0) for the first:
    most often all counts are the same.
    """
    lanes = width(marks)
    if before[1] > 0 and have == lanes:
        same = True
        for row in range(first, first + lanes):
            same &= k[row] == k[row - lanes]
        if same:
            return before
    least, most = n, 0
    for lane in range(lanes):
        count = k[first + min(lane, have - 1)]
        rare = min(max(min(count, n - count), 1), n // 2)
        marks[IDLE * lanes + lane] = 1 if count < 1 or count >= n else 0
        marks[SIGN * lanes + lane] = -1 if 2 * count > n else 1
        marks[RARE * lanes + lane] = rare
        marks[ODDS * lanes + lane] = math.log(rare / (n - rare))
        least, most = min(least, rare), max(most, rare)
    return least, most


@inlined
def _finish_pair(theta, n, side):
    """An item to make their number even: no coin, it falls tails for sure."""
    if n % 2:
        store(theta, n * width(theta), -1000.0 * side)


@inlined
def _odds_of(t):
    """exp(t), but for logits so far out that they are as good as infinite."""
    t = choose(-_REACH, t, -_REACH, t)
    return exp(choose(_REACH, t, t, _REACH))


@inlined
def tilt(theta, n, marks, scratch, heads, tails):
    """Tilt all lanes in place. What is left of a lane marked as odd is of no use.

    Fills heads and tails, the probabilities of coins (of signed logits) that are tilted nearly
    alike, which is another way to write the same law.
    """
    lanes = width(theta)
    zero, one = fill(theta, 0.0), fill(theta, 1.0)
    k, side = load(marks, RARE * lanes), load(marks, SIGN * lanes)
    _finish_pair(theta, n, side)
    mean, square = zero, zero
    for i in range(0, n * lanes, lanes):
        t = side * load(theta, i)
        mean = mean + t
        square = square + t * t
    # Infinite logits or NaN, and squares that overflow.
    strange = choose(np.inf, square, load(marks, IDLE * lanes), one)
    mean = mean * (1.0 / n)
    spread = square * (1.0 / n) - mean * mean
    # If the logits were normal, sigmoids of them would average to the sigmoid of a stretched mean.
    stretch = root(1.0 + choose(spread, 0.0, spread, 0.0) * 0.3926990817)
    c = choose(strange, 0.5, zero, load(marks, ODDS * lanes) * stretch - mean)
    # Odds once; those of another c are multiples of them.
    base, drift, pending, rebase = c, zero, one, one
    scale, sides = pair(one, one), pair(side, side)
    for step in range(_STEPS):
        if step == 0 or any_above(rebase, 0.5):
            bases, lost, anew = pair(base, base), pair(strange, strange), pair(rebase, rebase)
            for i in range(0, n * lanes, 2 * lanes):
                value = _odds_of(choose(lost, 0.5, 0.0, sides * load_pair(theta, i)) + bases)
                if step > 0:
                    value = choose(anew, 0.5, value, load_pair(scratch, i))
                store(scratch, i, value)
        sums, spreads = fill(scale, 0.0), fill(scale, 0.0)
        for i in range(0, n * lanes, 2 * lanes):
            value = scale * load_pair(scratch, i)
            q = 1.0 / (1.0 + value)
            p = value * q
            store(heads, i, p)
            store(tails, i, q)
            sums = sums + p
            spreads = spreads + p * q
        heads_mean, variance = sum_of_pair(sums), sum_of_pair(spreads)
        excess = heads_mean - k
        variance = choose(variance, 1e-30, variance, 1e-30)
        deviation = root(variance)
        far = choose(absolute(excess), _NEAR * choose(deviation, 1.0, deviation, 1.0), one, zero)
        # Newton on the logarithm of the mean, 2 (r - 1) / (r + 1) for log r; near the root the
        # plain step is the last one.
        move = 2.0 * heads_mean / (k + heads_mean)
        move = choose(far, 0.5, move, one) * (0.0 - excess) / variance
        move = choose(move, _DRIFT, _DRIFT, choose(0.0 - _DRIFT, move, 0.0 - _DRIFT, move))
        c = c + choose(pending, 0.5, move, zero)
        pending = choose(far, 0.5, pending, zero)
        if not any_above(pending, 0.5):
            break
        drift = choose(pending, 0.5, c - base, drift)
        rebase = choose(absolute(drift), _DRIFT, one, zero)
        base = choose(rebase, 0.5, c, base)
        drift = choose(rebase, 0.5, zero, drift)
        scale = exp(pair(drift, drift))
    for i in range(0, n * lanes, lanes):
        store(theta, i, load(theta, i) + side * c)
    # Far from zero, c has no room for the digits that matter.
    store(marks, ODD * lanes, strange + pending + choose(absolute(c), 1000.0, one, zero))


@inlined
def toss(t, n, marks, heads, tails):
    """Probabilities of the coins of tilted logits, for :func:`covariance_product`."""
    lanes = width(t)
    side = load(marks, SIGN * lanes)
    sides = pair(side, side)
    size = fill(sides, 0.0)
    _finish_pair(t, n, side)
    for i in range(0, n * lanes, 2 * lanes):
        at = sides * load_pair(t, i)
        size = size + absolute(at)
        value = _odds_of(at)
        q = 1.0 / (1.0 + value)
        store(heads, i, value * q)
        store(tails, i, q)
    strange = choose(np.inf, sum_of_pair(size), 0.0, fill(t, 1.0))
    store(marks, ODD * lanes, strange + load(marks, IDLE * lanes))


@inlined
def _coin(heads, weight, v, mean, at):
    """p and p q v, v less its mean, which takes the place of p q."""
    both = load(weight, at)
    s = choose(both, _NONE, both * (load(v, at) - mean), 0.0)
    store(weight, at, s)
    return load(heads, at), s


@inlined
def _toss(coins, x, x_dev, y, y_dev, z, z_dev):
    """A state after two more coins, from those with none, one and both of their heads."""
    none, one, both, none_dev, one_dev, both_dev = coins
    chance = none * x + one * y + both * z
    dev = none * x_dev + one * y_dev + both * z_dev
    return chance, dev + (none_dev * x + one_dev * y + both_dev * z)


@inlined
def _two_coins(coins, i):
    """Chances of none, one and two heads of items i and i + 1, and the deviations that go with
    them."""
    lanes = width(coins)
    at = 3 * i * lanes
    return (
        load(coins, at), load(coins, at + lanes), load(coins, at + 2 * lanes),
        load(coins, at + 3 * lanes), load(coins, at + 4 * lanes), load(coins, at + 5 * lanes),
    )  # fmt: skip


@inlined
def _share(p, q, s, chances, mean, other, other_tails, other_s):
    """An item's covariance with V, times the probability of k: from the chances, and the
    deviations, of the others and its companion to lack 0, 1 or 2 heads without the two."""
    none, one, both, none_dev, one_dev, both_dev = chances
    # Where heads are likely, from the counts that the item leaves as they are.
    low, low_dev = choose(p, 0.5, none, one), choose(p, 0.5, none_dev, one_dev)
    high, high_dev = choose(p, 0.5, one, both), choose(p, 0.5, one_dev, both_dev)
    chance = other_tails * low + other * high
    dev = other_tails * low_dev + other * high_dev + other_s * (high - low)
    rarer = choose(p, 0.5, 0.0 - q, p)
    return rarer * (dev - mean * chance) + s * chance


@inlined
def covariance_product(n, least, most, marks, v, heads, tails, weight, coins, prefix, suffix):
    """v = Cov v, of no use where a lane is marked as odd.

    With V = sum_j v_j (z_j - p_j), tables of P(S_i = j) and E[V_i; S_i = j] over the first i items,
    and of the same over the others: each item's covariance with V is a sum over the counts before
    it. Two items at a time, and only states from which k can be reached. Probabilities are at most
    1 and that of k is not small, so that all may have the same absolute error; but what an item
    gets has the probability of its coin's rarer side as a factor, and so has its error: where heads
    are likely, Cov(z, V) = -Cov(1 - z, V), from counts that the item leaves as they are.
    coins: (pairs(n) / 2, 6, lanes), prefix: (pairs(n) / 2 + 1, n // 2 + 3, 2, lanes), zeros at
    first, with two states of them before each row, suffix: (n // 2 + 3, 2, lanes).
    """
    lanes = width(v)
    zero, one = fill(v, 0.0), fill(v, 1.0)
    k = load(marks, RARE * lanes)
    if n % 2:
        store(v, n * lanes, zero)
    spreads, sums = pair(zero, zero), pair(zero, zero)
    for i in range(0, n * lanes, 2 * lanes):
        both = load_pair(heads, i) * load_pair(tails, i)
        store(weight, i, both)
        spreads = spreads + both
        sums = sums + choose(both, _NONE, both * load_pair(v, i), 0.0)
    variance = sum_of_pair(spreads)
    mean = sum_of_pair(sums) / choose(variance, 1e-30, variance, 1e-30)

    cell, items = 2 * lanes, pairs(n)
    line = (n // 2 + 3) * cell
    for i in range(0, items, 2):
        here, at = i * lanes, 3 * i * lanes
        p, s = _coin(heads, weight, v, mean, here)
        q, r = _coin(heads, weight, v, mean, here + lanes)
        no_p, no_q = load(tails, here), load(tails, here + lanes)
        store(coins, at, no_p * no_q)
        store(coins, at + lanes, no_p * q + p * no_q)
        store(coins, at + 2 * lanes, p * q)
        store(coins, at + 3 * lanes, zero - (s * no_q + r * no_p))
        store(coins, at + 4 * lanes, s * (no_q - q) + r * (no_p - p))
        store(coins, at + 5 * lanes, s * q + r * p)

    store(prefix, 2 * cell, one)
    for i in range(0, items, 2):
        two = _two_coins(coins, i)
        lowest, last = max(0, least - (items - 2 - i)), min(i + 2, most)
        at = i // 2 * line + lowest * cell
        z, z_dev = load(prefix, at), load(prefix, at + lanes)
        y, y_dev = load(prefix, at + cell), load(prefix, at + cell + lanes)
        at += 2 * cell
        for _ in range(lowest, last + 1):
            x, x_dev = load(prefix, at), load(prefix, at + lanes)
            chance, dev = _toss(two, x, x_dev, y, y_dev, z, z_dev)
            store(prefix, at + line, chance)
            store(prefix, at + line + lanes, dev)
            z, z_dev, y, y_dev = y, y_dev, x, x_dev
            at += cell

    mass, mean = zero, zero
    for j in range(most + 3):
        last = choose(0.5, absolute(k - j), one, zero)
        store(suffix, j * cell, last)
        store(suffix, j * cell + lanes, zero)
        if least <= j <= most:
            at = items // 2 * line + (j + 2) * cell
            mass = mass + last * load(prefix, at)
            mean = mean + last * load(prefix, at + lanes)
    inverse = 1.0 / mass
    mean = mean * inverse
    for i in range(items - 2, -1, -2):
        lowest, last = max(0, least - (items - i)), min(i, most)
        at, to = i // 2 * line + (lowest + 2) * cell, lowest * cell
        x, x_dev = load(suffix, to), load(suffix, to + lanes)
        y, y_dev = load(suffix, to + cell), load(suffix, to + cell + lanes)
        none, single, both = zero, zero, zero
        # Two sums each: as one, every product would wait for the one before.
        none_dev, single_dev, both_dev = zero, zero, zero
        none_rest, single_rest, both_rest = zero, zero, zero
        for _ in range(lowest, last + 1):
            z, z_dev = load(suffix, to + 2 * cell), load(suffix, to + 2 * cell + lanes)
            chance, dev = load(prefix, at), load(prefix, at + lanes)
            none = none + chance * x
            none_dev = none_dev + dev * x
            none_rest = none_rest + chance * x_dev
            single = single + chance * y
            single_dev = single_dev + dev * y
            single_rest = single_rest + chance * y_dev
            both = both + chance * z
            both_dev = both_dev + dev * z
            both_rest = both_rest + chance * z_dev
            x, x_dev, y, y_dev = y, y_dev, z, z_dev
            at, to = at + cell, to + cell
        if i > 0:
            two = _two_coins(coins, i)
            to = lowest * cell
            x, x_dev = load(suffix, to), load(suffix, to + lanes)
            y, y_dev = load(suffix, to + cell), load(suffix, to + cell + lanes)
            for _ in range(lowest, last + 1):
                z, z_dev = load(suffix, to + 2 * cell), load(suffix, to + 2 * cell + lanes)
                chance, dev = _toss(two, x, x_dev, y, y_dev, z, z_dev)
                store(suffix, to, chance)
                store(suffix, to + lanes, dev)
                x, x_dev, y, y_dev = y, y_dev, z, z_dev
                to += cell
        chances = (
            none, single, both,
            none_dev + none_rest, single_dev + single_rest, both_dev + both_rest,
        )  # fmt: skip
        here, there = i * lanes, (i + 1) * lanes
        p, no_p, s = load(heads, here), load(tails, here), load(weight, here)
        q, no_q, r = load(heads, there), load(tails, there), load(weight, there)
        store(v, here, _share(p, no_p, s, chances, mean, q, no_q, r) * inverse)
        store(v, there, _share(q, no_q, r, chances, mean, p, no_p, s) * inverse)


@inlined
def sample(n, least, most, marks, seeds, first, have, heads, tails, steps, keys, row, decided, z):
    """Fill z by the backward DP; lanes whose tilt failed are drawn too, to no use.

    Whether to take an item is decided for all counts that may be left by then, while the table
    grows, each with a number of the item's own; afterwards the decisions are followed
    from the last item on. An item is taken if u (without + with) < with: compared as
    u without < (1 - u) with, which has all digits for rare items and for nearly certain ones.
    steps: 0, 1, 2 ... for a single seed and those that follow it.
    """
    lanes = width(heads)
    zero, one = fill(heads, 0.0), fill(heads, 1.0)
    if len(seeds) == 1:
        mixed = key(load_seeds(steps, 0, heads) + np.uint64(seeds[0] + first))
    elif have == lanes:
        mixed = key(load_seeds(seeds, first, heads))
    else:
        for lane in range(lanes):
            keys[lane] = seeds[first + min(lane, have - 1)]
        mixed = key(load_seeds(keys, 0, heads))
    for i in range(0, n, 2):
        whole = halves(heads, random_bits(mixed, np.uint64(i)))
        u, rest = shares(heads, whole)
        # A float32 that is not small has no room for more than the 31 bits.
        larger = choose(u, rest, u, rest)
        if heads.itemsize > 4 or any_above(larger, _LIKELY):
            more = halves(heads, random_bits(mixed, np.uint64(i + 1)))
            fine, fine_rest = finer_shares(heads, whole, more)
            if heads.itemsize > 4:
                u, rest = fine, fine_rest
            else:  # lanes that do not need them do not have them
                u = choose(larger, _LIKELY, fine, u)
                rest = choose(larger, _LIKELY, fine_rest, rest)
        store(decided, i * lanes, load_pair(tails, i * lanes) * u)
        store(z, i * lanes, load_pair(heads, i * lanes) * rest)
    store(row, 0, one)
    for i in range(n):
        p, q = load(heads, i * lanes), load(tails, i * lanes)
        reject, accept = load(decided, i * lanes), load(z, i * lanes)
        lowest = max(1, least - (n - 1 - i))
        flags = no_flags(heads)
        here = load(row, min(i, most) * lanes)
        if i < most:
            # As many are left as there are items.
            flags = append(flags, one, zero)
            store(row, (i + 1) * lanes, here * p)
        for j in range(min(i, most), lowest - 1, -1):
            below = load(row, (j - 1) * lanes)
            flags = append(flags, accept * below, reject * here)
            store(row, j * lanes, here * q + below * p)
            here = below
        store(row, (lowest - 1) * lanes, here * q)
        store(decided, i * lanes, as_numbers(heads, flags << (lowest - 1)))
    yes = choose(load(marks, SIGN * lanes), 0.0, one, zero)
    no = 1.0 - yes
    left = flag(load(marks, RARE * lanes) - 1.0)
    for i in range((n - 1) * lanes, -1, -lanes):
        take = as_words(load(decided, i)) & left
        store(z, i, where(take, yes, no))
        left = where(take, left >> 1, left)
