"""An exact sample of one row, whatever n and k: O(n) expected time.

Free coins are drawn in one of three ways. Few of them: by the paper's backward DP. Coins that
fall heads rarely, all of them: k draws *with* replacement, in proportion to the odds, repeated
until they are k different ones, which leaves the k-subset distribution (docs/mathematics.md).
Otherwise all coins but an eighth are tossed, and these accept the outcome or not, as in
kernels/halving.py, until one of the first two ways is open for them. (There it is half of the
coins. To ask fewer means more tosses in vain, which cost less here.) Where heads are the likelier
side of most coins, tails are drawn.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu import moments
from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.moments import IMAG, REAL, WEIGHT
from ksubset.kernels.cpu.noise import random_bits, uniform
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    clear,
    copy,
    exp_negative,
    fill,
    load,
    store,
    total,
    width,
)
from ksubset.kernels.cpu.tilt import padded, tilt_row

DP_ITEMS = 64
_MOST_COLLISIONS = 4.0  # sum of squared odds: one draw in seven has no collision, or more
_TRIES = 256  # of tosses, a third of which are accepted
_DRAWS = 256
_AFTER_TRIES = 1 << 40  # more numbers than those take
_BLOCK = 32
PARTS, _TILE = 8, 16  # parts take tiles in turn; a tile is whole vectors of either type
_MOST_BITS = np.int64((1 << 63) - 1)

# Of the spectrum that tells how likely the part not tossed takes the rest: see kernels/halving.py.
# What an eighth takes has almost its own deviation, where that of a half is smaller.
TAIL, DECAY = 110.0, 41.0


@part
def _by_dp(t, m, k, columns, key, counter, table, z):
    """Choose k of m coins, item by item from the last, each with a number of its own."""
    table[0, : k + 1] = 0
    table[0, 0] = 1
    for i in range(m):
        e = math.exp(-abs(np.float64(t[i])))
        x = e / (1 + e)
        p, q = (1 - x, x) if t[i] > 0 else (x, 1 - x)
        table[i + 1, 0] = table[i, 0] * q
        for j in range(1, k + 1):
            table[i + 1, j] = table[i, j] * q + table[i, j - 1] * p
    left = k
    for i in range(m - 1, -1, -1):
        if left == 0:
            break
        e = math.exp(-abs(np.float64(t[i])))
        x = e / (1 + e)
        p = 1 - x if t[i] > 0 else x
        u = uniform(key, counter + columns[i])
        if left > i or u * table[i + 1, left] < p * table[i, left - 1]:
            z[columns[i]] = 1
            left -= 1


@part
def _odds(t, m, odds, sums):
    """Fill the odds of the coins and their running sums by blocks.

    Returns the sum of their squares, about twice the logarithm of how many draws with replacement
    it takes until all are different.
    """
    whole = 0.0
    squares = fill(t, 0.0)
    for block in range(0, m, _BLOCK):
        for i in range(block, min(block + _BLOCK, padded(m)), width(t)):
            at = load(t, i)
            e = exp_negative(at)
            value = choose(at, 0.0, 1.0 / e, e)
            store(odds, i, value)
            squares = squares + value * value
            # In float64: what a sum has too much would fall to the last of the block.
            whole += total(value)
        sums[block // _BLOCK] = whole
    return total(squares)


@part
def _with_replacement(m, k, columns, key, counter, odds, sums, picked, z):
    """Draw k coins in proportion to their odds until they differ. Returns whether they did."""
    blocks = (m + _BLOCK - 1) // _BLOCK
    whole = sums[blocks - 1]
    for _ in range(_DRAWS):
        count = 0
        while count < k:
            u = uniform(key, counter) * whole
            counter += 1
            low, high = 0, blocks - 1
            while low < high:
                middle = (low + high) // 2
                if sums[middle] <= u:
                    low = middle + 1
                else:
                    high = middle
            rest = u - (sums[low - 1] if low else 0.0)
            i = low * _BLOCK
            last = min(i + _BLOCK, m) - 1
            while i < last and rest >= odds[i]:
                rest -= odds[i]
                i += 1
            # Drawn before, or beyond the last by rounding.
            if z[columns[i]] == 1 or rest >= odds[i]:
                break
            z[columns[i]] = 1
            picked[count] = columns[i]
            count += 1
        if count == k:
            return True, counter
        for i in range(count):
            z[picked[i]] = 0
    return False, counter


@part
def _mass(offset, number, count, nodes):
    """P(S = offset), S counted as the characteristic function counts."""
    angle = 2 * math.pi * (offset % number) / number
    step_real, step_imag = math.cos(angle), math.sin(angle)
    turn_real, turn_imag = 1.0, 0.0
    mass = 0.0
    for node in range(count):
        twice = 2.0 if node else 1.0
        mass += twice * (nodes[REAL, node] * turn_real + nodes[IMAG, node] * turn_imag)
        turn_real, turn_imag = (
            turn_real * step_real - turn_imag * step_imag,
            turn_imag * step_real + turn_real * step_imag,
        )
    return max(mass, 0.0)


@part
def _widest_part(t, m, x):
    """Fill x, how likely the rarer sides are. Returns which part has the largest variance."""
    most, widest = -1.0, 0
    for which in range(PARTS):
        spread = fill(t, 0.0)
        for tile in range(which * _TILE, padded(m), PARTS * _TILE):
            for i in range(tile, tile + _TILE, width(t)):
                e = exp_negative(load(t, i))
                rarer = e / (1.0 + e)
                store(x, i, rarer)
                spread = spread + (rarer - rarer * rarer)
        variance = total(spread)
        if variance > most:
            most, widest = variance, which
    return widest


@part
def _limits(t, m, x, limits):
    """Of how many of 2^63 equally likely numbers heads are the first."""
    for i in range(m):
        rarer = np.int64(np.float64(x[i]) * 2.0**63)
        limits[i] = _MOST_BITS - rarer if t[i] > 0 else rarer


@part
def _move(array, m, which):
    """A part to the front. Returns its size."""
    kept = 0
    for tile in range(which * _TILE, m, PARTS * _TILE):
        size = min(_TILE, m - tile)
        for i in range(size):
            array[kept + i] = array[tile + i]
        kept += size
    return kept


@part
def _toss(key, counter, m, limits, flags):
    """Returns the number of heads."""
    heads = 0
    for i in range(m):
        bits = np.int64(random_bits(key, np.uint64(counter + i)) >> np.uint64(1))
        flag = np.uint8(bits < limits[i])
        flags[i] = flag
        heads += flag
    return heads


@part
def _narrow(t, m, k, columns, key, counter, coins, nodes, wide, limits, flags, picked, z):
    """Toss all coins but a part, that of the largest variance, until it accepts what is left.

    Moves this part to the front, tilted anew. Returns its number and count; -1 for a row that ran
    out of tries.
    """
    which = _widest_part(t, m, coins[WEIGHT])
    _limits(t, m, coins[WEIGHT], limits)
    for tile in range(which * _TILE, m, PARTS * _TILE):
        limits[tile : min(tile + _TILE, m)] = 0
    kept = _move(t, m, which)
    t[kept : padded(kept)] = -np.inf
    variance, free, ups, likely, mean, _ = moments.toss(t, kept, coins)
    # Some may be so far out that they might as well be certain.
    certain = ups - likely
    mean -= likely  # counted as the characteristic function counts
    count, number = moments.place_nodes(variance, free, TAIL, DECAY, nodes)
    moments.characteristic(kept, coins, count, nodes, wide)
    low = math.floor(mean)
    most = max(_mass(low, number, count, nodes), _mass(low + 1, number, count, nodes))
    for _ in range(_TRIES):
        rest = k - _toss(key, counter, m, limits, flags)
        u = uniform(key, counter + m)
        counter += m + 1
        if rest < certain or rest > certain + free:
            continue
        # Counts further out than half of N are those of aliases, unless N covers all counts.
        if free >= number and 2 * abs(rest - ups - mean) >= number:
            continue
        if u * most < _mass(rest - ups, number, count, nodes):
            found = 0
            for i in range(m):
                picked[found] = columns[i]
                found += flags[i]
            for i in range(found):
                z[picked[i]] = 1
            _move(columns, m, which)
            tilt_row(t, kept, rest)
            return kept, rest, counter
    return -1, -1, counter


@part
def _all_finite(t, m):
    finite = fill(t, 0.0)
    for i in range(0, padded(m), width(t)):
        finite = finite + choose(np.inf, absolute(load(t, i)), 1.0, 0.0)
    return total(finite) == m


@part
def _compact(t, m, columns, k, z):
    """Move the coins that may fall both ways to the front and settle the others. Returns how many
    there are, and how many heads are left to them."""
    if _all_finite(t, m):
        return m, k
    kept = 0
    for i in range(m):
        if abs(t[i]) < np.inf:
            t[kept], columns[kept] = t[i], columns[i]
            kept += 1
        elif t[i] > 0:
            z[columns[i]] = 1
            k -= 1
    t[kept : padded(m)] = -np.inf
    return kept, k


@part
def is_sparse(t, n, k, odds, sums):
    """Whether draws with replacement will soon differ, as most of them do: then odds and sums are
    ready for :func:`draw_sparse`.

    Forbidden coins have odds of 0 and are in nobody's way; a certain one has infinite odds.
    t: n tilted logits padded with -inf.
    """
    if (
        n <= DP_ITEMS or 2 * k > n or k * k >= _MOST_COLLISIONS * n
    ):  # the least that squares add up to
        return False
    return _odds(t, n, odds, sums) < _MOST_COLLISIONS


@part
def draw_sparse(n, k, key, columns, odds, sums, picked, z):
    """A k-hot row z of zeros and ones. Returns whether that came to pass within the tries allowed.

    columns: 0 ... n - 1.
    """
    clear(z, n)
    done, _ = _with_replacement(n, k, columns, key, 0, odds, sums, picked, z)
    return done


@part
def draw(
    row, t, n, k, key, tried, coins, nodes, wide, table, columns, odds, sums, limits, flags, picked,
    z,
):  # fmt: skip
    """A k-hot row z of zeros and ones, for rows that are not sparse, or for which
    :func:`draw_sparse` has tried in vain. Returns whether that came to pass within the tries
    allowed. t and columns may hold anything.

    row: n tilted logits padded with -inf.
    """
    clear(z, n)
    counter = _AFTER_TRIES if tried else 0
    for i in range(n):
        columns[i] = i
    copy(row, t, padded(n))
    m, k = _compact(t, n, columns, k, z)
    seen = n > DP_ITEMS and 2 * k <= n and m == n
    while k > 0 and k < m:
        if m <= DP_ITEMS:
            _by_dp(t, m, k, columns, key, counter, table, z)
            return True
        if not seen:
            # Choosing m - k tails is the same.
            flipped = 2 * k > m
            if flipped:
                k = m - k
                for i in range(m):
                    t[i] = -t[i]
            done = False
            if _odds(t, m, odds, sums) < _MOST_COLLISIONS:
                done, counter = _with_replacement(
                    m, k, columns, key, counter, odds, sums, picked, z
                )
            if flipped:
                k = m - k
                for i in range(m):
                    t[i] = -t[i]
                if done:
                    for i in range(m):
                        z[columns[i]] = 1 - z[columns[i]]
            if done:
                return True
        seen = False
        m, k, counter = _narrow(
            t, m, k, columns, key, counter, coins, nodes, wide, limits, flags, picked, z
        )
        if m < 0:
            return False
        m, k = _compact(t, m, columns, k, z)
    for i in range(m):
        z[columns[i]] = 1 if k > 0 else 0
    return True
