"""Loops over rows that are worked on one by one: what the kernels (:mod:`.entries`) run on arrays,
each in its thread.

These are long rows, and those of :mod:`.groups` that it has left. A row is worked on in scratch
arrays padded to whole vectors. NaN marks a row that admits no k-subset.
"""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu import gap, moments, sampling, series, swaps
from ksubset.kernels.cpu.compile import allocating, part
from ksubset.kernels.cpu.moments import COIN_ARRAYS, MOST_NODES, NODE_ARRAYS
from ksubset.kernels.cpu.noise import key
from ksubset.kernels.cpu.series import LANES, SUMS
from ksubset.kernels.cpu.short import SCALE
from ksubset.kernels.cpu.simd import copy
from ksubset.kernels.cpu.tilt import padded, tilt_row

IMPOSSIBLE = 1 << 32  # among what the samplers return, a row that admits none
NARROW_ITEMS = 2048  # see moments.gather
# Of rows that are left to the next kernel: as they are, or after all tries of this one.
LEFT, TRIED = 1, 2
_FOLD = 512


@part
def _passed_over(left, r):
    """Whether a row is none of those left; if there is no list of these, all are."""
    return len(left) > 0 and left[r] == 0


@part
def _fill(row, value):
    for i in range(len(row)):
        row[i] = value


@allocating
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


@allocating
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


@allocating
def tilt(first, last, left, logits, k, tilted):
    """Tilted logits."""
    n = logits.shape[-1]
    row = np.empty(padded(n), logits.dtype)
    for r in range(first, last):
        if not _passed_over(left, r):
            _tilt_one(logits[r], n, k[r], row, tilted[r])
    return 0


@part
def narrow_sums(n, coins, count, decay, nodes, narrow, wide):
    """What a covariance product needs to know of nodes, for rows of up to ``NARROW_ITEMS``. Returns
    how many of them count."""
    return moments.gather(n, coins, count, decay, nodes, narrow)


@part
def wide_sums(n, coins, count, decay, nodes, narrow, wide):
    """The same for rows of any length."""
    moments.characteristic(n, coins, count, nodes, wide)
    moments.deviations(n, coins, count, nodes, narrow)
    return count


@allocating
def covariance_product(first, last, left, tilted, k, vectors, tail, decay, product, sums_of):
    """Cov v from tilted logits, with :func:`narrow_sums` or :func:`wide_sums`."""
    n = tilted.shape[-1]
    row, coins, nodes, narrow, wide, sums, lanes = _scratch(tilted)
    work = np.empty(padded(n), tilted.dtype)
    for r in range(first, last):
        if _passed_over(left, r):
            continue
        t = _whole_vectors(tilted[r], row, n)
        if np.isnan(t[0]):
            _fill(product[r], np.nan)
            continue
        copy(vectors[r], work, n)
        for i in range(n, padded(n)):
            work[i] = 0
        variance, free, ups, likely, mean, top = moments.toss(t, n, coins)
        moments.centre(work, n, coins, variance)
        count, number = moments.place_nodes(variance, free, tail, decay, nodes)
        powers = series.powers_for(top, mean, variance, decay)
        if powers > 0:
            series.power_sums(n, coins, powers, lanes, sums)
            series.characteristic(count, number, k[r] - (ups - likely), mean, powers, sums, nodes)
            series.deviations(count, powers, sums, nodes)
        else:
            count = sums_of(n, coins, count, decay, nodes, narrow, wide)
        moments.weigh(count, number, 0.0 if powers > 0 else k[r] - ups, nodes)
        moments.centre_deviations(count, nodes)
        moments.weigh_deviations(count, nodes)
        if powers > 0:
            series.combine(n, coins, count, powers, nodes, sums, narrow, work)
        else:
            moments.combine(n, coins, count, nodes, narrow, work)
        copy(work, product[r], n)
    return 0


@part
def narrow_characteristic(n, coins, count, decay, nodes, narrow, wide):
    """What flows need to know of nodes, for rows of up to ``NARROW_ITEMS``. Returns how many of
    them count."""
    return moments.gather_characteristic(n, coins, count, decay, nodes, narrow)


@part
def wide_characteristic(n, coins, count, decay, nodes, narrow, wide):
    """The same for rows of any length."""
    moments.characteristic(n, coins, count, nodes, wide)
    return count


@allocating
def swap_product(first, last, left, tilted, k, drawn, vectors, tail, decay, product, sums_of):
    """sum_s L(z_s) v_s over the samples (samples * rows, n) of each row, with the product plan of
    swaps, from tilted logits; with :func:`narrow_characteristic` or :func:`wide_characteristic`."""
    rows, n = product.shape
    row, coins, nodes, narrow, wide, sums, lanes = _scratch(tilted)
    work = np.empty((5, padded(n)), tilted.dtype)
    for r in range(first, last):
        if _passed_over(left, r):
            continue
        t = _whole_vectors(tilted[r], row, n)
        if np.isnan(t[0]):
            _fill(product[r], np.nan)
            continue
        if len(drawn) == 0:
            _fill(product[r], 0.0)
            continue
        variance, free, ups, likely, mean, top = moments.toss(t, n, coins)
        count, number = moments.place_nodes(variance, free, tail, decay, nodes)
        powers = series.powers_for(top, mean, variance, decay)
        if powers > 0:
            series.probability_sums(n, coins, powers, lanes, sums)
            series.characteristic(count, number, k[r] - (ups - likely), mean, powers, sums, nodes)
        else:
            count = sums_of(n, coins, count, decay, nodes, narrow, wide)
        moments.weigh(count, number, 0.0 if powers > 0 else k[r] - ups, nodes)
        if powers > 0:
            series.prepare_correction(count, powers, nodes, sums, narrow)
        else:
            moments.prepare_correction(count, nodes, narrow)
        swaps.add_swaps(
            r, rows, coins, variance, count, powers, narrow, drawn, vectors, work, product
        )
    return 0


@part
def _infer_one(k, logits, tail, decay, scratch, rarer, marginals, tilted):
    """Fill marginals and tilted. Returns the log-partition, the logarithm of the probability of k
    heads, the shift and the entropy."""
    row, coins, nodes, narrow, wide, sums, lanes = scratch
    n = len(logits)
    shift = _tilt_one(logits, n, k, row, tilted)
    if np.isnan(row[0]):
        _fill(marginals, np.nan)
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
        mass = moments.weigh(count, number, 0.0, nodes)
        series.correct(n, coins, count, powers, nodes, sums, narrow, rarer)
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


@allocating
def infer(
    first, last, left, logits, k, tail, decay,
    log_partition, marginals, tilted, log_mass, shift, entropy,
):  # fmt: skip
    """All that ksubset.kernels.infer returns, and the entropy."""
    scratch = _scratch(logits)
    rarer = np.empty(padded(logits.shape[-1]), logits.dtype)
    for r in range(first, last):
        if not _passed_over(left, r):
            log_partition[r], log_mass[r], shift[r], entropy[r] = _infer_one(
                k[r], logits[r], tail, decay, scratch, rarer, marginals[r], tilted[r]
            )
    return 0


@part
def _key_of(seeds, s):
    """Of a sample: seeds of all, or one and those that follow it."""
    return key(np.uint64(seeds[0] + s if len(seeds) == 1 else seeds[s]))


@allocating
def sample_sparse(first, last, left, logits, k, seeds, tilted, drawn):
    """Tilted logits and samples (samples * rows, n) of rows of which few items are chosen, for
    seeds (samples * rows), or for one and those that follow it.

    Other rows are left to :func:`sample`. Returns how many there are.
    """
    rows, n = logits.shape
    row = np.empty(padded(n), logits.dtype)
    odds = np.empty(padded(n), logits.dtype)
    sums = np.empty(padded(n) // 16, np.float64)
    columns, picked = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        columns[i] = i
    found = 0
    for r in range(first, last):
        _tilt_one(logits[r], n, k[r], row, tilted[r])
        if np.isnan(row[0]) or not sampling.is_sparse(row, n, k[r], odds, sums):
            left[r] = LEFT
        else:
            for s in range(r, len(drawn), rows):
                if left[r] == 0 and not sampling.draw_sparse(
                    n, k[r], _key_of(seeds, s), columns, odds, sums, picked, drawn[s]
                ):
                    left[r] = TRIED
        found += left[r] > 0
    return found


@allocating
def sample(first, last, left, k, seeds, tilted, drawn):
    """Samples of any rows, from their tilted logits.

    Returns how many ran out of tries; their first item is -1. And, times IMPOSSIBLE, how many rows
    admit no sample.
    """
    outcome = 0
    rows, n = tilted.shape
    row, coins, nodes, _, wide, _, _ = _scratch(tilted)
    used = np.empty(padded(n), tilted.dtype)
    odds = np.empty(padded(n), tilted.dtype)
    sums = np.empty(padded(n) // 16, np.float64)
    table = np.empty((sampling.DP_ITEMS + 1, sampling.DP_ITEMS + 1), np.float64)
    columns, picked = np.empty(n, np.int32), np.empty(n, np.int32)
    limits, flags = np.empty(n, np.int64), np.empty(n, np.uint8)
    for r in range(first, last):
        if left[r] == 0:
            continue
        _copy(tilted[r], row, n)
        outcome += IMPOSSIBLE if np.isnan(row[0]) else 0
        for s in range(r, len(drawn), rows):
            if np.isnan(row[0]):
                _fill(drawn[s], np.nan)
                continue
            if not sampling.draw(
                row, used, n, k[r], _key_of(seeds, s), left[r] == TRIED, coins, nodes, wide, table,
                columns, odds, sums, limits, flags, picked, drawn[s],
            ):  # fmt: skip
                drawn[s, 0] = -1
                outcome += 1
    return outcome
