"""Compiled kernels for several sizes of short rows, one row per lane: tables of counts.

With so few items, a table of P(S_i = j) over the first i items and one of what the others add,
weighted by the sizes they lead to, take less work than nodes. Every term is positive, so that a
weight may grow from the centre. Rows with anything out of the ordinary are not for these kernels:
they are noted in a list, and the nodes take them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels import cpu
from ksubset.kernels.cpu.compile import allocating, inlined, kernel
from ksubset.kernels.cpu.entries import _bytes, _floats, _integers, _wide
from ksubset.kernels.cpu.short import gather, is_short, scatter
from ksubset.kernels.cpu.simd import absolute, choose, exp_negative, fill, load, store, width
from ksubset.kernels.cpu.threads import share

__all__ = ["covariance_product", "infer", "serves"]

_MOST_HEADS = 24  # of wider tables the nodes are as fast
FAR = 300.0  # logits and shifts beyond that
LONGEST = 40.0  # log-weights beyond that, which might overflow


def serves(rows: Tensor, last: int) -> bool:
    """Whether there are tables for such rows, with sizes up to ``last``."""
    return rows.device.type == "cpu" and is_short(rows.shape[-1]) and last <= _MOST_HEADS


@inlined
def _toss(t, n, heads, tails):
    """Probabilities of coins with logits t."""
    lanes = width(t)
    for i in range(0, n * lanes, lanes):
        at = load(t, i)
        value = exp_negative(at)
        likely = 1.0 / (1.0 + value)
        rarer = value * likely
        store(heads, i, choose(at, 0.0, likely, rarer))
        store(tails, i, choose(at, 0.0, rarer, likely))


@allocating
def _centre(first, last, noted, logits, low, high, centre):
    n, odd = logits.shape[-1], 0
    lanes = width(logits)
    theta = np.empty(n * lanes, logits.dtype)
    ends = np.empty(2 * lanes, logits.dtype)
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        gather(logits, r, have, theta)
        mean, size = fill(theta, 0.0), fill(theta, 0.0)
        for i in range(0, n * lanes, lanes):
            at = load(theta, i)
            value = exp_negative(at)
            likely = 1.0 / (1.0 + value)
            mean = mean + choose(at, 0.0, likely, value * likely)
            size = choose(absolute(at), size, absolute(at), size)
            size = choose(absolute(at), -1.0, size, np.inf)  # NaN
        store(ends, 0, mean)
        store(ends, lanes, size)
        for lane in range(have):
            row = r + lane
            least, most = max(low[row], 1), min(high[row], n - 1)
            if not ends[lanes + lane] < FAR or least > most or low[row] == high[row]:
                noted[row] = 1
                odd += 1
                continue
            centre[row] = min(max(int(ends[lane] + 0.5), least), most)
    return odd


@inlined
def _prefix(n, last, heads, tails, prefix):
    """P(S_i = j) for j = 0 ... last, (n + 1, last + 2, lanes) with a zero before each row."""
    lanes = width(heads)
    line = (last + 2) * lanes
    for i in range(n):
        p, q = load(heads, i * lanes), load(tails, i * lanes)
        at = i * line
        y = load(prefix, at)
        for _ in range(min(i + 1, last) + 1):
            at += lanes
            x = load(prefix, at)
            store(prefix, at + line, q * x + p * y)
            y = x


@allocating
def _infer(
    first, last, noted, start, logits, tilted, centre, low, high,
    whole, marginals, chances, weights, log_mass,
):  # fmt: skip
    n, sizes = logits.shape[-1], weights.shape[-1]
    lanes, odd, top = width(logits), 0, start + sizes - 1
    work = np.empty((5, n * lanes), logits.dtype)
    theta, t, heads, tails, mu = work[0], work[1], work[2], work[3], work[4]
    line = (top + 2) * lanes
    prefix = np.zeros((n + 2) * line, logits.dtype)
    suffix, own = np.empty(line, logits.dtype), np.empty(4 * lanes, logits.dtype)
    for lane in range(lanes):
        prefix[lanes + lane] = 1
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        gather(logits, r, have, theta)
        gather(tilted, r, have, t)
        _toss(t, n, heads, tails)
        nearest, shift = fill(t, np.inf), fill(t, 0.0)
        likely, above = fill(t, 1.0), fill(t, 0.0)
        for i in range(0, n * lanes, lanes):
            at, p, q = load(t, i), load(heads, i), load(tails, i)
            distance = absolute(at)
            shift = choose(nearest, distance, at - load(theta, i), shift)
            nearest = choose(nearest, distance, distance, nearest)
            likely = likely * choose(p, 0.5, p, q)
            above = above + choose(at, 0.0, at, 0.0)
        _prefix(n, top, heads, tails, prefix)
        store(own, 0, shift)
        store(own, lanes, likely)
        store(own, 2 * lanes, above)
        # Weights e^(-shift (j - centre)) of sizes that are possible, 0 below the first.
        for lane in range(lanes):
            row = r + min(lane, have - 1)
            for j in range(start):
                suffix[j * lanes + lane] = 0
            suffix[(top + 1) * lanes + lane] = 0
            steep = max(own[lane] * (centre[row] - low[row]), own[lane] * (centre[row] - high[row]))
            far = steep > LONGEST or not abs(own[lane]) < FAR
            for j in range(start, top + 1):
                inside = low[row] <= j <= high[row] and not far
                weight = -own[lane] * (j - centre[row])
                suffix[j * lanes + lane] = math.exp(weight) if inside else 0.0
                weights[row, j - start] = weight if inside else -np.inf
            if lane < have and far:
                noted[row] = 1
                odd += 1
        mass = fill(t, 0.0)
        for j in range(start, top + 1):
            mass = mass + load(suffix, j * lanes) * load(prefix, n * line + (j + 1) * lanes)
        store(own, 3 * lanes, mass)
        for lane in range(have):
            row = r + lane
            if not own[3 * lanes + lane] > 0:
                noted[row] = 1
                odd += 1
                continue
            inverse = 1 / own[3 * lanes + lane]
            log_mass[row] = math.log(own[3 * lanes + lane])
            value = log_mass[row] - math.log(own[lanes + lane]) + own[2 * lanes + lane]
            whole[row] = value - np.float64(own[lane]) * centre[row]
            for j in range(start, top + 1):
                chance = prefix[n * line + (j + 1) * lanes + lane] * suffix[j * lanes + lane]
                chances[row, j - start] = chance * inverse
        for i in range(n - 1, -1, -1):
            p, q = load(heads, i * lanes), load(tails, i * lanes)
            lowest, most = max(0, start - (n - i)), min(i, top)
            at = i * line + (lowest + 1) * lanes
            x = load(suffix, lowest * lanes)
            left, taken = fill(t, 0.0), fill(t, 0.0)
            for j in range(lowest * lanes, (most + 1) * lanes, lanes):
                y, chance = load(suffix, j + lanes), load(prefix, at)
                left = left + chance * x
                taken = taken + chance * y
                store(suffix, j, q * x + p * y)
                x = y
                at += lanes
            left, taken = q * left, p * taken
            store(mu, i * lanes, taken / (left + taken))
        scatter(mu, marginals, r, have)
    return odd


@allocating
def _product(first, last, start, tilted, weights, centre, v, f, items, sizes_out):
    n, sizes = tilted.shape[-1], weights.shape[-1]
    lanes, top = width(tilted), start + sizes - 1
    work = np.empty((6, n * lanes), tilted.dtype)
    t, values, heads, tails, loads = work[0], work[1], work[2], work[3], work[4]
    line = (top + 2) * lanes
    prefix = np.zeros((n + 2) * line, tilted.dtype)
    moved = np.zeros((n + 2) * line, tilted.dtype)
    suffix, suffix_moved = np.empty(line, tilted.dtype), np.empty(line, tilted.dtype)
    own = np.empty(3 * lanes, tilted.dtype)
    for lane in range(lanes):
        prefix[lanes + lane] = 1
    for r in range(first, last, lanes):
        have = min(lanes, last - r)
        gather(tilted, r, have, t)
        gather(v, r, have, values)
        _toss(t, n, heads, tails)
        spread, mean = fill(t, 1e-30), fill(t, 0.0)
        for i in range(0, n * lanes, lanes):
            both = load(heads, i) * load(tails, i)
            spread = spread + both
            # What is no coin may have anything for a value.
            value = choose(both, 0.0, load(values, i), 0.0)
            store(values, i, value)
            mean = mean + both * value
        mean = mean / spread
        for i in range(n):
            p, q = load(heads, i * lanes), load(tails, i * lanes)
            value = load(values, i * lanes) - mean
            s = p * q * value
            store(values, i * lanes, value)
            store(loads, i * lanes, s)
            at = i * line
            y, y_moved = load(prefix, at), load(moved, at)
            for _ in range(min(i + 1, top) + 1):
                at += lanes
                x, x_moved = load(prefix, at), load(moved, at)
                store(prefix, at + line, q * x + p * y)
                store(moved, at + line, q * x_moved + p * y_moved + s * (y - x))
                y, y_moved = x, x_moved
        store(own, 0, mean)
        for lane in range(lanes):
            row = r + min(lane, have - 1)
            for j in range(start):
                suffix[j * lanes + lane] = 0
                suffix_moved[j * lanes + lane] = 0
            suffix[(top + 1) * lanes + lane] = 0
            suffix_moved[(top + 1) * lanes + lane] = 0
            for j in range(start, top + 1):
                weight = weights[row, j - start]
                value = f[row, j - start] + own[lane] * (j - centre[row])
                scale = math.exp(weight) if weight > -np.inf else 0.0
                suffix[j * lanes + lane] = scale
                suffix_moved[j * lanes + lane] = scale * value if scale > 0 else 0.0
        mass, mean = fill(t, 0.0), fill(t, 0.0)
        for j in range(start, top + 1):
            at = n * line + (j + 1) * lanes
            x, y = load(suffix, j * lanes), load(suffix_moved, j * lanes)
            mass = mass + load(prefix, at) * x
            mean = mean + (load(moved, at) * x + load(prefix, at) * y)
        inverse = 1.0 / mass
        mean = mean * inverse
        store(own, lanes, mean)
        store(own, 2 * lanes, inverse)
        for lane in range(have):
            row, expected, scale = r + lane, own[lanes + lane], own[2 * lanes + lane]
            for j in range(start, top + 1):
                at = n * line + (j + 1) * lanes + lane
                x, y = suffix[j * lanes + lane], suffix_moved[j * lanes + lane]
                share_of_size = moved[at] * x + prefix[at] * y - expected * prefix[at] * x
                sizes_out[row, j - start] = share_of_size * scale
        for i in range(n - 1, -1, -1):
            p, q = load(heads, i * lanes), load(tails, i * lanes)
            s, value = load(loads, i * lanes), load(values, i * lanes)
            lowest, most = max(0, start - (n - i)), min(i, top)
            at = i * line + (lowest + 1) * lanes
            x, x_moved = load(suffix, lowest * lanes), load(suffix_moved, lowest * lanes)
            left, taken = fill(t, 0.0), fill(t, 0.0)
            left_moved, taken_moved = fill(t, 0.0), fill(t, 0.0)
            for j in range(lowest * lanes, (most + 1) * lanes, lanes):
                y, y_moved = load(suffix, j + lanes), load(suffix_moved, j + lanes)
                chance, dev = load(prefix, at), load(moved, at)
                left = left + chance * x
                taken = taken + chance * y
                left_moved = left_moved + (dev * x + chance * x_moved)
                taken_moved = taken_moved + (dev * y + chance * y_moved)
                store(suffix, j, q * x + p * y)
                store(suffix_moved, j, q * x_moved + p * y_moved + s * (y - x))
                x, x_moved = y, y_moved
                at += lanes
            left, taken = left * inverse, taken * inverse
            moment = left * (taken_moved * inverse) - taken * (left_moved * inverse)
            store(values, i * lanes, p * q * (moment + value * left * taken))
        scatter(values, items, r, have)
    return 0


def _kernels(dtype: Any) -> tuple[Any, Any, Any]:
    """As in :mod:`.entries`."""

    @kernel
    def centre_of_sizes(first, last, rows, n, noted, logits, low, high, centre):
        return _centre(
            first, last, _bytes(noted, rows), _floats(logits, (rows, n), dtype),
            _integers(low, rows), _integers(high, rows), _integers(centre, rows),
        )  # fmt: skip

    @kernel
    def infer_sizes(
        first, last, rows, n, sizes, start, noted, logits, tilted, centre, low, high,
        whole, marginals, chances, weights, log_mass,
    ):  # fmt: skip
        shape, by_size = (rows, n), (rows, sizes)
        return _infer(
            first, last, _bytes(noted, rows), start, _floats(logits, shape, dtype),
            _floats(tilted, shape, dtype), _integers(centre, rows), _integers(low, rows),
            _integers(high, rows), _floats(whole, rows, dtype), _floats(marginals, shape, dtype),
            _floats(chances, by_size, dtype), _floats(weights, by_size, dtype),
            _wide(log_mass, rows),
        )  # fmt: skip

    @kernel
    def product_of_sizes(
        first, last, rows, n, sizes, start, tilted, weights, centre, v, f, items, of_sizes
    ):
        shape, by_size = (rows, n), (rows, sizes)
        return _product(
            first, last, start, _floats(tilted, shape, dtype), _floats(weights, by_size, dtype),
            _integers(centre, rows), _floats(v, shape, dtype), _floats(f, by_size, dtype),
            _floats(items, shape, dtype), _floats(of_sizes, by_size, dtype),
        )  # fmt: skip

    return centre_of_sizes, infer_sizes, product_of_sizes


_KERNELS = {torch.float32: _kernels(np.float32), torch.float64: _kernels(np.float64)}


def infer(
    logits: Tensor, log_weights: Tensor, first: int
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """See :func:`ksubset.kernels.sizes.infer`, for weights that are 0 where they are not -inf; and
    the rows that these kernels do not serve, if there are any."""
    logits = logits.contiguous()
    (rows, n), sizes = logits.shape, log_weights.shape[-1]
    # Most often all rows are one.
    possible = (log_weights[:1] if log_weights.stride(0) == 0 else log_weights) > -torch.inf
    columns = torch.arange(first, first + sizes)
    low = torch.where(possible, columns, n + 1).amin(-1).expand(rows).contiguous()
    high = torch.where(possible, columns, -1).amax(-1).expand(rows).contiguous()
    centre = torch.zeros_like(low)
    find_centre, infer_rows, _ = _KERNELS[logits.dtype]
    bounds = low.data_ptr(), high.data_ptr()
    noted = torch.zeros(rows, dtype=torch.uint8)
    at = noted.data_ptr()
    odd = share(find_centre, rows, n, at, logits.data_ptr(), *bounds, centre.data_ptr())
    tilted = cpu.tilt(logits, centre)
    whole, marginals = logits.new_empty(rows), torch.empty_like(logits)
    chances, weights = (logits.new_empty(rows, sizes) for _ in range(2))
    log_mass = logits.new_empty(rows, dtype=torch.float64)
    results = (whole, marginals, chances, weights, log_mass)
    odd += share(
        infer_rows, rows, n, sizes, first, at, logits.data_ptr(), tilted.data_ptr(),
        centre.data_ptr(), *bounds, *(x.data_ptr() for x in results),
    )  # fmt: skip
    found = whole, marginals, chances, tilted, weights, centre, log_mass
    return found, noted.nonzero().squeeze(-1) if odd else None


def covariance_product(
    tilted: Tensor, weights: Tensor, centre: Tensor, first: int, v: Tensor, f: Tensor
) -> tuple[Tensor, Tensor]:
    """See :func:`ksubset.kernels.sizes.covariance_product`."""
    given = [x.contiguous() for x in (tilted, weights, centre, v, f)]
    items, sizes = torch.empty_like(given[0]), torch.empty_like(given[1])
    (rows, n), count = tilted.shape, weights.shape[-1]
    kernel = _KERNELS[tilted.dtype][2]
    addresses = (x.data_ptr() for x in (*given, items, sizes))
    share(kernel, rows, n, count, first, *addresses)
    return items, sizes
