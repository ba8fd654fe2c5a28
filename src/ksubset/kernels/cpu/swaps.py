"""Products with the product plan of swaps (kernels/swaps.py) for rows worked on as a whole.

The flow of an item is the probability that it is not as it is in z: that of its coin's rarer side,
given k heads, where the coin shows the more likely one in z. The product with v compares each item
with the mean of v, weighted by flow, over the items on the other side.
"""

from __future__ import annotations

from ksubset.kernels.cpu import moments, series
from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.moments import SIGNED, variances
from ksubset.kernels.cpu.simd import absolute, choose, copy, fill, load, store, total, width
from ksubset.kernels.cpu.tilt import padded

_BLOCK = 512  # items whose sum may stay in the working precision, and whose arrays in the L1 cache


@part
def add_swaps(at, rows, coins, variance, count, powers, narrow, drawn, vectors, work, product):
    """product[at] = sum_s L(z_s) v_s over the samples in the rows at, at + rows, ... of drawn and
    vectors.

    narrow: what prepare_correction has left there, that of :mod:`.series` if there are powers, of
    :mod:`.moments` otherwise. work: (5, padded(n)).
    """
    n = vectors.shape[-1]
    size = padded(n)
    rarer, z, v = work[0], work[2], work[3]
    added = product[at] if n == size else work[4]
    for s in range(at, len(drawn), rows):
        z_s, v_s = drawn[s], vectors[s]
        # What is read beyond the end of a row belongs to the next one, and does not count.
        if (len(drawn) - s) * n < size:
            copy(z_s, z, n)
            copy(v_s, v, n)
            for i in range(n, size):
                z[i], v[i] = 0, 0
            z_s, v_s = z, v
        # L 1 = 0: less a constant, large values keep their digits.
        shift = _reference(size, coins[SIGNED], variance, v_s)
        # The flows of the last sample take the place of the probabilities.
        flow = work[1] if s + rows < len(drawn) else rarer
        out, into, of_out, of_into = 0.0, 0.0, 0.0, 0.0
        for first in range(0, size, _BLOCK):
            last = min(first + _BLOCK, size)
            if s == at:
                if powers > 0:
                    series.correct_some(first, last, coins, powers, narrow, rarer)
                else:
                    moments.correct_some(first, last, coins, count, narrow, rarer)
            a, b, c, d = _flows(first, last, coins[SIGNED], rarer, z_s, v_s, shift, flow)
            out += a
            into += b
            of_out += c
            of_into += d
        for_chosen = of_into / into if into > 0 else 0.0
        for_others = of_out / out if out > 0 else 0.0
        _exchange(size, flow, v_s, shift, for_chosen, for_others, added, s == at)
    if n < size:
        copy(added, product[at], n)


@part
def _reference(size, signed, variance, v):
    """A constant amid the values v of items that matter: the weighted mean of the first vector that
    has half of its share of the variance, or more."""
    wide = width(v)
    share = 0.5 * variance * wide / size
    for i in range(0, size, wide):
        w = variances(load(signed, i))
        here = total(w)
        if here >= share and here > 0:
            return total(choose(w, 0.0, w * load(v, i), fill(v, 0.0))) / here
    return 0.0


@part
def _flows(first, last, signed, rarer, z, v, shift, flow):
    """Fill flow for a block of items, plus for chosen ones and minus for others. Returns the flow
    out of chosen items, into others, and the same weighted by v - shift."""
    one, zero = fill(v, 1.0), fill(v, 0.0)
    out, into, of_out, of_into = zero, zero, zero, zero
    for i in range(first, last, width(v)):
        y, chosen = load(rarer, i), load(z, i)
        shows_rarer = choose(0.0, load(signed, i), one - chosen, chosen)
        here = choose(shows_rarer, 0.5, one - y, y)
        # What is no coin has y = 0, and for v perhaps infinity.
        here, at = choose(y, 0.0, here, zero), choose(y, 0.0, load(v, i) - shift, zero)
        # Beyond the row z is that of the next one, and may be NaN.
        left = choose(chosen, 0.5, here, zero)
        came = here - left
        store(flow, i, left - came)
        out, into = out + left, into + came
        of_out, of_into = of_out + left * at, of_into + came * at
    return total(out), total(into), total(of_out), total(of_into)


@part
def _exchange(size, flow, v, shift, for_chosen, for_others, product, first):
    """Add L(z) v to the product, or if this is the first of several samples, store it."""
    zero = fill(v, 0.0)
    for i in range(0, size, width(v)):
        here, at = load(flow, i), load(v, i) - shift
        away = choose(here, 0.0, at - for_chosen, for_others - at)
        moved = choose(absolute(here), 0.0, (0.5 * here) * away, zero)
        if not first:
            moved = moved + load(product, i)
        store(product, i, moved)
