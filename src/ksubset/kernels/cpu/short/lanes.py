"""Rows into lanes and back, and what is kept of them for the product."""

from __future__ import annotations

import math

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.simd import (
    BYTES,
    absolute,
    any_above,
    choose,
    load,
    load_pair,
    store,
    transpose,
    width,
)

MOST_ITEMS = 64  # half of them, 32, is as many flags as there are bits to a float32
# What lanes have one number of: items to choose, on which side, the logarithm of their odds,
# whether there is nothing to choose, by how much logits were shifted, and whether the row is left
# to others.
RARE, SIGN, ODDS, IDLE, SHIFT, ODD, MARKS = 0, 1, 2, 3, 4, 5, 6


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
def convert(source, first, target, to, have):
    """Rows of one type as rows of another."""
    for row in range(have):
        for i in range(source.shape[-1]):
            target[to + row, i] = source[first + row, i]


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
