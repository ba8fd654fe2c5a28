"""Products with the product plan of swaps (kernels/swaps.py), item by item."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def flow_of(up, pq, rarer, chosen):
    """The probability that an item is not as it is in z: rarer, that of its coin's rarer side, if
    the coin shows the likelier one; 0 for what is no coin; NaN in a row without samples."""
    return tl.where(pq == 0, 0.0, tl.where(chosen != up, 1 - rarer, rarer))


@triton.jit
def mean_of(weighted, total):
    """The mean of v over the flow out of chosen items, or into the others; 0 where nothing flows.

    Sums are float64, so that the same number may be added to all of v, however large it is; or v is
    taken less what is typical of it.
    """
    return tl.where(total > 0, weighted / total, 0.0)


@triton.jit
def swapped(flow, chosen, v, of_out, of_into):
    """L(z) v, from the means of v that items are swapped for."""
    away = (v - tl.where(chosen, of_into, of_out)).to(flow.dtype)
    return tl.where(flow == 0, 0.0, 0.5 * flow * away)
