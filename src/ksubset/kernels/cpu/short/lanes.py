"""Rows into lanes and back, and what is kept of them for the product."""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.simd import (
    BYTES,
    absolute,
    any_above,
    any_unequal,
    choose,
    fill,
    largest,
    load,
    load_pair,
    pair,
    smallest,
    store,
    transpose,
    width,
)

# At most half of the items, 32, show heads (see SIGN): a flag for each count fits into a float32.
MOST_ITEMS = 64
# Per-lane scalars: positions, in vectors, in the array `marks` of a group of rows.
RARE = 0  # how many items to choose, or to leave out (see SIGN)
ODD = 1  # 1 if the row is left to the kernels of long rows
SIGN = 2  # 1 if heads means chosen, -1 if heads means left out
KEPT = 3  # the number of scalars above, which are kept with the coins
# Used during one call only
ODDS = 3  # the logarithm of RARE / (coins - RARE)
IDLE = 4  # 1 if there is nothing to choose
SHIFT = 5  # what was added to the logits of the row
FREE = 6  # how many items are coins: those with finite logits
MEAN, SQUARE = 7, 8  # mean and mean square of the coins' logits, if some items are no coins
NEVER = 9  # items with logits up to this one are never chosen
SHIFT_OF_COINS = 10  # what was added to the logits of the coins
MARKS = 11  # the number of all these scalars
# Replaces a logit that is infinite, or so large that it makes no difference; times SIGN, so that
# the item, which is no coin, shows tails for certain.
NO_COIN = -1e30
_FAR = 1000.0  # a difference of logits whose exp is infinite in float32 and float64
_LARGE = 2.0**9  # logits below this one cannot be _FAR apart


@inlined
def pairs(n):
    """n rounded up to whole pairs of items."""
    return n + n % 2


def is_short(n: int) -> bool:
    """Whether rows of n items are worked on side by side, one in each lane."""
    return 2 <= n <= MOST_ITEMS


def room_for_coins(rows: int, n: int, itemsize: int) -> int:
    """The size of what :func:`keep` stores for all rows; 0 if rows are not short."""
    if not is_short(n):
        return 0
    lanes = BYTES // itemsize
    return -(-rows // lanes) * (n + n % 2 + KEPT) * lanes


@inlined
def keep(n, heads, tails, marks, kept, at):
    """Store the coins and scalars of a group of rows in ``kept``, from position ``at`` on, for
    :func:`recall`. A coin is one number: the probability of its rarer side, negative if that is
    tails (which is never zero, see _odds_of).
    """
    lanes = width(kept)
    for i in range(0, n * lanes, 2 * lanes):
        p = load_pair(heads, i)
        store(kept, at + i, choose(p, 0.5, 0.0 - load_pair(tails, i), p))
    for i in range(0, KEPT * lanes, lanes):
        store(kept, at + pairs(n) * lanes + i, load(marks, i))


@inlined
def recall(n, kept, at, heads, tails, marks):
    """Load what :func:`keep` stored. Returns the smallest and the largest RARE of the lanes."""
    lanes = width(kept)
    for i in range(0, n * lanes, 2 * lanes):
        rarer = load_pair(kept, at + i)
        x = absolute(rarer)
        store(heads, i, choose(0.0, rarer, 1.0 - x, x))
        store(tails, i, choose(0.0, rarer, x, 1.0 - x))
    for i in range(0, KEPT * lanes, lanes):
        store(marks, i, load(kept, at + pairs(n) * lanes + i))
    rare = load(marks, RARE * lanes)
    return int(smallest(rare)), int(largest(rare))


@inlined
def any_odd(marks):
    """Whether a row of the group is left to the kernels of long rows."""
    return any_above(load(marks, ODD * width(marks)), 0.0)


@inlined
def gather(rows, first, have, items):
    """Transpose ``have`` rows, from ``first`` on, into lanes: items (n, lanes). Further lanes
    repeat the last row.
    """
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
    """Transpose items (n, lanes) back into rows: the inverse of :func:`gather`."""
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
def _all_ordinary(items, n):
    """No logit is NaN or infinite, nor so large that it may be as good as that: 0 times a multiple
    of it is 0, unless the multiple overflows."""
    lanes = width(items)
    most = (2.0**127 if BYTES // lanes == 4 else 2.0**1023) / _LARGE * 2.0
    last = fill(items, 0.0)
    if n % 2:
        last = last * (most * load(items, (n - 1) * lanes))
    sums = pair(last, last)
    for i in range(0, (n - n % 2) * lanes, 2 * lanes):
        sums = sums + 0.0 * (most * load_pair(items, i))
    return not any_unequal(sums, 0.0)


@inlined
def gather_counts(k, first, have, n, before, items, marks):
    """How many items lanes choose or, where SIGN is -1, leave out: at least 1, at most n / 2. Items
    whose logits are infinite, or as good as that, are neither: from here on they are no coins.

    Returns the least and the most, and whether all items are coins. ``before`` is what the group
    before got, (0, 0, False) for the first: most often all counts are the same.
    """
    lanes = width(marks)
    ordinary = _all_ordinary(items, n)
    if ordinary and before[2] and have == lanes:
        same = True
        for row in range(first, first + lanes):
            same &= k[row] == k[row - lanes]
        if same:
            return before
    least, most = n, 0
    for lane in range(lanes):
        count, free = k[first + min(lane, have - 1)], n
        if not ordinary:
            count, free = _without_certain(count, n, lane, items, marks)
        rare = min(max(min(count, free - count), 1), max(free // 2, 1))
        side = -1 if 2 * count > free else 1
        marks[IDLE * lanes + lane] = 1 if count < 1 or count >= free else 0
        marks[SIGN * lanes + lane] = side
        marks[RARE * lanes + lane] = rare
        marks[ODDS * lanes + lane] = math.log(rare / max(free - rare, 1))
        marks[FREE * lanes + lane] = free
        least, most = min(least, rare), max(most, rare)
        for i in range(lane, 0 if ordinary else n * lanes, lanes):
            if abs(items[i]) == np.inf:
                items[i] = NO_COIN * side
    return least, most, ordinary


@inlined
def _without_certain(k, n, lane, items, marks):
    """How many of the items of a lane that are coins to choose, and how many there are."""
    lanes = width(items)
    top, bottom = -np.inf, np.inf
    for i in range(lane, n * lanes, lanes):
        t = np.float64(items[i])
        k -= t == np.inf
        if abs(t) < np.inf:
            top, bottom = max(top, t), min(bottom, t)
    never = -np.inf
    if bottom < top - _FAR and abs(top) < 1e6:
        # Far below all others, of which there are enough: as good as -inf.
        near, nearly = 0, 0
        for i in range(lane, n * lanes, lanes):
            near += top - _FAR <= items[i] <= top
            nearly += top - 2 * _FAR <= items[i] <= top
        if near == nearly and near >= k:
            never = top - 1.5 * _FAR
    free, mean, square = 0, 0.0, 0.0
    for i in range(lane, n * lanes, lanes):
        t = np.float64(items[i])
        if t <= never:
            items[i] = -np.inf
        elif t != np.inf:
            free += 1
            mean += t
            square += t * t
    marks[NEVER * lanes + lane] = never
    marks[MEAN * lanes + lane] = mean / max(free, 1)
    marks[SQUARE * lanes + lane] = square / max(free, 1)
    return k, free


@inlined
def put_back(logits, first, have, marks, rows, to, tilted):
    """Write into rows what is known of items that are no coins: their tilted logits, or that they
    are never or always chosen."""
    lanes, n = width(marks), logits.shape[-1]
    if not any_above(n - load(marks, FREE * lanes), 0.0):
        return
    for lane in range(have):
        for i in range(n if marks[FREE * lanes + lane] < n else 0):
            t = logits[first + lane, i]
            if t <= marks[NEVER * lanes + lane] or t == np.inf:
                chosen = 1 if t == np.inf else 0
                rows[to + lane, i] = t + marks[SHIFT * lanes + lane] if tilted else chosen
