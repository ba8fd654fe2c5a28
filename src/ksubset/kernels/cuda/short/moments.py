"""Moments of several short rows in registers, by the spectral method (see cuda/moments.py and
:mod:`.items`)."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.moments import DECAY, coins, nodes_for, sine
from ksubset.kernels.cuda.tilt import add4

_INF = tl.constexpr(float("inf"))
_PI = tl.constexpr(3.141592653589793)


@triton.jit
def _multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _multiply_and_add(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def moments(t, k, v, WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr):
    """Of items: up, x and pq, the correction of the marginals over pq and, if PRODUCT, the
    covariance product over pq; of rows: the log of P(S = k) and the likely heads.

    See cuda/moments.py for WIDE.
    """
    none = k.to(tl.float32) * 0
    up = ()
    x = ()
    pq = ()
    skew = ()
    variance = none
    weighted = none
    free_count = none
    ups = none
    bad = none
    for i in tl.static_range(PER):
        up_i, x_i, pq_i, skew_i = coins(t[i], t[i] == t[i])
        up = up + (up_i,)
        x = x + (tl.where(t[i] == t[i], x_i, float("nan")),)
        pq = pq + (tl.where(t[i] == t[i], pq_i, float("nan")),)
        skew = skew + (skew_i,)
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
    if PRODUCT:
        # Cov 1 = 0: any constant may be taken off v, but the same one everywhere (see launch.py).
        weighted = tl.sum(weighted, 1, keep_dims=True)
        centre = weighted / tl.maximum(variance, 1e-37)
        centred = ()
        for i in tl.static_range(PER):
            centred = centred + (tl.where(pq[i] > 0, v[i] - centre, 0.0),)
        v = centred
    number = nodes_for(variance, free_count + none, 1)
    # Heads beyond those of the coins that likely show them: see cuda/moments.py.
    left = k.to(tl.float32) - ups
    total, mean, correction, across, within = _over_nodes(
        up, x, skew, pq, v, variance, number, left, bad, WIDE, PRODUCT, PER
    )
    total = tl.where(bad > 0, float("nan"), total)
    mass = tl.log(total / number.to(total.dtype))
    inverse = 1 / total.to(tl.float32)
    corrections = ()
    products = ()
    for i in tl.static_range(PER):
        if PRODUCT:
            own = (across[i] - correction[i] * inverse * mean) * inverse
            products = products + (own + v[i] * (within[i] * inverse),)
        else:
            corrections = corrections + (correction[i] * inverse,)
    return up, x, pq, corrections, products, mass, ups


@triton.jit
def _half_angle(steps, number, per_step):
    """moments.half_angle with 1 / number given: divisions of float64 are long."""
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
def _over_nodes(
    up, x, skew, pq, v, variance, number, left, bad,
    WIDE: tl.constexpr, PRODUCT: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    """The sums over nodes, one after the other. Rows go on together for as long as one of them may
    need; a row that is done takes no more part."""
    wide = number.to(tl.float64)
    per_step = 1 / wide
    step_sine, step_cosine = _half_angle(wide * 0 + 1, wide, per_step)
    # A whole turn too many, where the quotient is rounded, does not matter.
    turn_sine, turn_cosine = _half_angle(
        (left - number * tl.floor(left / number)).to(tl.float64), wide, per_step
    )
    step_real, step_imag = 1 - 2 * turn_sine * turn_sine, 2 * turn_sine * turn_cosine
    # By recurrence, in float64: no chain of dependent polynomials for every node.
    sine_wide, cosine_wide = wide * 0, wide * 0 + 1
    real_wide, imag_wide = wide * 0 + 1, wide * 0
    none = variance * 0
    total = wide * 0 if WIDE else none
    mean = none
    correction = ()
    across = ()
    within = ()
    for _ in tl.static_range(PER):
        correction = correction + (none,)
        across = across + (none,)
        within = within + (none,)
    node = none
    active = bad == 0
    for _ in range(_count_nodes(variance, number)):
        s, c = sine_wide.to(tl.float32), cosine_wide.to(tl.float32)
        s2, c2, sc = s * s, c * c, s * c
        down, turned = 2 * s2, 2 * sc
        if WIDE:
            down, turned = 2 * sine_wide * sine_wide, 2 * sine_wide * cosine_wide
        phi_real = down * 0 + 1
        phi_imag = down * 0
        g_real = none
        g_imag = none
        inverse = ()
        for i in tl.static_range(PER):
            inverse = inverse + (1 / tl.fma(s2, skew[i] * skew[i], c2),)
            factor = x[i].to(down.dtype)
            real = tl.fma(-factor, down, 1.0 + 0 * down)
            imag = tl.where(up[i], -factor, factor) * turned
            new = tl.fma(phi_real, real, -(phi_imag * imag))
            phi_imag = tl.fma(phi_real, imag, phi_imag * real)
            phi_real = new
            if PRODUCT:
                ratio = (pq[i] * v[i]) * inverse[i]
                g_real = tl.fma(ratio, skew[i], g_real)
                g_imag += ratio
        if PRODUCT:
            phi_real, phi_imag, g_real, g_imag = tl.reduce(
                (phi_real, phi_imag, g_real, g_imag), 1, _multiply_and_add, keep_dims=True
            )
        else:
            phi_real, phi_imag = tl.reduce((phi_real, phi_imag), 1, _multiply, keep_dims=True)
        turn_real, turn_imag = real_wide.to(phi_real.dtype), imag_wide.to(phi_real.dtype)
        twice = tl.where(active, tl.where(node > 0, 2.0, 1.0), 0.0).to(phi_real.dtype)
        weight_real = twice * (phi_real * turn_real + phi_imag * turn_imag)
        weight_imag = twice * (phi_imag * turn_real - phi_real * turn_imag)
        total += weight_real
        w_real, w_imag = weight_real.to(tl.float32), weight_imag.to(tl.float32)
        slope, level = 2 * w_real * s2, 2 * w_imag * sc
        if PRODUCT:
            g_real, g_imag = g_real * (2 * s2), g_imag * (2 * sc)
            wg_real = w_real * g_real - w_imag * g_imag
            wg_imag = w_real * g_imag + w_imag * g_real
            mean += wg_real
            g_slope, g_level = 2 * wg_real * s2, 2 * wg_imag * sc
            at_zero, bend = w_real * c2, -(w_real * s2)
        corrections = ()
        acrosses = ()
        withins = ()
        for i in tl.static_range(PER):
            own = tl.fma(skew[i], slope, -level)
            corrections = corrections + (tl.fma(inverse[i], own, correction[i]),)
            if PRODUCT:
                own = tl.fma(skew[i], g_slope, -g_level)
                acrosses = acrosses + (tl.fma(inverse[i], own, across[i]),)
                spread = tl.fma(skew[i], tl.fma(skew[i], bend, level), at_zero)
                withins = withins + (tl.fma(spread * inverse[i], inverse[i], within[i]),)
        correction = corrections
        if PRODUCT:
            across, within = acrosses, withins
        node += 1
        following = sine_wide * step_cosine + cosine_wide * step_sine
        cosine_wide = cosine_wide * step_cosine - sine_wide * step_sine
        sine_wide = following
        turned_on = real_wide * step_real - imag_wide * step_imag
        imag_wide = imag_wide * step_real + real_wide * step_imag
        real_wide = turned_on
        decay = 2 * variance * (sine_wide * sine_wide).to(tl.float32)
        active = active & (2 * node < number) & (decay < DECAY)
    return total, mean, correction, across, within
