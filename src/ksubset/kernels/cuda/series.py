"""Moments of a row from power sums of its coins' probabilities, in one pass for all nodes (see
kernels/cpu/series.py). Of COUNT powers: p^2 to p^COUNT, and pq v times p^0 to p^(COUNT - 1).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.angles import half_angle, rotation_by

_PI = tl.constexpr(3.141592653589793)
_NODES = tl.constexpr(16)  # float32 has 12 at most


@triton.jit
def serves(top, mean, variance, decay, COUNT: tl.constexpr):
    """Whether so many powers are enough (powers_for, for COUNT - 1), of the largest p, the expected
    S and the variance."""
    top, mean = tl.maximum(top, 1e-37), tl.maximum(mean, 1e-37)
    variance = tl.maximum(variance, 1e-37)
    count = tl.log(variance * 0 + COUNT)
    error = 0.5 * COUNT * (2 * tl.log(top) - 1 - tl.log(variance) + count)
    error += tl.maximum(tl.log(variance * 0 + (COUNT + 1)), tl.log(mean / top) - count)
    near_zero = tl.where(variance < 32, top, 0.0) > 0.45
    return tl.where(near_zero, 0.0, -error) > decay + 2.5


@triton.jit
def heads(up, x):
    """p of coins that can fall both ways; of others 0: they are not counted."""
    return tl.where(up & (x > 0), 1 - x, x)


@triton.jit
def add8(
    a0, b0, c0, d0, e0, f0, g0, h0, a1, b1, c1, d1, e1, f1, g1, h1
):  # fmt: skip
    """Eight sums in one reduction."""
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1, f0 + f1, g0 + g1, h0 + h1


@triton.jit
def add12(
    a0, b0, c0, d0, e0, f0, g0, h0, i0, j0, k0, l0,
    a1, b1, c1, d1, e1, f1, g1, h1, i1, j1, k1, l1
):  # fmt: skip
    """Twelve."""
    return (
        a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1, f0 + f1,
        g0 + g1, h0 + h1, i0 + i1, j0 + j1, k0 + k1, l0 + l1,
    )  # fmt: skip


@triton.jit
def _step(real, imag, a_real, a_imag, term):
    """Horner's for a series in -a."""
    return term - (a_real * real - a_imag * imag), -(a_real * imag + a_imag * real)


@triton.jit
def _horner(a_real, a_imag, terms, COUNT: tl.constexpr):
    """a (terms[0] - a terms[1] + a^2 terms[2] - ...)."""
    real, imag = a_real * 0 + terms[COUNT - 1], a_real * 0
    for m in tl.static_range(COUNT - 2, -1, -1):
        real, imag = _step(real, imag, a_real, a_imag, terms[m])
    return a_real * real - a_imag * imag, a_real * imag + a_imag * real


@triton.jit
def _next(real, imag, a_real, a_imag):
    return a_imag * imag - a_real * real, -(a_real * imag + a_imag * real)


@triton.jit
def _over_nodes(real, imag, a_real, a_imag, COUNT: tl.constexpr):
    """The real parts of sums over nodes of (real + i imag) (-a)^m, m = 0 ... COUNT."""
    result = (tl.sum(real, 0),)
    for _ in tl.static_range(COUNT):
        real, imag = _next(real, imag, a_real, a_imag)
        result = result + (tl.sum(real, 0),)
    return result


@triton.jit
def spectrum(
    powers, number, variance, decay, k, expected, COUNT: tl.constexpr, NODES: tl.constexpr
):  # fmt: skip
    """E exp(i omega (S - k)) at nodes, twice but at the first, and exp(i omega) - 1."""
    lane = tl.arange(0, NODES)
    below = 2 * lane < number
    node = tl.where(below, lane, 0).to(tl.float64)
    s, c = half_angle(node, number)
    a_real, a_imag = -2 * s * s, 2 * s * c
    terms = (expected,)
    for m in tl.static_range(2, COUNT + 1):
        terms = terms + (powers[m - 2].to(tl.float64) * (1 / m),)
    real, imag = _horner(a_real, a_imag, terms, COUNT)
    w_real, w_imag = rotation_by(imag - node * k * (2 * _PI / number))
    used = below & (2 * variance * s * s < decay)
    modulus = tl.where(used, tl.exp(real), 0.0) * tl.where(lane > 0, 2.0, 1.0)
    return w_real * modulus, w_imag * modulus, a_real, a_imag


@triton.jit
def coefficients(
    powers, weights, number, variance, decay, k, expected, kind: tl.constexpr,
    INFER: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """N P(S = k), and the coefficients of two polynomials in p: what an item's marginal is off its
    coin's, or if not INFER the part of the covariance product from other items, over pq; and if not
    INFER what its v is multiplied by in the other part.

    powers: sum p^2, sum p^3, ...; weights: sum w, sum w p, ... for w = pq v. Numbers of the row are
    float64, sums over nodes of a kind; k and the expected S count free coins.
    """
    w_real, w_imag, a_real, a_imag = spectrum(
        powers, number, variance, decay, k, expected, COUNT, _NODES
    )
    total = tl.sum(w_real, 0)
    inverse = (1 / total).to(kind)
    w_real, w_imag = w_real.to(kind), w_imag.to(kind)
    a_real, a_imag = a_real.to(kind), a_imag.to(kind)
    of_one = _over_nodes(w_real, w_imag, a_real, a_imag, COUNT)
    of_v = of_one
    mean = inverse
    if not INFER:
        g_real, g_imag = _horner(a_real, a_imag, weights, COUNT)
        u_real, u_imag = w_real * g_real - w_imag * g_imag, w_real * g_imag + w_imag * g_real
        of_v = _over_nodes(u_real, u_imag, a_real, a_imag, COUNT)
        mean = of_v[0] * inverse
    across = ()
    within = ()
    for m in tl.static_range(COUNT):
        # a (-a)^m = -(-a)^(m + 1)
        if INFER:
            across = across + (-of_one[m + 1] * inverse,)
        else:
            across = across + ((mean * of_one[m + 1] - of_v[m + 1]) * inverse,)
            within = within + ((m + 1) * (of_one[m] - of_one[m + 1]) * inverse,)
    if INFER:
        within = across
    return total, across, within


@triton.jit
def polynomial(p, coefficients, COUNT: tl.constexpr):
    """Its values, in float32."""
    result = p * 0 + coefficients[COUNT - 1].to(tl.float32)
    for m in tl.static_range(COUNT - 2, -1, -1):
        result = result * p + coefficients[m].to(tl.float32)
    return result
