"""Rows with a wide gap, where almost always the k most likely items are chosen.

There the probability that an item shows its rarer side is the product of two small numbers: its own
and that of another item which makes up for it. The spectral method has it to the precision of the
larger one; a table of counts has all digits. Few counts are enough: how many items more than usual
were chosen so far is rarely beyond one.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import allocating, part
from ksubset.kernels.cpu.moments import SIGNED

# For a variance of the number of chosen items up to this, counts beyond the reach have less than
# 1e-16 of the probability.
MOST_VARIANCE = 0.1
_REACH = 4
_STATES = 2 * _REACH + 1


@part
def _odds(signed):
    """Of a coin's rarer side."""
    x = np.float64(abs(signed))
    return x / (1 - x)


@allocating
def infer(n, coins, rarer):
    """Fill rarer with P(rarer side | S = k) of every coin, where k is the number of coins that
    likely fall heads. Returns log P(S = k) less that of all coins falling as they likely do."""
    signed = coins[SIGNED]
    # The odds of a coin's rarer side multiply up; state j is a surplus of j - _REACH heads.
    before = np.zeros((n + 1, _STATES), np.float64)
    before[0, _REACH] = 1
    for i in range(n):
        odds = _odds(signed[i])
        step = -1 if signed[i] < 0 else 1
        for j in range(_STATES):
            before[i + 1, j] = before[i, j]
            if 0 <= j - step < _STATES:
                before[i + 1, j] += odds * before[i, j - step]
    total = before[n, _REACH]
    after = np.zeros((2, _STATES), np.float64)
    after[n % 2, _REACH] = 1
    for i in range(n - 1, -1, -1):
        odds = _odds(signed[i])
        step = -1 if signed[i] < 0 else 1
        following, here = after[(i + 1) % 2], after[i % 2]
        shown = 0.0
        for j in range(_STATES):
            here[j] = following[j]
            if 0 <= j + step < _STATES:
                here[j] += odds * following[j + step]
                shown += before[i, j] * following[j + step]
        rarer[i] = odds * shown / total
    return math.log(total)
