"""Covariance products, by tables of counts."""

from __future__ import annotations

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.short.lanes import RARE, pairs
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    fill,
    load,
    load_pair,
    pair,
    store,
    sum_of_pair,
    width,
)

_NONE = 2e-35  # the variance of a coin without a chance, see tilt.REACH


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
