"""Moments of a row in registers, by the spectral method (see kernels/spectral.py): from power sums
(:mod:`.series`) where these serve the row, else node by node."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda import series
from ksubset.kernels.cuda.angles import half_angle, rotation

_INF = tl.constexpr(float("inf"))
# As in spectral.PRECISIONS, of float32 and of float64
TAIL, DECAY = tl.constexpr(16.0), tl.constexpr(16.0)
ENOUGH = tl.constexpr(1.3e-14)  # exp(-2 decay)
TAIL_OF_DOUBLES, DECAY_OF_DOUBLES = tl.constexpr(39.0), tl.constexpr(41.0)
_ENOUGH_OF_DOUBLES = tl.constexpr(2.4e-36)
_POWERS = tl.constexpr(12)


@triton.jit
def _complex_and_sums(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def _complex(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _seven_sums_and_the_most(
    a0, b0, c0, d0, e0, f0, g0, h0, a1, b1, c1, d1, e1, f1, g1, h1
):  # fmt: skip
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1, f0 + f1, g0 + g1, tl.maximum(h0, h1)


@triton.jit
def coins(t, inside):
    """Whether heads is likelier, min(p, q), pq and p - q."""
    up = t > 0
    e = tl.exp(-tl.abs(t))
    x = e / (1 + e)
    x = tl.where(inside, x, 0.0)
    pq = x * (1 - x)
    skew = tl.where(up, 1 - 2 * x, 2 * x - 1)
    return up, x, pq, skew


@triton.jit
def nodes_for(variance, free_count, TIMES: tl.constexpr, DOUBLES: tl.constexpr = False):
    """N, odd: so many times what tails reach."""
    tail: tl.constexpr = TAIL_OF_DOUBLES if DOUBLES else TAIL
    number = TIMES * (tl.sqrt(variance * (2 * tail) + tail * tail / 9) + tail / 3)
    number = tl.minimum(free_count + 1, number)
    return 2 * tl.ceil((number - 1) * 0.5) + 1


@triton.jit
def moments(t, k, v, inside, WIDE: tl.constexpr, PRODUCT: tl.constexpr):
    """The coins' parts up, x, pq, the log of P(S = k), the correction of the marginals and, if
    PRODUCT, the covariance product, the last two over pq; else the mean of v by weights pq.

    WIDE multiplies characteristic functions up in float64: a thousand equal factors round the same
    way, and P(S = k) shows it; its ratios, which are the moments, do not.
    """
    up, x, pq, skew = coins(t, inside)
    free = (tl.abs(t) < _INF) & inside
    alive = pq > 0
    signed = tl.where(up, -x, x)
    variance, weighted, free_count, bad, ups, sure, excess, top = tl.reduce(
        (
            pq,
            tl.where(alive, v * pq, 0.0),
            free.to(t.dtype),
            ((t != t) & inside).to(t.dtype),
            (up & inside).to(t.dtype),
            (up & (x > 0)).to(t.dtype),
            signed,
            series.heads(up, x),
        ),
        0,
        _seven_sums_and_the_most,
    )
    # Cov 1 = 0: any constant may be taken off v, but the same one everywhere (see launch.py).
    centre = weighted / tl.maximum(variance, 1e-37)
    v = tl.where(alive, v - centre, 0.0)
    # Heads beyond those of the coins that likely show them: the products over nodes are those of
    # the rarer sides, close to 1, where factors of e^(i omega) would pile up rounding.
    k = k.to(t.dtype) - ups
    variance = tl.where(bad > 0, 0.0, variance)
    number = nodes_for(variance, free_count, 1, t.dtype == tl.float64)
    # Float64 wants more powers.
    if t.dtype == tl.float32:
        expected = excess.to(tl.float64) + sure
        if (bad == 0) & series.serves(top, expected.to(tl.float32), variance, DECAY, _POWERS):
            total, correction, product = _from_power_sums(
                up, x, pq, v, variance, number, k + sure, expected, WIDE, PRODUCT
            )
        else:
            total, correction, product = _from_nodes(
                x, signed, skew, pq, v, variance, number, k, bad, WIDE, PRODUCT
            )
    else:
        total, correction, product = _from_nodes(
            x, signed, skew, pq, v, variance, number, k, bad, WIDE, PRODUCT
        )
    mass = tl.log(total / number.to(total.dtype))
    if not PRODUCT:
        product = centre
    return up, x, pq, mass, correction, product


@triton.jit
def rarer_sides(up, x, pq, correction):
    """P(rarer side | S = k) of every coin, from the correction that :func:`moments` found."""
    y = x + tl.where(up, -pq, pq) * correction
    return tl.where(y != y, y, tl.minimum(tl.maximum(y, 0.0), 1.0))


@triton.jit
def _from_power_sums(
    up, x, pq, v, variance, number, k, expected, WIDE: tl.constexpr, PRODUCT: tl.constexpr
):
    """N P(S = k), the correction of the marginals and, if PRODUCT, the covariance product, the last
    two over pq; k and the expected S count free coins."""
    p = series.heads(up, x)
    p2 = p * p
    p3, p4 = p2 * p, p2 * p2
    p5, p6, p7, p8 = p4 * p, p4 * p2, p4 * p3, p4 * p4
    p9, p10, p11, p12 = p8 * p, p8 * p2, p8 * p3, p8 * p4
    powers = tl.reduce((p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p12), 0, series.add12)
    weights = powers
    if PRODUCT:
        w = pq * v
        weights = tl.reduce(
            (
                w, w * p, w * p2, w * p3, w * p4, w * p5,
                w * p6, w * p7, w * p8, w * p9, w * p10, w * p11,
            ),
            0,
            series.add12,
        )  # fmt: skip
    total, across, within = series.coefficients(
        powers, weights, number.to(tl.float64), variance.to(tl.float64), DECAY,
        k.to(tl.float64), expected, tl.float32, not PRODUCT, _POWERS,
    )  # fmt: skip
    correction = series.polynomial(p, across, _POWERS)
    product = correction
    if PRODUCT:
        product = tl.fma(v, series.polynomial(p, within, _POWERS), correction)
    return total.to(tl.float64 if WIDE else tl.float32), correction, product


@triton.jit
def _from_nodes(
    x, signed, skew, pq, v, variance, number, k, bad, WIDE: tl.constexpr, PRODUCT: tl.constexpr
):
    """As _from_power_sums; k counts from the likely heads."""
    total, mean, correction, across, within = _over_nodes(
        x, signed, skew, pq * v, variance, number, k, bad, WIDE, PRODUCT
    )
    total = tl.where(bad > 0, float("nan"), total)
    whole = total.to(x.dtype)
    correction = correction / whole
    product = correction
    if PRODUCT:
        product = (across - correction * mean) / whole + v * (within / whole)
    return total, correction, product


@triton.jit
def _over_nodes(
    x, signed, skew, weight, variance, number, k, bad, WIDE: tl.constexpr, PRODUCT: tl.constexpr
):
    """The sums over nodes, one after the other. (All at once, as a matrix of nodes and items, took
    twice as long even for the shortest rows.)"""
    decayed: tl.constexpr = DECAY_OF_DOUBLES if x.dtype == tl.float64 else DECAY
    enough: tl.constexpr = _ENOUGH_OF_DOUBLES if x.dtype == tl.float64 else ENOUGH
    wide = number.to(tl.float64)
    step_sine, step_cosine = half_angle(wide * 0 + 1, wide)
    step_real, step_imag = rotation(k.to(tl.float64), wide)
    # By recurrence, in float64: no chain of dependent polynomials for every node.
    sine_wide, cosine_wide = wide * 0, wide * 0 + 1
    real_wide, imag_wide = wide * 0 + 1, wide * 0
    square = skew * skew
    total = wide * 0 if WIDE else variance * 0
    factor, signed_factor = x, signed
    if WIDE:
        factor, signed_factor = x.to(tl.float64), signed.to(tl.float64)
    mean = variance * 0
    correction = x * 0
    across = x * 0
    within = x * 0
    node = variance * 0
    active = bad == 0
    while active:
        s, c = sine_wide.to(x.dtype), cosine_wide.to(x.dtype)
        s2, c2, sc = s * s, c * c, s * c
        inverse = 1 / (c2 + s2 * square)
        down, turned_by = 2 * s2, 2 * sc
        if WIDE:
            down, turned_by = 2 * sine_wide * sine_wide, 2 * sine_wide * cosine_wide
        factor_real, factor_imag = 1 - factor * down, signed_factor * turned_by
        if PRODUCT:
            ratio = weight * inverse
            phi_real, phi_imag, g_real, g_imag = tl.reduce(
                (factor_real, factor_imag, ratio * skew, ratio), 0, _complex_and_sums
            )
        else:
            phi_real, phi_imag = tl.reduce((factor_real, factor_imag), 0, _complex)
        turn_real, turn_imag = real_wide.to(phi_real.dtype), imag_wide.to(phi_real.dtype)
        twice = tl.where(node > 0, 2.0, 1.0)
        weight_real = twice * (phi_real * turn_real + phi_imag * turn_imag)
        weight_imag = twice * (phi_imag * turn_real - phi_real * turn_imag)
        total += weight_real
        w_real, w_imag = weight_real.to(x.dtype), weight_imag.to(x.dtype)
        correction += inverse * (skew * (2 * w_real * s2) - 2 * w_imag * sc)
        if PRODUCT:
            g_real, g_imag = g_real * (2 * s2), g_imag * (2 * sc)
            wg_real = w_real * g_real - w_imag * g_imag
            wg_imag = w_real * g_imag + w_imag * g_real
            mean += wg_real
            across += inverse * (skew * (2 * wg_real * s2) - 2 * wg_imag * sc)
            spread = w_real * c2 + skew * (2 * w_imag * sc - skew * (w_real * s2))
            within += spread * inverse * inverse
        node += 1
        following = sine_wide * step_cosine + cosine_wide * step_sine
        cosine_wide = cosine_wide * step_cosine - sine_wide * step_sine
        sine_wide = following
        turned = real_wide * step_real - imag_wide * step_imag
        imag_wide = imag_wide * step_real + real_wide * step_imag
        real_wide = turned
        decay = 2 * variance * (sine_wide * sine_wide).to(x.dtype)
        # The modulus falls from node to node, and often faster than that bound.
        modulus = (phi_real * phi_real + phi_imag * phi_imag).to(x.dtype)
        decay = tl.where(modulus > enough, decay, decayed)
        active = tl.where(2 * node < number, decay, decayed) < decayed
    return total, mean, correction, across, within
