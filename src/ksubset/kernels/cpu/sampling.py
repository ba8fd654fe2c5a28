"""An exact sample of one row, whatever n and k: O(n) expected time.

Free coins are drawn in one of three ways. Few of them: by the paper's backward DP. Coins that
fall heads rarely, all of them: k draws *with* replacement, in proportion to the odds, repeated
until they are k different ones, which leaves the k-subset law (docs/mathematics.md). Otherwise
half of the coins is tossed and accepted as in kernels/halving.py, until one of the first two ways
is open for the rest. Where heads are the likelier side of most coins, tails are drawn.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu import moments
from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.moments import IMAG, PQ, REAL
from ksubset.kernels.cpu.noise import uniform
from ksubset.kernels.cpu.simd import (
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
_TRIES = 64  # of halving, 0.7 of which are accepted
_DRAWS = 256
_BLOCK = 32

# Of the spectrum that tells how likely the other half takes the rest: see kernels/halving.py.
_TAIL, _DECAY = 85.0, 41.0


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
        inside = fill(t, 0.0)
        for i in range(block, min(block + _BLOCK, padded(m)), width(t)):
            at = load(t, i)
            e = exp_negative(at)
            value = choose(at, 0.0, 1.0 / e, e)
            store(odds, i, value)
            inside = inside + value
            squares = squares + value * value
        whole += total(inside)
        sums[block // _BLOCK] = whole
    return total(squares)


@part
def _probabilities(t, m):
    """In place: from logits to probabilities."""
    for i in range(0, padded(m), width(t)):
        at = load(t, i)
        e = exp_negative(at)
        x = e / (1.0 + e)
        store(t, i, choose(at, 0.0, 1.0 - x, x))


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
            if z[columns[i]] == 1:
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
def _halve(t, m, k, columns, key, counter, coins, nodes, wide, z):
    """Toss half of the coins, of the smaller variance, until the others accept what is left.

    Moves the other half to the front, tilted anew. Returns their number and count; -1 for a row
    that ran out of tries.
    """
    half = m // 2
    odd = np.full(padded(half + 1), -np.inf, t.dtype)
    odd_columns = np.empty(half + 1, np.int64)
    moments.toss(t, m, coins)
    even_spread, odd_spread = 0.0, 0.0
    for i in range(m):
        spread = np.float64(coins[PQ, i])
        if i % 2:
            odd_spread += spread
        else:
            even_spread += spread
    # The half to keep goes to the front, the half to toss into arrays of its own.
    keep = 1 if m % 2 == 0 and even_spread < odd_spread else 0
    kept = 0
    tossed = 0
    for i in range(m):
        if i % 2 == keep:
            t[kept], columns[kept] = t[i], columns[i]
            kept += 1
        else:
            odd[tossed], odd_columns[tossed] = t[i], columns[i]
            tossed += 1
    t[kept : padded(kept)] = -np.inf

    variance, free, ups, likely, mean, _ = moments.toss(t, kept, coins)
    mean -= likely  # counted as the characteristic function counts
    count, number = moments.place_nodes(variance, free, _TAIL, _DECAY, nodes)
    moments.characteristic(kept, coins, count, nodes, wide)
    low = math.floor(mean)
    most = max(_mass(low, number, count, nodes), _mass(low + 1, number, count, nodes))
    _probabilities(odd, tossed)
    for _ in range(_TRIES):
        heads = 0
        for i in range(tossed):
            head = uniform(key, counter + i) < odd[i]
            z[odd_columns[i]] = head
            heads += head
        counter += tossed
        u = uniform(key, counter)
        counter += 1
        rest = k - heads
        # Counts further out than half of N are those of aliases, unless N covers all counts.
        if rest < 0 or rest > kept or (kept >= number and 2 * abs(rest - ups - mean) >= number):
            continue
        if u * most < _mass(rest - ups, number, count, nodes):
            tilt_row(t, kept, rest)
            return kept, rest, counter
    return -1, -1, counter


@part
def _compact(t, m, columns, k, z):
    """Move the coins that may fall both ways to the front and settle the others. Returns how many
    there are, and how many heads are left to them."""
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
def draw(row, t, n, k, key, coins, nodes, wide, table, columns, odds, sums, picked, z):
    """A k-hot row z of zeros and ones. Returns whether that came to pass within the tries allowed,
    and whether columns, 0 ... n - 1, were used up. t may hold anything.

    row: n tilted logits padded with -inf.
    """
    clear(z, n)
    # The common case first. Forbidden coins have odds of 0 and are in nobody's way, a certain
    # one has infinite odds and sends the row to the general case.
    if n > DP_ITEMS and 2 * k <= n and _odds(row, n, odds, sums) < _MOST_COLLISIONS:
        done, counter = _with_replacement(n, k, columns, key, 0, odds, sums, picked, z)
        if done:
            return True, False
    else:
        counter = 0
    copy(row, t, padded(n))
    m, k = _compact(t, n, columns, k, z)
    while k > 0 and k < m:
        if m <= DP_ITEMS:
            _by_dp(t, m, k, columns, key, counter, table, z)
            return True, True
        # Choosing m - k tails is the same.
        flipped = 2 * k > m
        if flipped:
            k = m - k
            for i in range(m):
                t[i] = -t[i]
        done = False
        if _odds(t, m, odds, sums) < _MOST_COLLISIONS:
            done, counter = _with_replacement(m, k, columns, key, counter, odds, sums, picked, z)
        if flipped:
            k = m - k
            for i in range(m):
                t[i] = -t[i]
            if done:
                for i in range(m):
                    z[columns[i]] = 1 - z[columns[i]]
        if done:
            return True, True
        m, k, counter = _halve(t, m, k, columns, key, counter, coins, nodes, wide, z)
        if m < 0:
            return False, True
        m, k = _compact(t, m, columns, k, z)
    for i in range(m):
        z[columns[i]] = 1 if k > 0 else 0
    return True, True
