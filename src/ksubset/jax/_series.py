"""Moments of rows from sums of powers of their coins' probabilities, for rows (rows, n).

What the mixture of ``_spectral.py`` asks of an item at a node is a function of p alone. One
expansion in Chebyshev polynomials of p serves all nodes, so that the work is a few passes over the
items, however many nodes there are. Which rows it serves is known before: few and heavy coins go
node by node. Derivation and bound: docs/mathematics.md, section 3, "Chebyshev sums".
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ksubset._nodes import SINGLE
from ksubset.jax import _spectral
from ksubset.jax._coins import Coins, zeros

DEGREE = 9
# Of the errors at nodes, beside weights whose sum is 1 or more.
_BOUND = 2e-8
_NODES = 12  # as many as ever count in float32
# Where the mean is this many times the variance, float32 has too few digits for their difference.
_CANCELLATION = 8.0

Complex = tuple[Array, Array]


def _shifted(degree: int) -> np.ndarray:
    """Coefficients [m, l] of u^l in T_m(2u - 1)."""
    rows = [np.polynomial.Chebyshev.basis(m, domain=[0, 1]) for m in range(degree + 1)]
    found = np.zeros((degree + 1, degree + 1))
    for m, polynomial in enumerate(rows):
        coefficients = polynomial.convert(kind=np.polynomial.Polynomial).coef
        found[m, : m + 1] = np.round(coefficients)
    return found


_SHIFTED = _shifted(DEGREE)
_SERIES = np.where(np.arange(DEGREE + 1) > 0, 2.0, 1.0)[:, None] * _SHIFTED  # T_0 + 2 T_1 + ...


class Expansion(NamedTuple):
    """The expansion of rows, and what their mixtures come to."""

    serves: Array  # (rows,): whether its errors are within the bound
    u: Array  # (rows, n): the probability of heads or, in rows with swapped sides, tails; over top
    swapped: Array  # (rows,)
    powers: Complex  # (-z)^m, (degree + 1, rows, V)
    a: Complex  # exp(i omega) - 1, (rows, V)
    b: Complex  # a top / 2
    root: Complex  # of 1 + 2b
    weights: Complex  # of the mixture
    log_mass: Array  # (rows,)


def expand(coins: Coins) -> Expansion:
    """Nodes, and the weights of the mixture over them."""
    number = SINGLE.number(coins.variance)
    at = _spectral.some_nodes(number, coins.variance, _NODES, SINGLE)
    alive = coins.pq > 0
    # More than half of the coins show heads: then tails are counted.
    swapped = jnp.where(alive, coins.skew, 0).sum(-1) > 0
    p = jnp.where(coins.up ^ swapped[:, None], 1 - coins.x, coins.x)
    p = jnp.where(alive, p, 0)
    top = jnp.maximum(p.max(-1), jnp.finfo(p.dtype).tiny)
    u = p / top[:, None]
    mean = p.sum(-1)
    excess = jnp.where(swapped, -coins.excess, coins.excess)

    a = (-2 * at.sine**2, 2 * at.sine * at.cosine)
    half = 0.5 * top[:, None]
    b = (half * a[0], half * a[1])
    root = _root((1 + 2 * b[0], 2 * b[1]))
    z = _divide(b, (1 + b[0] + root[0], b[1] + root[1]))
    modulus = jnp.sqrt(z[0] ** 2 + z[1] ** 2)
    powers = _powers((-z[0], -z[1]))

    # sum_j log(1 + a p_j) = -2 sum_m (-z)^m / m sum_j (T_m(2 u_j - 1) - T_m(-1))
    order = np.maximum(np.arange(DEGREE + 1), 1)
    logarithm = _over_powers(powers, _matrix(-2 / order[:, None] * _SHIFTED, _sums(u, None)))
    phase = at.omega * excess[:, None] + (logarithm[1] - at.omega * mean[:, None])
    decay = -2 * coins.variance[:, None] * at.sine**2
    size = at.twice * jnp.exp(jnp.minimum(logarithm[0], decay))
    real, imag = size * jnp.cos(phase), size * jnp.sin(phase)
    total = real.sum(-1, keepdims=True)

    following = DEGREE + 1
    # T_m(2u - 1) is further from T_m(-1) than this times 2 m^2 / following^2 for no item and m.
    far = jnp.minimum(2.5 * following**2 * u, 1).sum(-1)
    factor = jnp.maximum(4 * far / following, 4.0 * following)[:, None]
    rest = factor * modulus**following / jnp.maximum(1 - modulus, 1e-3) ** 2
    error = (at.twice * jnp.exp(decay) * jnp.minimum(rest, 2)).max(-1)
    serves = (error < _BOUND) & (mean < _CANCELLATION * coins.variance)
    serves |= coins.variance == 0
    log_mass = jnp.log(total / at.number)[:, 0]
    weights = (real / total, imag / total)
    return Expansion(serves, u, swapped, powers, a, b, root, weights, log_mass)


def infer(coins: Coins, by: Expansion) -> tuple[Array, Array]:
    """:func:`_spectral.infer`."""
    correction = _polynomial(by.u, _across(by, by.weights))
    correction = jnp.where(by.swapped[:, None], -correction, correction)
    return by.log_mass, _spectral.corrected(coins, correction)


def covariance_product(coins: Coins, by: Expansion, v: Array) -> Array:
    """:func:`_spectral.covariance_product` of a centred v."""
    weighted = v * coins.pq
    sums = _matrix(_SERIES, _sums(by.u, weighted))
    f = _divide(by.a, by.root)
    deviation = _multiply(f, _over_powers(by.powers, sums))
    mean = (by.weights[0] * deviation[0] - by.weights[1] * deviation[1]).sum(-1, keepdims=True)
    between = _multiply(by.weights, (deviation[0] - mean, deviation[1]))
    across = _across(by, between)

    turned = _multiply(by.weights, (1 + by.a[0], by.a[1]))
    weight = _divide(turned, (1 + 2 * by.b[0], 2 * by.b[1]))
    ratio = _divide((1 + by.b[0], by.b[1]), by.root)
    order = np.arange(DEGREE + 1, dtype=v.dtype)[:, None]
    within = order * _over_nodes(by, weight) + _over_nodes(by, _multiply(weight, ratio))
    within = _matrix(_SERIES.T, within)
    return coins.pq * (_polynomial(by.u, across) + v * _polynomial(by.u, within))


def _sums(u: Array, weight: Array | None) -> Array:
    """sum_j weight_j u_j^m, (degree + 1, rows). Without a weight the first, their number, is 0.

    Arrays of items are what costs time: there are four of them, and the sums take products of two.
    """
    second = u * u
    third = second * u
    sixth = third * third
    low = [None, u, second, third]

    def times(x: Array | None, y: Array | None) -> Array | None:
        return y if x is None else x if y is None else x * y

    def total(m: int) -> Array:
        if weight is None:
            high = (None, third, sixth)[max(m - 1, 0) // 3]
            power = times(high, low[m - 3 * (max(m - 1, 0) // 3)])
        else:
            power = times(sixth_weighted if m > 5 else weight, low[min(m % 6, 3)])
            power = times(power, low[max(m % 6 - 3, 0)])
        return zeros(u[:, 0]) if power is None else power.sum(-1)

    sixth_weighted = times(weight, sixth)
    return jnp.stack([total(m) for m in range(DEGREE + 1)])


def _across(by: Expansion, weights: Complex) -> Array:
    """The polynomial in u whose product with pq is Re sum_v weights (r - p)."""
    found = _over_nodes(by, _multiply(weights, _divide(by.a, by.root)))
    return _matrix(_SERIES.T, found)


def _over_nodes(by: Expansion, weights: Complex) -> Array:
    """Re sum_v weights (-z)^m, (degree + 1, rows)."""
    return (weights[0] * by.powers[0] - weights[1] * by.powers[1]).sum(-1)


def _over_powers(powers: Complex, sums: Array) -> Complex:
    """sum_m (-z)^m sums, (rows, V), of sums (degree + 1, rows)."""
    sums = sums[..., None]
    return (powers[0] * sums).sum(0), (powers[1] * sums).sum(0)


def _matrix(matrix: np.ndarray, x: Array) -> Array:
    # Without the barriers, XLA repeats the product for everything that uses it.
    x = lax.optimization_barrier(x)
    found = jnp.matmul(jnp.asarray(matrix, x.dtype), x, precision=lax.Precision.HIGHEST)
    return lax.optimization_barrier(found)


def _polynomial(u: Array, coefficients: Array) -> Array:
    """By Horner's rule, of coefficients (degree + 1, rows)."""
    value = coefficients[DEGREE, :, None]
    for m in range(DEGREE - 1, -1, -1):
        value = value * u + coefficients[m, :, None]
    return value


def _powers(z: Complex) -> Complex:
    """z^m for m up to the degree, in the first dimension, from squares of squares."""
    shape = z[0].shape
    order = np.arange(DEGREE + 1)[:, None]
    z = (z[0].reshape(-1), z[1].reshape(-1))  # for one loop over the nodes of all rows
    found: Complex = (jnp.ones_like(z[0]), zeros(z[0]))
    for bit in range(DEGREE.bit_length()):
        z = lax.optimization_barrier(_multiply(z, z) if bit else z)
        on = jnp.asarray(order >> bit & 1, z[0].dtype)  # faster than a choice
        found = _multiply(found, (on * z[0] + (1 - on), on * z[1]))
    found = lax.optimization_barrier(found)
    return found[0].reshape(-1, *shape), found[1].reshape(-1, *shape)


def _root(x: Complex) -> Complex:
    """The square root of numbers above the real axis, or positive."""
    modulus = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
    real = jnp.sqrt(jnp.maximum(0.5 * (modulus + x[0]), 1e-10))
    return real, 0.5 * x[1] / real


def _multiply(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _divide(a: Complex, b: Complex) -> Complex:
    scale = 1 / (b[0] ** 2 + b[1] ** 2)
    return (a[0] * b[0] + a[1] * b[1]) * scale, (a[1] * b[0] - a[0] * b[1]) * scale
