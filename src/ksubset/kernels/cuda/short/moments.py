"""Moments of several short rows in registers (:mod:`.items`).

A lane's items are its leaf. The number of its heads has a polynomial, multiplied up item by item
with positive terms only; the characteristic function of the whole row is the product of the leaves'
polynomials at each node, and what the other leaves have to show is a sum over nodes
(kernels/spectral.py), for each number of heads of one's own. From there, the chances with and
without each item come by going back through the leaf. So an item costs as much as it has neighbours
in its leaf, and only a leaf costs as much as there are nodes. docs/mathematics.md, section 3.

The covariance product is the derivative of all that: next to every chance stands E[V; ...], for
V = sum_j v_j (z_j - p_j).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.angles import sine
from ksubset.kernels.cuda.moments import DECAY, coins, nodes_for
from ksubset.kernels.cuda.tilt import add4

_INF = tl.constexpr(float("inf"))
_PI = tl.constexpr(3.141592653589793)
# A leaf's characteristic function is known to so much, and never said to be smaller.
_LEAST = tl.constexpr(1e-7)


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _multiply_and_add(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def moments(
    t, k, v, WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr
):
    """Of items: up, x and pq, P(rarer side | S = k) and, if PRODUCT, the covariance product; of
    rows: the log of P(S = k), the likely heads and the variance.

    WIDE takes float64 from the leaves on, for the digits of P(S = k).
    """
    none = k.to(tl.float32) * 0
    up = ()
    x = ()
    pq = ()
    variance = none
    weighted = none
    free_count = none
    ups = none
    bad = none
    for i in tl.static_range(PER):
        up_i, x_i, pq_i, _skew = coins(t[i], t[i] == t[i])
        up = up + (up_i,)
        x = x + (x_i,)
        pq = pq + (tl.where(t[i] == t[i], pq_i, float("nan")),)
        variance += pq_i
        free_count += (tl.abs(t[i]) < _INF).to(tl.float32)
        ups += up_i.to(tl.float32)
        bad += (t[i] != t[i]).to(tl.float32)
        if PRODUCT:
            weighted += tl.where(pq_i > 0, v[i] * pq_i, 0.0)
    variance, free_count, ups, bad = tl.reduce(
        (variance, free_count, ups, bad), 1, add4, keep_dims=True
    )
    variance = variance + none
    bad = bad + none
    weights = ()
    if PRODUCT:
        # Cov 1 = 0: any constant may be taken off v, but the same one everywhere (see launch.py).
        weighted = tl.sum(weighted, 1, keep_dims=True)
        centre = weighted / tl.maximum(variance, 1e-37)
        centred = ()
        for i in tl.static_range(PER):
            centred = centred + (tl.where(pq[i] > 0, v[i] - centre, 0.0),)
            weights = weights + (pq[i] * centred[i],)
        v = centred
    number = nodes_for(variance, free_count + none, 1)
    chance, along = _leaves(up, x, weights, none, WIDE, PRODUCT, PER)
    rest, along_rest = _others(chance, along, k, variance, number, bad, WIDE, PRODUCT, PER, LANES)
    mass = tl.log(tl.where(bad > 0, float("nan"), _total(chance, rest, number, PER, LANES)))
    rarer = ()
    products = ()
    # Back through the leaf: `rest` and `along_rest` are of other leaves and of the items behind.
    for i in tl.static_range(PER - 1, -1, -1):
        p, q = _sides(up[i], x[i].to(chance[0].dtype))
        heads, tails, with_it, without = _without_item(chance, along, rest, along_rest, i, PRODUCT)
        inverse = 1 / tl.fma(p, heads, q * tails)
        y = (tl.where(up[i], q * tails, p * heads) * inverse).to(tl.float32)
        y = tl.where(pq[i] == 0, 0.0, y)
        rarer = (tl.where(bad > 0, float("nan"), y),) + rarer
        if PRODUCT:
            heads, tails = heads * inverse, tails * inverse
            apart = with_it * inverse * tails - without * inverse * heads
            own = tl.where(pq[i] == 0, 0.0, pq[i] * tl.fma(v[i] * heads, tails, apart))
            products = (tl.where(bad > 0, float("nan"), own),) + products
            along_rest = _along_before(rest, along_rest, p, q, weights[i], i)
        rest = _before(rest, p, q, i)
    return up, x, pq, rarer, products, mass, ups, variance


@triton.jit
def _sides(up, x):
    """p and q"""
    return tl.where(up, 1 - x, x), tl.where(up, x, 1 - x)


@triton.jit
def _leaves(up, x, weights, none, WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr):
    """The chances of 0, ..., i heads among the first i items of a leaf for i = 0, ..., PER, one
    after the other; and E[V; so many heads]."""
    wide: tl.constexpr = tl.float64 if WIDE else tl.float32
    chance = (none.to(wide) + 1,)
    along = (none.to(wide),)
    for i in tl.static_range(PER):
        p, q = _sides(up[i], x[i].to(wide))
        if PRODUCT:
            along = _along_after(chance, along, p, q, weights[i], i)
        chance = _after(chance, p, q, i)
    return chance, along


@triton.jit
def _after(chance, p, q, i: tl.constexpr):
    """Add the chances after item i to those before."""
    first: tl.constexpr = i * (i + 1) // 2
    result = chance + (q * chance[first],)
    for a in tl.static_range(1, i + 1):
        result = result + (tl.fma(p, chance[first + a - 1], q * chance[first + a]),)
    return result + (p * chance[first + i],)


@triton.jit
def _along_after(chance, along, p, q, weight, i: tl.constexpr):
    """The same for E[V; so many heads]; weight is pq v."""
    first: tl.constexpr = i * (i + 1) // 2
    result = along + (tl.fma(q, along[first], -weight * chance[first]),)
    for a in tl.static_range(1, i + 1):
        change = chance[first + a - 1] - chance[first + a]
        own = tl.fma(weight, change, q * along[first + a])
        result = result + (tl.fma(p, along[first + a - 1], own),)
    return result + (tl.fma(p, along[first + i], weight * chance[first + i]),)


@triton.jit
def _before(rest, p, q, i: tl.constexpr):
    """From chances given the heads of items 0, ..., i to those given heads of items before i."""
    result = (tl.fma(p, rest[1], q * rest[0]),)
    for a in tl.static_range(1, i + 1):
        result = result + (tl.fma(p, rest[a + 1], q * rest[a]),)
    return result


@triton.jit
def _along_before(rest, along, p, q, weight, i: tl.constexpr):
    """The same for E[V; ...]."""
    result = ()
    for a in tl.static_range(i + 1):
        own = tl.fma(weight, rest[a + 1] - rest[a], q * along[a])
        result = result + (tl.fma(p, along[a + 1], own),)
    return result


@triton.jit
def _without_item(chance, along, rest, along_rest, i: tl.constexpr, PRODUCT: tl.constexpr):
    """N P(S = k | item i falls heads), and tails; and N E[V; S = k | ...] with V of all others."""
    first: tl.constexpr = i * (i + 1) // 2
    heads = chance[first] * rest[1]
    tails = chance[first] * rest[0]
    with_it = heads
    without = tails
    if PRODUCT:
        with_it = tl.fma(chance[first], along_rest[1], along[first] * rest[1])
        without = tl.fma(chance[first], along_rest[0], along[first] * rest[0])
    for a in tl.static_range(1, i + 1):
        heads = tl.fma(chance[first + a], rest[a + 1], heads)
        tails = tl.fma(chance[first + a], rest[a], tails)
        if PRODUCT:
            with_it = tl.fma(chance[first + a], along_rest[a + 1], with_it)
            with_it = tl.fma(along[first + a], rest[a + 1], with_it)
            without = tl.fma(chance[first + a], along_rest[a], without)
            without = tl.fma(along[first + a], rest[a], without)
    return heads, tails, with_it, without


@triton.jit
def _total(chance, rest, number, PER: tl.constexpr, LANES: tl.constexpr):
    """P(S = k)"""
    last: tl.constexpr = PER * (PER + 1) // 2
    total = chance[last] * rest[0]
    for a in tl.static_range(1, PER + 1):
        total += chance[last + a] * rest[a]
    if LANES > 1:
        total = total / number.to(total.dtype)
    return total


@triton.jit
def _half_angle(steps, number, per_step):
    """angles.half_angle with 1 / number given: divisions of float64 are long."""
    s = sine(tl.minimum(steps, number - steps) * (per_step * _PI))
    return s, sine((number - 2 * steps) * (per_step * (0.5 * _PI)))


@triton.jit
def _count_nodes(variance, number):
    """At least as many nodes as any of the rows needs: those with 2 variance sin^2 < DECAY.

    (To ask from node to node, by an exchange among all lanes, takes as long as the node itself.)
    """
    least = 0.5 / tl.maximum(variance, 1e-37)
    high = tl.minimum(tl.sqrt(least * DECAY), 1.0)
    # Above the arcsine for sines from 0 to 1, and the same at both ends.
    angle = high + 0.5707964 * (high * high * high)
    count = tl.minimum(0.3183099 * number * angle, 0.5 * (number - 1)) + 1.001
    return tl.max(count.to(tl.int32))


@triton.jit
def _others(
    chance, along, k, variance, number, bad,
    WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """N P(S = k | a leaf shows a heads) for a = 0, ..., PER, and N E[V; S = k | ...] of the other
    leaves' V. Of a lone leaf, without N."""
    rest = ()
    along_rest = ()
    if LANES == 1:
        for a in tl.static_range(PER + 1):
            rest = rest + ((k == a).to(chance[0].dtype),)
            along_rest = along_rest + (chance[0] * 0,)
    else:
        even, odd, along_even, along_odd = _over_nodes(
            chance, along, k, variance, number, bad, WIDE, PRODUCT, PER, LANES
        )
        middle: tl.constexpr = PER // 2
        for a in tl.static_range(PER + 1):
            if a < middle:
                rest = rest + (even[middle - a] + odd[middle - a],)
            else:
                rest = rest + (even[a - middle] - odd[a - middle],)
            if PRODUCT:
                if a < middle:
                    along_rest = along_rest + (along_even[middle - a] + along_odd[middle - a],)
                else:
                    along_rest = along_rest + (along_even[a - middle] - along_odd[a - middle],)
    return rest, along_rest


@triton.jit
def _halves(values, PER: tl.constexpr):
    """A leaf's polynomial about its middle power: sums and differences of its coefficients as far
    from there on either side."""
    last: tl.constexpr = PER * (PER + 1) // 2
    middle: tl.constexpr = PER // 2
    even = (values[last + middle],)
    odd = (values[last + middle] * 0,)
    for d in tl.static_range(1, PER - middle + 1):
        if d <= middle:
            even = even + (values[last + middle + d] + values[last + middle - d],)
            odd = odd + (values[last + middle + d] - values[last + middle - d],)
        else:
            even = even + (values[last + middle + d],)
            odd = odd + (values[last + middle + d],)
    return even, odd


@triton.jit
def _at_node(even, odd, cosines, sines, REACH: tl.constexpr):
    """The polynomial at a node, over the node's middle power."""
    real = even[0]
    imag = even[0] * 0
    for d in tl.static_range(1, REACH + 1):
        real = tl.fma(even[d], cosines[d], real)
        imag = tl.fma(odd[d], sines[d], imag)
    return real, imag


@triton.jit
def _over_nodes(
    chance, along, k, variance, number, bad,
    WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The sums over nodes, one after the other: for each distance d from the middle number of heads
    those of cos(d omega) and of sin(d omega). Rows go on together for as long as one of them may
    need; a row that is done takes no more part."""
    kind: tl.constexpr = tl.float64 if WIDE else tl.float32
    reach: tl.constexpr = PER - PER // 2  # the largest distance from the middle
    even, odd = _halves(chance, PER)
    if PRODUCT:
        v_even, v_odd = _halves(along, PER)
    # The middle powers of all leaves go to the other side.
    left = k.to(tl.float32) - (PER // 2) * LANES
    wide = number.to(tl.float64)
    per_step = (1 / number).to(tl.float64)
    per_step = per_step * (2 - wide * per_step)  # a step of Newton's, in place of a division
    step_sine, step_cosine = _half_angle(wide * 0 + 1, wide, per_step)
    # A whole turn too many, where the quotient is rounded, does not matter.
    turn_sine, turn_cosine = _half_angle(
        (left - number * tl.floor(left / number)).to(tl.float64), wide, per_step
    )
    step_real, step_imag = 1 - 2 * turn_sine * turn_sine, 2 * turn_sine * turn_cosine
    # By recurrence, in float64: no chain of dependent polynomials for every node.
    sine_wide, cosine_wide = wide * 0, wide * 0 + 1
    real_wide, imag_wide = wide * 0 + 1, wide * 0
    none = chance[0] * 0
    in_even = ()
    in_odd = ()
    along_even = ()
    along_odd = ()
    for _ in tl.static_range(reach + 1):
        in_even = in_even + (none,)
        in_odd = in_odd + (none,)
        along_even = along_even + (none,)
        along_odd = along_odd + (none,)
    node = variance * 0
    active = bad == 0
    for _ in range(_count_nodes(variance, number)):
        s, c = sine_wide.to(kind), cosine_wide.to(kind)
        cosine, sine_ = tl.fma(-2 * s, s, 1.0 + none), 2 * s * c
        cosines = (none + 1, cosine)
        sines = (none, sine_)
        for d in tl.static_range(2, reach + 1):
            far = tl.fma(cosines[d - 1], cosine, -sines[d - 1] * sine_)
            sines = sines + (tl.fma(cosines[d - 1], sine_, sines[d - 1] * cosine),)
            cosines = cosines + (far,)
        own_real, own_imag = _at_node(even, odd, cosines, sines, reach)
        size = tl.fma(own_real, own_real, own_imag * own_imag)
        # All lanes go on with the same product, whatever this one takes for its own part of it.
        lost = size < _LEAST * _LEAST
        own_real, own_imag = tl.where(lost, _LEAST, own_real), tl.where(lost, 0.0, own_imag)
        inverse = 1 / tl.where(lost, _LEAST * _LEAST, size)
        back_real, back_imag = own_real * inverse, -own_imag * inverse
        if PRODUCT:
            v_real, v_imag = _at_node(v_even, v_odd, cosines, sines, reach)
            ratio_real = tl.fma(v_real, back_real, -v_imag * back_imag)
            ratio_imag = tl.fma(v_real, back_imag, v_imag * back_real)
            phi_real, phi_imag, g_real, g_imag = tl.reduce(
                (own_real, own_imag, ratio_real, ratio_imag), 1, _multiply_and_add, keep_dims=True
            )
        else:
            phi_real, phi_imag = tl.reduce((own_real, own_imag), 1, _multiply, keep_dims=True)
        turn_real, turn_imag = real_wide.to(kind), imag_wide.to(kind)
        twice = tl.where(active, tl.where(node > 0, 2.0, 1.0), 0.0).to(kind)
        weight_real = twice * tl.fma(phi_real + none, turn_real, phi_imag * turn_imag)
        weight_imag = twice * tl.fma(phi_imag + none, turn_real, -(phi_real * turn_imag))
        # Without this leaf
        w_real = tl.fma(weight_real, back_real, -weight_imag * back_imag)
        w_imag = tl.fma(weight_real, back_imag, weight_imag * back_real)
        if PRODUCT:
            g_real, g_imag = g_real - ratio_real, g_imag - ratio_imag
            u_real = tl.fma(w_real, g_real, -w_imag * g_imag)
            u_imag = tl.fma(w_real, g_imag, w_imag * g_real)
        new_even = (in_even[0] + w_real,)
        new_odd = (none,)
        new_along_even = along_even
        new_along_odd = along_odd
        if PRODUCT:
            new_along_even = (along_even[0] + u_real,)
            new_along_odd = (none,)
        for d in tl.static_range(1, reach + 1):
            new_even = new_even + (tl.fma(w_real, cosines[d], in_even[d]),)
            new_odd = new_odd + (tl.fma(w_imag, sines[d], in_odd[d]),)
            if PRODUCT:
                new_along_even = new_along_even + (tl.fma(u_real, cosines[d], along_even[d]),)
                new_along_odd = new_along_odd + (tl.fma(u_imag, sines[d], along_odd[d]),)
        in_even, in_odd = new_even, new_odd
        along_even, along_odd = new_along_even, new_along_odd
        node += 1
        following = tl.fma(sine_wide, step_cosine, cosine_wide * step_sine)
        cosine_wide = tl.fma(cosine_wide, step_cosine, -sine_wide * step_sine)
        sine_wide = following
        turned_on = tl.fma(real_wide, step_real, -imag_wide * step_imag)
        imag_wide = tl.fma(imag_wide, step_real, real_wide * step_imag)
        real_wide = turned_on
        decay = 2 * variance * (sine_wide * sine_wide).to(tl.float32)
        active = active & (2 * node < number) & (decay < DECAY)
    return in_even, in_odd, along_even, along_odd
