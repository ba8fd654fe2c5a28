"""Moments of a row in registers, by the spectral method (see kernels/spectral.py)."""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.tilt import add3

_PI = tl.constexpr(3.141592653589793)
_INF = tl.constexpr(float("inf"))
# As in spectral.PRECISIONS, of float32 and of float64
TAIL, DECAY = tl.constexpr(16.0), tl.constexpr(16.0)
ENOUGH = tl.constexpr(1.3e-14)  # exp(-2 decay)
TAIL_OF_DOUBLES, DECAY_OF_DOUBLES = tl.constexpr(39.0), tl.constexpr(41.0)
_ENOUGH_OF_DOUBLES = tl.constexpr(2.4e-36)


@triton.jit
def _complex_and_sums(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def _complex(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def _add2(a0, b0, a1, b1):
    return a0 + a1, b0 + b1


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
def sine(x):
    """sin x for |x| <= pi/2 in float64. (The interpreter that tests these kernels on CPUs has no
    tl.sin.)"""
    y = x * x
    r = 1.9572941063391263e-20 * y - 8.22063524662433e-18
    r = tl.fma(r, y, tl.full(y.shape, 2.8114572543455206e-15, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -7.647163731819816e-13, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 1.6059043836821613e-10, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -2.505210838544172e-08, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 2.7557319223985893e-06, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -1.984126984126984e-04, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 8.333333333333333e-03, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -1.6666666666666666e-01, tl.float64))
    return tl.fma(x * y, r, x)


@triton.jit
def half_angle(steps, number):
    """sin and cos of pi steps / number for 0 <= steps <= number, in float64."""
    # (The interpreter cannot take a constant of ours for the first factor.)
    s = sine(tl.minimum(steps, number - steps) * _PI / number)
    return s, sine((number - 2 * steps) * _PI / (2 * number))


@triton.jit
def rotation(steps, number):
    """cos and sin of 2 pi steps / number for whole steps, in float64."""
    s, c = half_angle(steps - number * tl.floor(steps / number), number)
    return 1 - 2 * s * s, 2 * s * c


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
    variance, weighted, free_count = tl.reduce(
        (pq, tl.where(alive, v * pq, 0.0), free.to(t.dtype)), 0, add3
    )
    # Cov 1 = 0: any constant may be taken off v, but the same one everywhere (see launch.py).
    centre = weighted / tl.maximum(variance, 1e-37)
    v = tl.where(alive, v - centre, 0.0)
    bad, ups = tl.reduce((((t != t) & inside).to(t.dtype), (up & inside).to(t.dtype)), 0, _add2)
    # Heads beyond those of the coins that likely show them: the products below are those of the
    # rarer sides, close to 1, where factors of e^(i omega) would pile up rounding.
    k = k.to(t.dtype) - ups
    variance = tl.where(bad > 0, 0.0, variance)
    number = nodes_for(variance, free_count, 1, t.dtype == tl.float64)
    signed = tl.where(up, -x, x)
    total, mean, correction, across, within = _over_nodes(
        x, signed, skew, pq * v, variance, number, k, bad, WIDE, PRODUCT
    )
    total = tl.where(bad > 0, float("nan"), total)
    mass = tl.log(total / number.to(total.dtype))
    total = total.to(t.dtype)
    correction = correction / total
    product = centre
    if PRODUCT:
        product = (across - correction * mean) / total + v * (within / total)
    return up, x, pq, mass, correction, product


@triton.jit
def rarer_sides(up, x, pq, correction):
    """P(rarer side | S = k) of every coin, from the correction that :func:`moments` found."""
    y = x + tl.where(up, -pq, pq) * correction
    return tl.where(y != y, y, tl.minimum(tl.maximum(y, 0.0), 1.0))


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
