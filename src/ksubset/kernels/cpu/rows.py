"""Loops over rows: what the kernels (:mod:`.entries`) run on arrays, each in its thread.

A long row is worked on as a whole, in scratch arrays padded to whole vectors; short ones go side by
side, in groups of ``GROUP``. As threads share rows by whole groups, results do not depend on their
number. NaN marks a row that admits no k-subset.
"""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu import gap, moments, sampling, series, short, swaps
from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.moments import COIN_ARRAYS, MOST_NODES, NODE_ARRAYS
from ksubset.kernels.cpu.noise import key
from ksubset.kernels.cpu.series import LANES, SUMS
from ksubset.kernels.cpu.short import SCALE
from ksubset.kernels.cpu.simd import copy, width
from ksubset.kernels.cpu.tilt import padded, tilt_row

GROUP = 16
IMPOSSIBLE = 1 << 32  # among what sample returns, a row that admits none
_FOLD = 512
_NARROW_ITEMS = 2048  # see moments.gather


@part
def _is_short(n):
    return 2 <= n <= short.MOST_ITEMS


@part
def _scratch(like):
    n = like.shape[-1]
    row = np.empty(padded(n), like.dtype)
    coins = np.empty((COIN_ARRAYS, padded(n)), like.dtype)
    nodes = np.empty((NODE_ARRAYS, MOST_NODES), np.float64)
    narrow = np.empty((7, MOST_NODES), like.dtype)
    wide = np.empty((4, MOST_NODES), np.float64)
    powers = np.empty((4, SUMS), np.float64)
    lanes = np.empty(LANES, like.dtype)
    return row, coins, nodes, narrow, wide, powers, lanes


@part
def _copy(source, row, n):
    copy(source, row, n)
    for i in range(n, padded(n)):
        row[i] = -np.inf


@part
def _whole_vectors(source, row, n):
    """The items in whole vectors: as they lie, or copied."""
    if n == padded(n):
        return source
    _copy(source, row, n)
    return row


@part
def _tilt_one(theta, n, k, row, tilted):
    _copy(theta, row, n)
    shift = tilt_row(row, n, k)
    copy(row, tilted, n)
    return shift


@part
def tilt(first, last, logits, k, tilted):
    """Tilted logits."""
    n = logits.shape[-1]
    row = np.empty(padded(n), logits.dtype)
    lanes = width(logits)
    if not _is_short(n):
        for r in range(first, last):
            _tilt_one(logits[r], n, k[r], row, tilted[r])
        return
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
        for lane in range(have if short.any_odd(marks) else 0):
            if marks[short.ODD * lanes + lane] > 0:
                _tilt_one(logits[r + lane], n, k[r + lane], row, tilted[r + lane])


@part
def _covariance_one(row, k, v, n, tail, decay, scratch, work, product):
    """Of tilted logits in whole vectors."""
    _, coins, nodes, narrow, wide, sums, lanes = scratch
    if np.isnan(row[0]):
        product[:] = np.nan
        return
    copy(v, work, n)
    for i in range(n, padded(n)):
        work[i] = 0
    variance, free, ups, likely, mean, top = moments.toss(row, n, coins)
    moments.centre(work, n, coins, variance)
    count, number = moments.place_nodes(variance, free, tail, decay, nodes)
    powers = series.powers_for(top, mean, variance, decay)
    if powers > 0:
        series.power_sums(n, coins, powers, lanes, sums)
        certain = ups - likely
        series.characteristic(count, number, k - certain, mean, powers, sums, nodes)
        series.deviations(count, powers, sums, nodes)
        moments.weigh(count, number, 0, nodes)
        moments.centre_deviations(count, nodes)
        series.combine(n, coins, count, powers, nodes, sums[2:], narrow, work)
        copy(work, product, n)
        return
    if n <= _NARROW_ITEMS:
        count = moments.gather(n, coins, count, decay, nodes, narrow)
    else:
        moments.characteristic(n, coins, count, nodes, wide)
        moments.deviations(n, coins, count, nodes, narrow)
    moments.weigh(count, number, k - ups, nodes)
    moments.centre_deviations(count, nodes)
    moments.combine(n, coins, count, nodes, narrow, work)
    copy(work, product, n)


@part
def covariance_product(first, last, logits, tilted, kept, k, vectors, tail, decay, product):
    """Cov v, from coins that were kept, if there are any, or else from tilted logits."""
    n = tilted.shape[-1]
    scratch = _scratch(tilted)
    row = scratch[0]
    one = np.empty(padded(n), tilted.dtype)
    if not _is_short(n):
        for r in range(first, last):
            one_row = _whole_vectors(tilted[r], row, n)
            _covariance_one(one_row, k[r], vectors[r], n, tail, decay, scratch, one, product[r])
        return
    lanes = width(tilted)
    many, row_size = short.pairs(n) * lanes, (n // 2 + 3) * 2 * lanes
    room = many + short.KEPT * lanes
    work = np.empty((5, many), tilted.dtype)
    t, v, weight, heads, tails = work[0], work[1], work[2], work[3], work[4]
    two_coins = np.empty(3 * many, tilted.dtype)
    prefix = np.zeros((short.pairs(n) // 2 + 1) * row_size, tilted.dtype)
    suffix = np.empty(row_size, tilted.dtype)
    marks, bounds = np.empty(short.MARKS * lanes, tilted.dtype), (0, 0, False)
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
        for lane in range(have if short.any_odd(marks) else 0):
            if marks[short.ODD * lanes + lane] > 0:
                at = r + lane
                if len(kept) > 0:
                    _copy(logits[at], row, n)
                    tilt_row(row, n, k[at])
                else:
                    _copy(tilted[at], row, n)
                _covariance_one(row, k[at], vectors[at], n, tail, decay, scratch, one, product[at])


@part
def _swap_one(row, at, rows, k, drawn, vectors, tail, decay, scratch, work, product):
    """Of the row at this place, from its tilted logits in whole vectors."""
    _, coins, nodes, narrow, wide, sums, lanes = scratch
    n = vectors.shape[-1]
    if np.isnan(row[0]):
        product[at] = np.nan
        return
    if len(drawn) == 0:
        product[at] = 0
        return
    variance, free, ups, likely, mean, top = moments.toss(row, n, coins)
    count, number = moments.place_nodes(variance, free, tail, decay, nodes)
    powers = series.powers_for(top, mean, variance, decay)
    if powers > 0:
        series.probability_sums(n, coins, powers, lanes, sums)
        certain = ups - likely
        series.characteristic(count, number, k - certain, mean, powers, sums, nodes)
        moments.weigh(count, number, 0, nodes)
        series.prepare_correction(count, powers, nodes, sums[2:], narrow)
    else:
        if n <= _NARROW_ITEMS:
            count = moments.gather_characteristic(n, coins, count, decay, nodes, narrow)
        else:
            moments.characteristic(n, coins, count, nodes, wide)
        moments.weigh(count, number, k - ups, nodes)
        moments.prepare_correction(count, nodes, narrow)
    swaps.add_swaps(at, rows, coins, variance, count, powers, narrow, drawn, vectors, work, product)


@part
def swap_product(first, last, logits, tilted, kept, k, drawn, vectors, tail, decay, product):
    """sum_s L(z_s) v_s over the samples (samples * rows, n) of each row, with the product plan of
    swaps, from coins that were kept, if there are any, or else from tilted logits."""
    rows, n = product.shape
    scratch = _scratch(tilted)
    row = scratch[0]
    work = np.empty((5, padded(n)), tilted.dtype)
    if not _is_short(n):
        for r in range(first, last):
            one_row = _whole_vectors(tilted[r], row, n)
            _swap_one(one_row, r, rows, k[r], drawn, vectors, tail, decay, scratch, work, product)
        return
    lanes = width(tilted)
    many, row_size = short.pairs(n) * lanes, (n // 2 + 3) * lanes
    room = many + short.KEPT * lanes
    items = np.empty((7, many), tilted.dtype)
    t, heads, tails, rarer = items[0], items[1], items[2], items[3]
    z, v, added = items[4], items[5], items[6]
    prefix = np.zeros((short.pairs(n) // 2 + 1) * row_size, tilted.dtype)
    suffix = np.empty(row_size, tilted.dtype)
    marks, bounds = np.empty(short.MARKS * lanes, tilted.dtype), (0, 0, False)
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
        for lane in range(have if short.any_odd(marks) else 0):
            if marks[short.ODD * lanes + lane] > 0:
                at = r + lane
                if len(kept) > 0:
                    _copy(logits[at], row, n)
                    tilt_row(row, n, k[at])
                else:
                    _copy(tilted[at], row, n)
                _swap_one(row, at, rows, k[at], drawn, vectors, tail, decay, scratch, work, product)


@part
def _infer_one(k, logits, tail, decay, scratch, rarer, marginals, tilted):
    """Fill marginals and tilted. Returns the log-partition, the logarithm of the probability of k
    heads, the shift and the entropy."""
    row, coins, nodes, narrow, wide, sums, lanes = scratch
    n = len(logits)
    shift = _tilt_one(logits, n, k, row, tilted)
    if np.isnan(row[0]):
        marginals[:] = np.nan
        return np.nan, np.nan, np.nan, np.nan
    variance, free, ups, likely, mean, top = moments.toss(row, n, coins)
    log_likelier = moments.log_likelier(n, coins)
    count, number = moments.place_nodes(variance, free, tail, decay, nodes)
    powers = series.powers_for(top, mean, variance, decay)
    if variance < gap.MOST_VARIANCE and ups == k:
        mass = log_likelier + gap.infer(n, coins, rarer)
    elif powers > 0:
        series.probability_sums(n, coins, powers, lanes, sums)
        certain = ups - likely
        series.characteristic(count, number, k - certain, mean, powers, sums, nodes)
        mass = moments.weigh(count, number, 0, nodes)
        series.correct(n, coins, count, powers, nodes, sums[2:], narrow, rarer)
    else:
        moments.characteristic(n, coins, count, nodes, wide)
        mass = moments.weigh(count, number, k - ups, nodes)
        moments.correct(n, coins, count, nodes, narrow, rarer)
    cross, likely = 0.0, 0.0
    for block in range(0, n, _FOLD):
        # By blocks: equal terms would all be rounded the same way.
        cross_here, likely_here = 0.0, 0.0
        for i in range(block, min(block + _FOLD, n)):
            up = row[i] > 0
            marginals[i] = 1 - rarer[i] if up else rarer[i]
            if abs(row[i]) < np.inf:
                cross_here += np.float64(abs(row[i])) * np.float64(rarer[i])
            if up and logits[i] < np.inf:
                likely_here += np.float64(logits[i]) * SCALE
        cross += cross_here
        likely += likely_here
    log_partition = mass - log_likelier + (likely + shift * SCALE * (ups - k)) / SCALE
    return log_partition, mass, shift, max(mass + cross - log_likelier, 0.0)


@part
def infer(
    first, last, logits, k, tail, decay, log_partition, marginals, tilted, log_mass, shift, entropy
):
    """All that ksubset.kernels.infer returns, and the entropy."""
    n = logits.shape[-1]
    scratch = _scratch(logits)
    rarer = np.empty(padded(n), logits.dtype)
    if not _is_short(n):
        for r in range(first, last):
            log_partition[r], log_mass[r], shift[r], entropy[r] = _infer_one(
                k[r], logits[r], tail, decay, scratch, rarer, marginals[r], tilted[r]
            )
        return
    # Tilted as tilt and sample do it; the tables in float64, or their logarithms would show how
    # many factors went into them.
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
                    log_partition[at], log_mass[at], shift[at], entropy[at] = _infer_one(
                        k[at], logits[at], tail, decay, scratch, rarer, marginals[at], tilted[at]
                    )
                    continue
                shift[at] = marks[short.SHIFT * lanes + mark]
                log_partition[at], log_mass[at], entropy[at] = short.logarithms(
                    totals, lane, wide_marks, shift[at]
                )


@part
def sample(first, last, logits, k, seeds, tilted, kept, drawn):
    """Samples (samples * rows, n) for seeds (samples * rows), or for one and those that follow it.

    For the covariance product tilted logits are written, or coins are kept: whichever has room.
    Returns how many ran out of tries; their first item is -1. And, times IMPOSSIBLE, how many rows
    admit no sample.
    """
    outcome = 0
    rows, n = logits.shape
    row, coins, nodes, _, wide, _, _ = _scratch(logits)
    used = np.empty(padded(n), logits.dtype)
    odds = np.empty(padded(n), logits.dtype)
    sums = np.empty(padded(n) // 16, np.float64)
    table = np.empty((sampling.DP_ITEMS + 1, sampling.DP_ITEMS + 1), np.float64)
    columns = np.arange(n).astype(np.int32)
    picked = np.empty(n, np.int32)
    limits, flags = np.empty(n, np.int64), np.empty(n, np.uint8)

    lanes = width(logits)
    group = lanes if _is_short(n) else 1
    many = short.pairs(n) * lanes if _is_short(n) else 0
    work = np.empty((5, many), logits.dtype)
    items, scratch, z, heads, tails = work[0], work[1], work[2], work[3], work[4]
    marks, bounds = np.ones(short.MARKS * lanes, logits.dtype), (0, 0, False)
    steps, keys = np.arange(lanes).astype(np.uint64), np.empty(lanes, np.uint64)
    for r in range(first, last, group):
        have = min(group, last - r)
        if many > 0:
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
        for lane in range(have if short.any_odd(marks) else 0):
            if marks[short.ODD * lanes + lane] > 0:
                at = r + lane
                _copy(logits[at], row, n)
                tilt_row(row, n, k[at])
                if len(kept) == 0:
                    copy(row, tilted[at], n)
                outcome += IMPOSSIBLE if np.isnan(row[0]) else 0
                for s in range(at, len(drawn), rows):
                    if np.isnan(row[0]):
                        drawn[s] = np.nan
                        continue
                    seed = np.uint64(seeds[0] + s if len(seeds) == 1 else seeds[s])
                    done, disturbed = sampling.draw(
                        row, used, n, k[at], key(seed), coins, nodes, wide, table, columns,
                        odds, sums, limits, flags, picked, drawn[s],
                    )  # fmt: skip
                    if not done:
                        drawn[s, 0] = -1
                        outcome += 1
                    if disturbed:
                        columns[:] = np.arange(n)
    return outcome
