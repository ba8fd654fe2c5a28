"""A compiled kernel for nested subsets: the codes of an ordering and the places they mean.

In linear space, thanks to a tilt: tables of P(S = r) over the items behind each one. Rows whose
tables would leave the range of float64 are not for it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels import cpu
from ksubset.kernels.coins import Coins
from ksubset.kernels.cpu.compile import allocating, kernel
from ksubset.kernels.cpu.entries import _integers, _wide
from ksubset.kernels.cpu.threads import share

__all__ = ["order"]

_RANGE = 690.0  # of logarithms of probabilities in float64


@allocating
def _order(first, last, samples, most, heads, tails, noise, order):
    rows, n = heads.shape
    before, table = np.empty(most + 1, np.float64), np.empty(most + 1, np.float64)
    codes = np.empty((samples, n), np.int64)
    free = np.empty(most, np.int64)
    for row in range(first, last):
        before[:] = 0
        before[0] = 1
        for i in range(n - 1, -1, -1):
            p, q = heads[row, i], tails[row, i]
            table[0] = q * before[0]
            for r in range(1, most + 1):
                table[r] = q * before[r] + p * before[r - 1]
            for s in range(samples):
                u = noise[s * rows + row, i]
                # The first r at which the item is taken, less one; what cannot be is taken.
                low, high = 0, most
                if table[most] > 0 and not p * before[most - 1] > u * table[most]:
                    low = most
                while low < high:
                    r = (low + high) // 2
                    if table[r + 1] > 0 and not p * before[r] > u * table[r + 1]:
                        low = r + 1
                    else:
                        high = r
                codes[s, i] = low
            before, table = table, before
        for s in range(samples):
            left = most
            for place in range(most):
                free[place] = place
            for i in range(n):
                code = codes[s, i]
                if code < left:
                    order[s * rows + row, free[code]] = i
                    left -= 1
                    for place in range(code, left):
                        free[place] = free[place + 1]
    return 0


@kernel
def order_of_items(first, last, rows, n, samples, most, heads, tails, noise, order):
    drawn = samples * rows
    return _order(
        first, last, samples, most, _wide(heads, (rows, n)), _wide(tails, (rows, n)),
        _wide(noise, (drawn, n)), _integers(order, (drawn, most)),
    )  # fmt: skip


def order(theta: Tensor, most: int, noise: Tensor) -> Tensor | None:
    """The first items of orderings (samples, rows, most), for finite logits (rows, n) and uniform
    numbers (samples, rows, n), all float64; None for rows that are not for this kernel."""
    rows, n = theta.shape
    if not most > 0 or n < 2:
        return None
    middle = min(most, max(n // 2, 1))
    k = torch.full((rows,), middle, dtype=torch.int64)
    coins = Coins.from_tilted(cpu.tilt(theta, k), k)
    none = -coins.q.log().sum(-1)
    odds = coins.p.log()
    all_heads = -most * odds.amin(-1)  # at most
    if not bool((none + all_heads < _RANGE).all()):
        all_heads = -odds.topk(most, largest=False).values.sum(-1)
        if not bool((none + all_heads < _RANGE).all()):
            return None
    found = torch.empty(*noise.shape[:-1], most, dtype=torch.int64)
    given = [x.contiguous() for x in (coins.p, coins.q, noise)]
    addresses = (x.data_ptr() for x in (*given, found))
    share(order_of_items, rows, n, noise.shape[0], most, *addresses)
    return found
