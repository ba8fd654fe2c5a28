"""A compiled kernel for nested subsets: the codes of an ordering and the places they mean.

In linear space, thanks to a tilt: a table of P(S = r) over the items behind each one. It is tilted
to the largest size, so that of all states that matter the least likely are those that end in no
item at all, or in as many as are wanted: a table that keeps these has lost nothing on its way. Rows
that would leave the range of float64 are noted in a list, as are those with forced items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.cpu.compile import allocating, kernel, part
from ksubset.kernels.cpu.entries import _bytes, _floats, _integers
from ksubset.kernels.cpu.noise import key, uniform
from ksubset.kernels.cpu.simd import choose, exp_negative, load, store, width
from ksubset.kernels.cpu.threads import share
from ksubset.kernels.cpu.tilt import padded, tilt_row

__all__ = ["order"]

_LEAST = 1e-240  # of probabilities that are not to lose digits further on
_BEFORE = 4  # zeros in front of the table, a vector


@part
def _allowed(row, n):
    """How many items may be chosen; -1 for a row that is not for this kernel."""
    found = 0
    for i in range(n):
        if not row[i] < np.inf:
            return -1
        if row[i] > -np.inf:
            found += 1
    return found


@part
def _toss(row, heads, tails):
    """The coins of tilted logits."""
    for i in range(0, len(row), width(row)):
        t = load(row, i)
        e = exp_negative(t)
        likely = 1.0 / (1.0 + e)
        rarer = e * likely
        store(heads, i, choose(t, 0.0, likely, rarer))
        store(tails, i, choose(t, 0.0, rarer, likely))


@part
def _is_taken(table, r, p, q, u):
    """Whether an item is, when r are to be chosen from it and those behind it: if u is less than
    the probability. What cannot be is taken."""
    taken, left = p * table[_BEFORE + r - 1], q * table[_BEFORE + r]
    return not taken + left > 0 or taken > u * (taken + left)


@part
def _code(table, most, p, q, u):
    """The first r at which an item is taken, less one."""
    if not _is_taken(table, most, p, q, u):
        return most
    low, high = 0, most - 1
    while low < high:
        r = (low + high) // 2
        if _is_taken(table, r + 1, p, q, u):
            high = r
        else:
            low = r + 1
    return low


@part
def _add(table, most, p, q):
    """An item more behind."""
    lanes = width(table)
    for at in range(_BEFORE + most // lanes * lanes, _BEFORE - 1, -lanes):
        store(table, at, load(table, at) * q + load(table, at - 1) * p)


@part
def _place(n, most, codes, free, rank, order):
    """The places that codes mean: the code-th of those that are free."""
    left = most
    for place in range(most):
        free[place] = place
        order[place] = -1
    for i in range(n):
        code = codes[i]
        rank[i] = most
        if code < left:
            rank[i] = free[code]
            order[free[code]] = i
            left -= 1
            for place in range(code, left):
                free[place] = free[place + 1]


@allocating
def _order(first, last, noted, samples, most, logits, seeds, rank, order):
    rows, n = logits.shape
    odd = 0
    row = np.empty(padded(n), np.float64)
    heads, tails = np.empty(padded(n), np.float64), np.empty(padded(n), np.float64)
    table = np.empty(_BEFORE + most + 8, np.float64)
    codes = np.empty((samples, n), np.int64)
    keys = np.empty(samples, np.uint64)
    free = np.empty(most, np.int64)
    for r in range(first, last):
        for i in range(n):
            row[i] = logits[r, i]
        for i in range(n, padded(n)):
            row[i] = -np.inf
        allowed = _allowed(row, n)
        if allowed < max(most, 2):
            noted[r] = 1
            odd += 1
            continue
        tilt_row(row, n, min(most, max(allowed // 2, 1)))
        _toss(row, heads, tails)
        for s in range(samples):
            keys[s] = key(np.uint64(seeds[s * rows + r]))
        for at in range(len(table)):
            table[at] = 0
        table[_BEFORE] = 1
        for i in range(n - 1, -1, -1):
            p, q = heads[i], tails[i]
            for s in range(samples):
                u = min(uniform(keys[s], i), 1 - 2.0**-53)
                codes[s, i] = _code(table, most, p, q, u)
            _add(table, most, p, q)
        if not min(table[_BEFORE], table[_BEFORE + most]) > _LEAST:
            noted[r] = 1
            odd += 1
            continue
        for s in range(samples):
            at = s * rows + r
            _place(n, most, codes[s], free, rank[at], order[at])
    return odd


def _kernel(dtype: Any) -> Any:
    """As in :mod:`.entries`."""

    @kernel
    def order_of_items(first, last, rows, n, samples, most, noted, logits, seeds, rank, order):
        drawn = samples * rows
        return _order(
            first, last, _bytes(noted, rows), samples, most, _floats(logits, (rows, n), dtype),
            _integers(seeds, drawn), _integers(rank, (drawn, n)), _integers(order, (drawn, most)),
        )  # fmt: skip

    return order_of_items


_KERNELS = {torch.float32: _kernel(np.float32), torch.float64: _kernel(np.float64)}


def order(logits: Tensor, most: int, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first items of orderings (samples, rows, most), and the place of every item (samples,
    rows, n), ``most`` beyond the last, for logits (rows, n) and seeds (samples, rows); and the rows
    that are not for this kernel, if there are any."""
    logits, seeds = logits.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    order = torch.empty(*seeds.shape, most, dtype=torch.int64)
    rank = torch.empty(*seeds.shape, n, dtype=torch.int64)
    noted = torch.zeros(rows, dtype=torch.uint8)
    addresses = (x.data_ptr() for x in (noted, logits, seeds, rank, order))
    odd = share(_KERNELS[logits.dtype], rows, n, seeds.shape[0], most, *addresses)
    return order, rank, noted.nonzero().squeeze(-1) if odd else None
