"""An exact sample of a row item by item, from the characteristic function of what is left: for rows
whose tries ran out."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.angles import rotation
from ksubset.kernels.cuda.random import wide_uniform

_INF = tl.constexpr(float("inf"))
_ONE_BY_ONE = tl.constexpr(0x40000000)  # where the counters of these numbers start


@triton.jit
def one_by_one(tilted_row, drawn_row, k, key, n, NODES: tl.constexpr):
    """Draw a row item by item from the characteristic function of what is left, in float64.

    Dividing an item's factor out keeps every node's value to full relative precision. The more
    items are settled, the more nodes count: whenever three quarters of the variance are gone, what
    is left gets nodes of its own, so that 64 of them are enough for all rows.
    """
    node = tl.arange(0, NODES).to(tl.float64)
    one = tl.arange(0, 1)
    left = k.to(tl.float64)
    start = tl.zeros([], tl.int32)
    while start < n:
        variance = left * 0
        rest = left * 0
        forced = left * 0
        for i in range(start, n):
            t = tl.load(tilted_row + i).to(tl.float64)
            e = tl.exp(-tl.abs(t))
            variance += e / ((1 + e) * (1 + e))
            rest += tl.where(tl.abs(t) < _INF, 1.0, 0.0)
            forced += tl.where(t == _INF, 1.0, 0.0)
        left = tl.where(start == 0, left - forced, left)
        # Wider than for moments: right also far from the mean.
        number = tl.minimum(rest + 1, 26 + 13 * tl.sqrt(variance))
        number = 2 * tl.ceil((number - 1) * 0.5) + 1
        enough = tl.where(number < 2 * NODES, -1.0, 0.25 * variance)
        use = 2 * node < number
        twice = tl.where(use, tl.where(node > 0, 2.0, 1.0), 0.0).to(tl.float64)
        cosine, sine = rotation(tl.where(use, node, 0.0), number)
        real = twice * 0 + 1.0
        imag = twice * 0
        for i in range(start, n):
            t = tl.load(tilted_row + i).to(tl.float64)
            p = tl.where(tl.abs(t) < _INF, 1 / (1 + tl.exp(-t)), 0.0)
            a = 1 - p * (1 - cosine)
            b = p * sine
            new = real * a - imag * b
            imag = real * b + imag * a
            real = new
        going = (start < n) & (variance > enough)
        while going:
            t = tl.load(tilted_row + start).to(tl.float64)
            e = tl.exp(-tl.abs(t))
            is_free = tl.abs(t) < _INF
            p = tl.where(is_free, 1 / (1 + tl.exp(-t)), 0.0)
            q = 1 / (1 + tl.exp(t))
            a = 1 - p * (1 - cosine)
            b = p * sine
            size = a * a + b * b
            new = (real * a + imag * b) / size
            imag = (imag * a - real * b) / size
            real = new
            turn_real, turn_imag = rotation(node * left, number)
            tails = q * tl.sum(twice * (real * turn_real + imag * turn_imag), 0)
            # One head less to come: turned back by omega.
            back_real = turn_real * cosine + turn_imag * sine
            back_imag = turn_imag * cosine - turn_real * sine
            heads = p * tl.sum(twice * (real * back_real + imag * back_imag), 0)
            heads = tl.maximum(heads, 0.0)
            tails = tl.maximum(tails, 0.0)
            u = tl.sum(wide_uniform(key, one + start + _ONE_BY_ONE), 0)
            take = tl.where(u * (heads + tails) < heads, 1.0, 0.0)
            take = tl.where(left <= 0.5, 0.0, tl.where(left >= rest - 0.5, 1.0, take))
            take = tl.where(is_free, take, tl.where(t > 0, 1.0, 0.0))
            left = left - tl.where(is_free, take, 0.0)
            rest = rest - tl.where(is_free, 1.0, 0.0)
            variance = variance - e / ((1 + e) * (1 + e))
            tl.store(drawn_row + start, take)
            start += 1
            going = (start < n) & (variance > enough)
