"""Short rows, as many side by side as a vector has lanes: one lane, one row.

Arrays are (items, lanes), flat. With so few items the paper's O(nk) tables, in linear space thanks
to the tilt, take less work than nodes (moments.py): a state is a handful of instructions for all
lanes. Where more than half of the items are chosen, lanes work on those left out: their logits
change sign, which a covariance does not notice. Rows with anything out of the ordinary (an infinite
logit, no choice, a tilt that does not converge) are left to tilt.py, moments.py and sampling.py. No
lane depends on the others.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.noise import key, numbered
from ksubset.kernels.cpu.simd import (
    absolute,
    append,
    as_numbers,
    as_words,
    choose,
    exp,
    exp_negative,
    fill,
    flag,
    fraction,
    load,
    load_seeds,
    no_flags,
    root,
    store,
    total,
    transpose,
    where,
    width,
)

MOST_ITEMS = 64  # half of them, 32, is as many flags as there are bits to a float32
_STEPS = 12
_REACH = 80.0  # exp of it is far from overflow, and exp(-80) no chance at all
_DRIFT = 4.0
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@part
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


@part
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


@part
def log_odds(n, out):
    """Those of a coin that falls heads k times in n, for all k up to a half."""
    for k in range(1, n // 2 + 1):
        out[k] = math.log(k / (n - k))


@part
def gather_counts(k, first, have, n, rare, sign, odd):
    """How many items lanes choose or, where sign is -1, leave out: at least 1, at most n / 2.

    Returns the least and the most, and marks in ``odd`` lanes without a choice.
    """
    least, most = n, 0
    for lane in range(width(rare)):
        count = k[first + min(lane, have - 1)]
        odd[lane] = 1 if count < 1 or count >= n else 0
        sign[lane] = -1 if 2 * count > n else 1
        few = min(max(min(count, n - count), 1), n // 2)
        rare[lane] = few
        least, most = min(least, few), max(most, few)
    return least, most


@part
def tilt(theta, n, rare, sign, odds, scratch, heads, tails, odd):
    """Tilt all lanes in place. What is left of a lane marked in ``odd`` is of no use.

    Fills heads and tails, the probabilities of coins (of signed logits) that are tilted nearly
    alike, which is another way to write the same law.
    """
    lanes = width(theta)
    zero, one = fill(theta, 0.0), fill(theta, 1.0)
    k, side = load(rare, 0), load(sign, 0)
    mean, square = zero, zero
    for i in range(0, n * lanes, lanes):
        t = side * load(theta, i)
        mean = mean + t
        square = square + t * t
    # Infinite logits or NaN, and squares that overflow.
    strange = choose(np.inf, square, load(odd, 0), one)
    mean = mean * (1.0 / n)
    spread = square * (1.0 / n) - mean * mean
    # If the logits were normal, sigmoids of them would average to the sigmoid of a stretched mean.
    stretch = root(1.0 + choose(spread, 0.0, spread, 0.0) * 0.3926990817)
    for lane in range(lanes):
        odd[lane] = odds[int(rare[lane])]
    c = choose(strange, 0.5, zero, load(odd, 0) * stretch - mean)
    # Odds once; those of another c are multiples of them.
    base, drift, scale, pending, rebase = c, zero, one, one, one
    for step in range(_STEPS):
        if step == 0 or total(rebase) > 0:
            for i in range(0, n * lanes, lanes):
                t = choose(strange, 0.5, zero, side * load(theta, i)) + base
                t = choose(t, _REACH, _REACH, choose(-_REACH, t, -_REACH, t))
                value = exp(t)
                if step > 0:
                    value = choose(rebase, 0.5, value, load(scratch, i))
                store(scratch, i, value)
        heads_mean, variance = zero, zero
        for i in range(0, n * lanes, lanes):
            value = scale * load(scratch, i)
            q = 1.0 / (1.0 + value)
            p = value * q
            store(heads, i, p)
            store(tails, i, q)
            heads_mean = heads_mean + p
            variance = variance + p * q
        excess = heads_mean - k
        variance = choose(variance, 1e-30, variance, 1e-30)
        deviation = root(variance)
        far = choose(absolute(excess), 0.05 * choose(deviation, 1.0, deviation, 1.0), one, zero)
        # Newton on the logarithm of the mean, 2 (r - 1) / (r + 1) for log r; near the root the
        # plain step is the last one.
        move = 2.0 * heads_mean / (k + heads_mean)
        move = choose(far, 0.5, move, one) * (0.0 - excess) / variance
        move = choose(move, _DRIFT, _DRIFT, choose(0.0 - _DRIFT, move, 0.0 - _DRIFT, move))
        c = c + choose(pending, 0.5, move, zero)
        pending = choose(far, 0.5, pending, zero)
        if total(pending) == 0:
            break
        drift = choose(pending, 0.5, c - base, drift)
        rebase = choose(absolute(drift), _DRIFT, one, zero)
        base = choose(rebase, 0.5, c, base)
        drift = choose(rebase, 0.5, zero, drift)
        scale = exp(drift)
    for i in range(0, n * lanes, lanes):
        store(theta, i, load(theta, i) + side * c)
    # Far from zero, c has no room for the digits that matter.
    store(odd, 0, strange + pending + choose(absolute(c), 1000.0, one, zero))


@part
def covariance_product(t, n, rare, least, most, sign, v, heads, weight, prefix, suffix, odd):
    """v = Cov v, but for the lanes marked in ``odd``.

    With V = sum_j v_j (z_j - p_j), tables of P(S_i = j) and E[V_i; S_i = j] over the first i items,
    and of the same over the others: each item's covariance with V is a sum over the counts before
    it. States from which k cannot be reached are left out. In place of probabilities, which sum to
    one, errors may be as small as the largest: tails need no digits of their own.
    prefix: (n + 1, most + 1, 2, lanes), suffix: (most + 2, 2, lanes).
    """
    lanes = width(t)
    zero, one = fill(t, 0.0), fill(t, 1.0)
    k, side = load(rare, 0), load(sign, 0)
    size, variance, weighted = zero, zero, zero
    for i in range(0, n * lanes, lanes):
        at = side * load(t, i)
        size = size + absolute(at)
        e = exp_negative(at)
        x = e / (1.0 + e)
        both = x - x * x
        store(heads, i, choose(at, 0.0, 1.0 - x, x))
        store(weight, i, both)
        variance = variance + both
        weighted = weighted + choose(both, 0.0, both * load(v, i), 0.0)
    store(odd, 0, choose(np.inf, size, load(odd, 0), one))
    mean = weighted / choose(variance, 1e-30, variance, 1e-30)

    columns, cell = most + 1, 2 * lanes
    store(prefix, 0, one)
    store(prefix, lanes, zero)
    for i in range(n):
        p, both = load(heads, i * lanes), load(weight, i * lanes)
        s = choose(both, 0.0, both * (load(v, i * lanes) - mean), 0.0)
        store(weight, i * lanes, s)
        lowest, highest = max(0, least - (n - 1 - i)), min(i, most)
        at = (i * columns + lowest) * cell
        to = at + columns * cell
        below, below_dev = zero, zero
        if lowest > 0:
            below, below_dev = load(prefix, at - cell), load(prefix, at - lanes)
        for _ in range(lowest, highest + 1):
            here, dev = load(prefix, at), load(prefix, at + lanes)
            rise = below - here
            store(prefix, to, here + p * rise)
            store(prefix, to + lanes, dev + p * (below_dev - dev) + s * rise)
            below, below_dev = here, dev
            at, to = at + cell, to + cell
        if i < most:
            store(prefix, to, p * below)
            store(prefix, to + lanes, p * below_dev + s * below)

    mass, mean = zero, zero
    for j in range(most + 2):
        last = choose(0.5, absolute(k - j), one, zero)
        store(suffix, j * cell, last)
        store(suffix, j * cell + lanes, zero)
        if least <= j <= most:
            at = (n * columns + j) * cell
            mass = mass + last * load(prefix, at)
            mean = mean + last * load(prefix, at + lanes)
    inverse = 1.0 / mass
    mean = mean * inverse
    for i in range(n - 1, -1, -1):
        p, s = load(heads, i * lanes), load(weight, i * lanes)
        lowest, highest = max(0, least - (n - i)), min(i, most)
        at, to = (i * columns + lowest) * cell, lowest * cell
        same, same_dev = load(suffix, to), load(suffix, to + lanes)
        chance, before, after = zero, zero, zero
        for _ in range(lowest, highest + 1):
            above, above_dev = load(suffix, to + cell), load(suffix, to + cell + lanes)
            here, dev = load(prefix, at), load(prefix, at + lanes)
            chance = chance + here * above
            before = before + dev * above
            after = after + here * above_dev
            rise = above - same
            store(suffix, to, same + p * rise)
            store(suffix, to + lanes, same_dev + p * (above_dev - same_dev) + s * rise)
            same, same_dev = above, above_dev
            at, to = at + cell, to + cell
        product = p * ((before + after) - mean * chance) + s * chance
        store(v, i * lanes, product * inverse)


@part
def sample(n, rare, least, most, sign, seeds, first, have, heads, tails, keys, row, decided, z):
    """Fill z by the backward DP; lanes whose tilt failed are drawn too, to no use.

    Whether to take an item is decided for all counts that may be left by then, while the table
    grows, each with the item's number as in sampling._by_dp; afterwards the decisions are followed
    from the last item on. An item is taken if u (without + with) < with: compared as
    u without < (1 - u) with, which has all digits for rare items and for nearly certain ones.
    """
    lanes = width(heads)
    zero, one = fill(heads, 0.0), fill(heads, 1.0)
    for lane in range(lanes):
        keys[lane] = key(seeds[first + min(lane, have - 1)])
    mixed = load_seeds(keys, heads)
    store(row, 0, one)
    for i in range(n):
        p, q = load(heads, i * lanes), load(tails, i * lanes)
        bits = numbered(mixed, i)
        reject, accept = q * fraction(heads, bits), p * fraction(heads, bits ^ _ALL)
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
    yes = choose(load(sign, 0), 0.0, one, zero)
    no = 1.0 - yes
    left = flag(load(rare, 0) - 1.0)
    for i in range((n - 1) * lanes, -1, -lanes):
        take = as_words(load(decided, i)) & left
        store(z, i, where(take, yes, no))
        left = where(take, left >> 1, left)
