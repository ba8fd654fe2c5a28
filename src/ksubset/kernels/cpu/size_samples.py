"""A compiled kernel that draws subsets of several sizes of short rows, one row per lane.

The sampler of one size (:mod:`.short.sampling`) decides for every number of items that may be left
by then, and its table ends with the chances of all sizes: a size is drawn from these, and the
decisions are followed from there. Rows with anything out of the ordinary are left.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.cpu import short
from ksubset.kernels.cpu.compile import allocating, inlined, kernel
from ksubset.kernels.cpu.entries import _bytes, _floats, _integers
from ksubset.kernels.cpu.groups import GROUP
from ksubset.kernels.cpu.noise import random_bits
from ksubset.kernels.cpu.short.lanes import FREE, IDLE, ODDS, RARE, SHIFT_OF_COINS, SIGN
from ksubset.kernels.cpu.simd import (
    absolute,
    any_above,
    choose,
    exp,
    exp_negative,
    fill,
    finer_shares,
    flag,
    halves,
    load,
    store,
    width,
)
from ksubset.kernels.cpu.sizes import FAR, LONGEST
from ksubset.kernels.cpu.threads import share

__all__ = ["Drawn", "draw"]

_NEVER = 80.0  # log-weights so far below 0 leave a size no chance


class Drawn(NamedTuple):
    """Samples, and the distribution that products start from (see kernels/sizes.py)."""

    samples: Tensor  # (samples, rows, n)
    tilted: Tensor  # (rows, n)
    weights: Tensor  # (rows, sizes)
    centre: Tensor  # (rows,)
    left: Tensor | None  # the rows in which nothing of all this is right, if there are any


@inlined
def _centre(n, low, high, theta, log_odds, marks):
    """The size that is next to the mean of the coins, and what a tilt to it starts from. Returns
    which lanes are out of the ordinary."""
    lanes = width(theta)
    zero, one = fill(theta, 0.0), fill(theta, 1.0)
    mean, strange = zero, zero
    for i in range(0, n * lanes, lanes):
        at = load(theta, i)
        value = exp_negative(at)
        likely = 1.0 / (1.0 + value)
        mean = mean + choose(at, 0.0, likely, value * likely)
        strange = choose(FAR, absolute(at), strange, one)  # NaN as well
    store(marks, RARE * lanes, choose(strange, 0.5, zero, mean))
    store(marks, IDLE * lanes, zero)
    store(marks, FREE * lanes, fill(theta, n))
    for lane in range(lanes):
        size = int(marks[RARE * lanes + lane] + 0.5)
        size = min(max(size, max(low, 1)), min(high, n - 1))
        marks[SIGN * lanes + lane] = 1 if 2 * size <= n else -1
        marks[RARE * lanes + lane] = min(size, n - size)
        marks[ODDS * lanes + lane] = log_odds[min(size, n - size)]
    return strange


@inlined
def _unsigned(n, marks, heads, tails):
    """Heads for what is chosen in all lanes. Returns the centre."""
    lanes = width(heads)
    side, rare = load(marks, SIGN * lanes), load(marks, RARE * lanes)
    if any_above(0.0 - side, 0.0):
        for i in range(0, n * lanes, lanes):
            p, q = load(heads, i), load(tails, i)
            store(heads, i, choose(side, 0.0, p, q))
            store(tails, i, choose(side, 0.0, q, p))
    store(marks, SIGN * lanes, fill(heads, 1.0))
    return choose(side, 0.0, rare, n - rare)


@inlined
def _draw_size(n, low, high, mixed, row, scales, spare, marks):
    """From the chances of the sizes."""
    lanes = width(row)
    zero, one = fill(row, 0.0), fill(row, 1.0)
    whole = zero
    for j in range(low, high + 1):
        whole = whole + load(row, j * lanes) * load(scales, (j - low) * lanes)
    # Numbers that no item has.
    bits = random_bits(mixed, np.uint64(n + 2)), random_bits(mixed, np.uint64(n + 3))
    u, _ = finer_shares(row, halves(row, bits[0]), halves(row, bits[1]))
    store(spare, 0, u)
    reached = load(spare, 0) * (2.0**-31 * whole)
    size, top, below = fill(row, low), zero, zero
    for j in range(low, high + 1):
        mass = load(row, j * lanes) * load(scales, (j - low) * lanes)
        below = below + mass
        size = size + choose(below, reached, zero, one)
        top = choose(mass, 0.0, fill(row, j), top)
    # Rounding must not lead beyond the last size that has a chance.
    store(marks, RARE * lanes, choose(size, top, top, size))


@allocating
def _draw(first, last, low, high, logits, seeds, left, tilted, weights, centre, drawn):
    rows, n = logits.shape
    lanes, found, keeps = width(logits), 0, len(tilted) > 0
    work = np.empty((5, short.pairs(n) * lanes), logits.dtype)
    items, scratch, z, heads, tails = work[0], work[1], work[2], work[3], work[4]
    marks = np.zeros(short.MARKS * lanes, logits.dtype)
    row = np.empty((high + 2) * lanes, logits.dtype)
    log_weights = np.empty((high - low + 1) * lanes, logits.dtype)
    scales = np.empty((high - low + 1) * lanes, logits.dtype)
    steps, keys = np.empty(lanes, np.uint64), np.empty(lanes, np.uint64)
    log_odds = np.zeros(n + 1, logits.dtype)
    for k in range(1, n):
        log_odds[k] = math.log(k / (n - k))
    for lane in range(lanes):
        steps[lane] = lane
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        short.gather(logits, r, have, items)
        strange = _centre(n, low, high, items, log_odds, marks)
        short.tilt(items, n, marks, scratch, heads, tails)
        if keeps:
            short.scatter(items, tilted, r, have)
        strange = strange + load(marks, short.ODD * lanes)
        middle, shift = _unsigned(n, marks, heads, tails), load(marks, short.SHIFT * lanes)
        of_coins = load(marks, SHIFT_OF_COINS * lanes)
        strange = strange + choose(FAR, absolute(shift), 0.0, fill(items, 1.0))
        for j in range(low, high + 1):
            # Beside the coins, and beside the tilted logits.
            weight = of_coins * (middle - j)
            strange = strange + choose(weight, LONGEST, fill(items, 1.0), fill(items, 0.0))
            near = choose(weight, LONGEST, LONGEST, choose(-_NEVER, weight, -_NEVER, weight))
            store(scales, (j - low) * lanes, choose(-_NEVER, weight, 0.0, exp(near)))
            store(log_weights, (j - low) * lanes, shift * (middle - j))
        store(marks, short.ODD * lanes, strange)
        for s in range(0, len(drawn), rows):
            mixed = short.keys_of(seeds, s + r, have, steps, keys, heads)
            # The tilt is done with the items and with its scratch.
            short.decide(n, low, high, mixed, heads, tails, row, items, z)
            _draw_size(n, low, high, mixed, row, scales, scratch, marks)
            short.follow(n, flag(load(marks, RARE * lanes)) >> 1, marks, items, z)
            short.scatter(z, drawn, s + r, have)
        store(marks, RARE * lanes, middle)
        for lane in range(have):
            if marks[short.ODD * lanes + lane] != 0:
                left[r + lane] = 1
                found += 1
            if keeps:
                centre[r + lane] = int(marks[RARE * lanes + lane])
                for j in range(high - low + 1):
                    weights[r + lane, j] = log_weights[j * lanes + lane]
    return found


def _kernel(dtype: Any) -> Any:
    """As in :mod:`.entries`."""

    @kernel
    def draw_sizes(
        first, last, rows, n, samples, low, high, several, keeps,
        logits, seeds, left, tilted, weights, centre, drawn,
    ):  # fmt: skip
        kept = rows if keeps != 0 else 0
        return _draw(
            first, last, low, high, _floats(logits, (rows, n), dtype), _integers(seeds, several),
            _bytes(left, rows), _floats(tilted, (kept, n), dtype),
            _floats(weights, (kept, high - low + 1), dtype), _integers(centre, kept),
            _floats(drawn, (samples * rows, n), dtype),
        )  # fmt: skip

    return draw_sizes


_KERNELS = {torch.float32: _kernel(np.float32), torch.float64: _kernel(np.float64)}


def draw(logits: Tensor, low: int, high: int, seed: Tensor, samples: int, keep: bool) -> Drawn:
    """Samples for a seed and those that follow it. What is kept for products is empty without
    ``keep``."""
    logits = logits.contiguous()
    (rows, n), kept = logits.shape, logits.shape[0] if keep else 0
    if samples > 1 and rows < GROUP:
        # Too few rows to fill the lanes, and the samples are as many.
        kept_law = draw(logits, low, high, seed, 0, keep)
        wide = logits.expand(samples, rows, n).reshape(-1, n)
        z = draw(wide, low, high, seed, 1, False).samples
        return kept_law._replace(samples=z.reshape(samples, rows, n))
    left = torch.zeros(rows, dtype=torch.uint8)
    drawn, tilted = logits.new_empty(samples, rows, n), logits.new_empty(kept, n)
    weights = logits.new_empty(kept, high - low + 1)
    centre = torch.empty(kept, dtype=torch.int64)
    law = tilted, weights, centre
    addresses = (x.data_ptr() for x in (logits, seed, left, *law, drawn))
    some = share(_KERNELS[logits.dtype], rows, n, samples, low, high, 1, int(keep), *addresses)
    return Drawn(drawn, *law, left.nonzero().squeeze(-1) if some else None)
