"""An exact sample by k draws *with* replacement, in proportion to the odds, until they differ: for
coins that all fall heads rarely (docs/mathematics.md).

An item is found by bisection in the running sums of odds, which are kept in memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.random import wide_uniform

MOST_COLLISIONS = tl.constexpr(6.0)  # sum of squared odds
_ROUNDS = tl.constexpr(64)
_COUNTERS = tl.constexpr(0x20000000)  # where those of these numbers start


@triton.jit
def odds_of(t, inside):
    """Odds. Coins that cannot fall heads have none and stand in nobody's way."""
    return tl.where(inside, tl.exp(t), 0.0)


@triton.jit
def running_sums(odds, scratch, n, BLOCK: tl.constexpr):
    """Store the running sums of the odds of BLOCK items. Returns the last of them."""
    wide = odds.to(tl.float64)
    at = tl.arange(0, BLOCK)
    tl.store(scratch + at, tl.cumsum(wide, 0), at < n)
    return tl.sum(wide, 0)


@triton.jit
def _find(x, scratch, n):
    """The item that x, below the sum of all odds, falls on."""
    # The first running sum above x; items without odds never are.
    low = (x * 0).to(tl.int32)
    high = low + (n - 1)
    reach = n - 1
    while reach > 0:
        middle = (low + high) >> 1
        above = tl.load(scratch + middle) > x
        low = tl.where(above, low, tl.minimum(middle + 1, high))
        high = tl.where(above, middle, high)
        reach = reach >> 1
    return low


@triton.jit
def draw_light(
    whole, scratch, k, key, place, n, BLOCK: tl.constexpr, DRAWS: tl.constexpr
):  # fmt: skip
    """Draw, several tries side by side. Returns whether all k were different in one of them; then
    the row is stored. k is at most DRAWS.

    Every try marks the items it draws with a bit of its own: who finds it set has collided.
    """
    at = tl.arange(0, BLOCK)
    lane = tl.arange(0, DRAWS)
    group = tl.where(k <= 16, 16, tl.where(k <= 32, 32, tl.where(k <= 64, 64, DRAWS)))
    group = tl.where((k > 64) & (k <= 128), 128, tl.where((k > 128) & (k <= 256), 256, group))
    group = tl.minimum(group, DRAWS)
    attempt = lane // group
    tries = DRAWS // group
    used = (lane - attempt * group) < k
    marks = place.to(tl.pointer_type(tl.int32), bitcast=True)
    found = k * 0
    turn = k * 0
    searching = (found == 0) & (turn < _ROUNDS)
    while searching:
        bits = turn * tries
        if bits % 32 == 0:
            tl.debug_barrier()
            tl.store(marks + at, tl.zeros([BLOCK], tl.int32), at < n)
            tl.debug_barrier()
        x = wide_uniform(key, lane + turn * DRAWS + _COUNTERS) * whole
        item = _find(x, scratch, n)
        bit = tl.full([DRAWS], 1, tl.int32) << ((bits + attempt) % 32)
        before = tl.atomic_or(marks + item, bit, mask=used)
        collided = used & ((before & bit) != 0)
        spoilt = tl.reduce(
            tl.where(collided, tl.full([DRAWS], 1, tl.int32) << attempt, 0), 0, _either
        )
        first = tl.min(tl.where(((spoilt >> attempt) & 1) == 0, attempt, DRAWS), 0)
        found = tl.where(first < DRAWS, 1, 0)
        if found > 0:
            tl.debug_barrier()
            tl.store(place + at, tl.zeros([BLOCK], tl.float32), at < n)
            tl.debug_barrier()
            tl.store(place + item, tl.full([DRAWS], 1.0, tl.float32), used & (attempt == first))
        turn += 1
        searching = (found == 0) & (turn < _ROUNDS)
    return found


@triton.jit
def _either(a, b):
    return a | b
