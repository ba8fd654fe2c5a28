"""Samples, by the backward DP."""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.noise import key, random_bits
from ksubset.kernels.cpu.short.lanes import RARE, SIGN
from ksubset.kernels.cpu.simd import (
    any_above,
    append,
    as_numbers,
    as_words,
    choose,
    fill,
    finer_shares,
    flag,
    halves,
    load,
    load_pair,
    load_seeds,
    no_flags,
    shares,
    store,
    where,
    width,
)

_LIKELY = 2.0**31 - 2.0**22


@inlined
def sample(n, least, most, marks, seeds, first, have, heads, tails, steps, keys, row, decided, z):
    """Fill z by the backward DP; lanes whose tilt failed are drawn too, to no use.

    See :func:`decide`. steps: 0, 1, 2 ... for a single seed and those that follow it.
    """
    mixed = keys_of(seeds, first, have, steps, keys, heads)
    decide(n, least, most, mixed, heads, tails, row, decided, z)
    follow(n, flag(load(marks, RARE * width(heads)) - 1.0), marks, decided, z)


@inlined
def keys_of(seeds, first, have, steps, keys, like):
    """Of the lanes' samples."""
    if len(seeds) == 1:
        mixed = key(load_seeds(steps, 0, like) + np.uint64(seeds[0] + first))
    elif have == width(like):
        mixed = key(load_seeds(seeds, first, like))
    else:
        for lane in range(width(like)):
            keys[lane] = seeds[first + min(lane, have - 1)]
        mixed = key(load_seeds(keys, 0, like))
    return mixed


@inlined
def decide(n, least, most, mixed, heads, tails, row, decided, z):
    """Fill decided, and row with P(S = j) of all coins; z is scratch.

    Whether to take an item is decided for all counts that may be left by then, while the table
    grows, each with a number of the item's own; afterwards the decisions are followed
    from the last item on. An item is taken if u (without + with) < with: compared as
    u without < (1 - u) with, which has all digits for rare items and for nearly certain ones.
    """
    lanes = width(heads)
    zero, one = fill(heads, 0.0), fill(heads, 1.0)
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


@inlined
def follow(n, left, marks, decided, z):
    """Fill z with what was decided; left: bit k - 1 is set for a k of so many, and none for 0."""
    lanes = width(z)
    zero, one = fill(z, 0.0), fill(z, 1.0)
    yes = choose(load(marks, SIGN * lanes), 0.0, one, zero)
    no = 1.0 - yes
    for i in range((n - 1) * lanes, -1, -lanes):
        take = as_words(load(decided, i)) & left
        store(z, i, where(take, yes, no))
        left = where(take, left >> 1, left)
