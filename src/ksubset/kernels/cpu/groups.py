"""Loops over short rows side by side, in groups of lanes: what the kernels (:mod:`.entries`) run on
arrays, each in its thread.

As threads share rows by whole groups, results do not depend on their number. Rows with anything
out of the ordinary are left to :mod:`.rows`: the kernels note them in a list (:mod:`.left`), and
return how many they are.
"""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu import short
from ksubset.kernels.cpu.compile import allocating, inlined
from ksubset.kernels.cpu.simd import width

GROUP = 16


@inlined
def _leave(marks, r, have, left):
    """Note which rows of a group are left. Returns how many."""
    lanes, found = width(marks), 0
    for lane in range(have if short.any_odd(marks) else 0):
        if marks[short.ODD * lanes + lane] > 0:
            left[r + lane] = 1
            found += 1
    return found


@allocating
def tilt(first, last, left, logits, k, tilted):
    """Tilted logits."""
    n, lanes, found = logits.shape[-1], width(logits), 0
    work = np.empty((4, short.pairs(n) * lanes), logits.dtype)
    items, scratch, heads, tails = work[0], work[1], work[2], work[3]
    marks, bounds = np.empty(short.MARKS * lanes, logits.dtype), (0, 0, False)
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        short.gather(logits, r, have, items)
        bounds = short.gather_counts(k, r, have, n, bounds, items, marks)
        short.tilt(items, n, marks, scratch, heads, tails)
        short.scatter(items, tilted, r, have)
        short.put_back(logits, r, have, marks, tilted, r, True)
        found += _leave(marks, r, have, left)
    return found


@allocating
def covariance_product(first, last, left, tilted, kept, k, vectors, product):
    """Cov v, from coins that were kept, if there are any, or else from tilted logits."""
    n, lanes, found = product.shape[-1], width(product), 0
    many, row_size = short.pairs(n) * lanes, (n // 2 + 3) * 2 * lanes
    room = many + short.KEPT * lanes
    work = np.empty((5, many), product.dtype)
    t, v, weight, heads, tails = work[0], work[1], work[2], work[3], work[4]
    two_coins = np.empty(3 * many, product.dtype)
    prefix = np.zeros((short.pairs(n) // 2 + 1) * row_size, product.dtype)
    suffix = np.empty(row_size, product.dtype)
    marks, bounds = np.empty(short.MARKS * lanes, product.dtype), (0, 0, False)
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        short.gather(vectors, r, have, v)
        if len(kept) > 0:
            least, most = short.recall(n, kept, r // lanes * room, heads, tails, marks)
        else:
            short.gather(tilted, r, have, t)
            bounds = short.gather_counts(k, r, have, n, bounds, t, marks)
            least, most = bounds[0], bounds[1]
            short.toss(t, n, marks, heads, tails)
        short.covariance_product(
            n, least, most, marks, v, heads, tails, weight, two_coins, prefix, suffix
        )
        short.scatter(v, product, r, have)
        found += _leave(marks, r, have, left)
    return found


@allocating
def swap_product(first, last, left, tilted, kept, k, drawn, vectors, product):
    """sum_s L(z_s) v_s over the samples (samples * rows, n) of each row, with the product plan of
    swaps, from coins that were kept, if there are any, or else from tilted logits."""
    rows, n = product.shape
    lanes, found = width(product), 0
    many, row_size = short.pairs(n) * lanes, (n // 2 + 3) * lanes
    room = many + short.KEPT * lanes
    items = np.empty((7, many), product.dtype)
    t, heads, tails, rarer = items[0], items[1], items[2], items[3]
    z, v, added = items[4], items[5], items[6]
    prefix = np.zeros((short.pairs(n) // 2 + 1) * row_size, product.dtype)
    suffix = np.empty(row_size, product.dtype)
    marks, bounds = np.empty(short.MARKS * lanes, product.dtype), (0, 0, False)
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        if len(kept) > 0:
            least, most = short.recall(n, kept, r // lanes * room, heads, tails, marks)
        else:
            short.gather(tilted, r, have, t)
            bounds = short.gather_counts(k, r, have, n, bounds, t, marks)
            least, most = bounds[0], bounds[1]
            short.toss(t, n, marks, heads, tails)
        short.rarer_sides(n, least, most, marks, heads, tails, prefix, suffix, rarer)
        if len(drawn) == 0:
            added[:] = 0
        for s in range(r, len(drawn), rows):
            short.gather(drawn, s, have, z)
            short.gather(vectors, s, have, v)
            short.add_product(n, marks, heads, tails, rarer, z, v, t, added, s == r)
        short.scatter(added, product, r, have)
        found += _leave(marks, r, have, left)
    return found


@allocating
def infer(first, last, left, logits, k, log_partition, marginals, tilted, log_mass, shift, entropy):
    """All that ksubset.kernels.infer returns, and the entropy.

    Tilted as tilt and sample do it; the tables in float64, or their logarithms would show how many
    factors went into them.
    """
    n, found = logits.shape[-1], 0
    lanes, fewer, many = width(logits), width(shift), short.pairs(n)
    work = np.empty((4, many * lanes), logits.dtype)
    items, spare, heads, tails = work[0], work[1], work[2], work[3]
    marks, bounds = np.empty(short.MARKS * lanes, logits.dtype), (0, 0, False)
    block = np.empty((fewer, n), np.float64)
    wide = np.empty((5, many * fewer), np.float64)
    theta, t, wide_heads, wide_tails, mu = wide[0], wide[1], wide[2], wide[3], wide[4]
    wide_marks, wide_bounds = np.empty(short.MARKS * fewer, np.float64), (0, 0, False)
    prefix = np.zeros((many // 2 + 1) * (n // 2 + 3) * fewer, np.float64)
    suffix = np.empty((n // 2 + 3) * fewer, np.float64)
    totals = np.empty(short.TOTALS * fewer, np.float64)
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        short.gather(logits, r, have, items)
        bounds = short.gather_counts(k, r, have, n, bounds, items, marks)
        short.tilt(items, n, marks, spare, heads, tails)
        short.scatter(items, tilted, r, have)
        short.put_back(logits, r, have, marks, tilted, r, True)
        for start in range(0, have, fewer):
            some = min(fewer, have - start)
            short.convert(logits, r + start, block, 0, some)
            short.gather(block, 0, some, theta)
            short.convert(tilted, r + start, block, 0, some)
            short.gather(block, 0, some, t)
            wide_bounds = short.gather_counts(k, r + start, some, n, wide_bounds, t, wide_marks)
            short.toss(t, n, wide_marks, wide_heads, wide_tails)
            short.infer(
                n, wide_bounds[0], wide_bounds[1], wide_marks, theta, t, wide_heads, wide_tails,
                prefix, suffix, mu, totals,
            )  # fmt: skip
            short.scatter(mu, block, 0, some)
            short.convert(block, 0, marginals, r + start, some)
            short.put_back(tilted, r + start, some, wide_marks, marginals, r + start, False)
            for lane in range(some):
                at, mark = r + start + lane, start + lane
                odd = marks[short.ODD * lanes + mark] + wide_marks[short.ODD * fewer + lane]
                if odd > 0:
                    left[at] = 1
                    found += 1
                    continue
                shift[at] = marks[short.SHIFT * lanes + mark]
                log_partition[at], log_mass[at], entropy[at] = short.logarithms(
                    totals, lane, wide_marks, shift[at]
                )
    return found


@allocating
def sample(first, last, left, logits, k, seeds, tilted, kept, drawn):
    """Samples (samples * rows, n) for seeds (samples * rows), or for one and those that follow it.

    For the products tilted logits are written, or coins are kept: whichever has room.
    """
    rows, n = logits.shape
    lanes, found = width(logits), 0
    many = short.pairs(n) * lanes
    work = np.empty((5, many), logits.dtype)
    items, scratch, z, heads, tails = work[0], work[1], work[2], work[3], work[4]
    marks, bounds = np.empty(short.MARKS * lanes, logits.dtype), (0, 0, False)
    steps, keys = np.empty(lanes, np.uint64), np.empty(lanes, np.uint64)
    for lane in range(lanes):
        steps[lane] = lane
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        short.gather(logits, r, have, items)
        bounds = short.gather_counts(k, r, have, n, bounds, items, marks)
        short.tilt(items, n, marks, scratch, heads, tails)
        if len(kept) > 0:
            short.keep(n, heads, tails, marks, kept, r // lanes * (many + short.KEPT * lanes))
        else:
            short.scatter(items, tilted, r, have)
            short.put_back(logits, r, have, marks, tilted, r, True)
        for s in range(0, len(drawn), rows):
            # The tilt is done with the items and with its scratch.
            short.sample(
                n, bounds[0], bounds[1], marks, seeds, s + r, have, heads, tails, steps, keys,
                scratch, items, z,
            )  # fmt: skip
            short.scatter(z, drawn, s + r, have)
            short.put_back(logits, r, have, marks, drawn, s + r, False)
        found += _leave(marks, r, have, left)
    return found
