"""Products with the product plan of swaps (kernels/swaps.py)."""

from __future__ import annotations

from ksubset.kernels.cpu.compile import inlined
from ksubset.kernels.cpu.short.lanes import SIGN
from ksubset.kernels.cpu.simd import choose, fill, load, store, width

_NONE = 2e-35  # the variance of a coin without a chance, see tilt.REACH


@inlined
def add_product(n, marks, heads, tails, rarer, z, v, flow, product, first):
    """Add L(z) v to the product, or if this is the first of several samples, store it; of no use
    where a lane is marked as odd. v and flow are used up.

    The flow of a chosen item is the probability that it is not chosen, and that of another item
    the probability that it is: y where the coin in z shows its likelier side, else 1 - y, with y
    the probability of the rarer one.
    """
    lanes = width(v)
    zero, one = fill(v, 0.0), fill(v, 1.0)
    side = load(marks, SIGN * lanes)
    whole, mean = zero, zero
    for i in range(0, n * lanes, lanes):
        p, y, chosen = load(heads, i), load(rarer, i), load(z, i)
        shows_heads = choose(side, 0.0, chosen, one - chosen)
        shows_rarer = choose(p, 0.5, one - shows_heads, shows_heads)
        here = choose(p * load(tails, i), _NONE, choose(shows_rarer, 0.5, one - y, y), zero)
        here = choose(here, 0.0, here, zero)
        store(flow, i, here)
        # What an item without a flow has for v is nobody's business, be it infinite.
        at = choose(here, 0.0, load(v, i), zero)
        store(v, i, at)
        whole = whole + here
        mean = mean + here * at
    # L 1 = 0: less their mean, large values keep their digits.
    mean = mean / choose(whole, 0.0, whole, one)
    # As much flows out of chosen items as into the others: half of the whole.
    of_out, of_all = zero, zero
    for i in range(0, n * lanes, lanes):
        here = load(flow, i)
        at = load(v, i) - mean
        store(v, i, at)
        weighted = here * at
        of_out = of_out + choose(load(z, i), 0.5, weighted, zero)
        of_all = of_all + weighted
    # (Half of the smallest number would be zero.)
    whole = choose(whole, 0.0, whole, one)
    for_chosen = 2.0 * (of_all - of_out) / whole
    for_others = 2.0 * of_out / whole
    for i in range(0, n * lanes, lanes):
        swapped_for = choose(load(z, i), 0.5, for_chosen, for_others)
        here = (0.5 * load(flow, i)) * (load(v, i) - swapped_for)
        if not first:
            here = here + load(product, i)
        store(product, i, here)
