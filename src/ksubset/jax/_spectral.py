"""The k-subset distribution as a complex mixture of independent coins, for rows (rows, n):
``kernels/spectral.py``, whose formulas and names these are, as array code of JAX.

The number of nodes in an array is a constant of the type and of n; those that a row does not need
have weight 0. Values summed over items are (rows, V); what items need of all nodes is summed in a
loop over nodes, so that memory stays O(n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ksubset._nodes import DOUBLE, SINGLE, Precision
from ksubset.jax._coins import Coins, count_of, zeros

Complex = tuple[Array, Array]
SHORT = 64  # items of a row whose factors are multiplied as they are


class Mixture(NamedTuple):
    """Nodes (rows, V) and the complex weights of the mixture over them."""

    sine: Array  # S, of half the angle
    cosine: Array  # C
    real: Array  # weights, summing to 1 in their real part; 0 at nodes that do not count
    imag: Array
    log_mass: Array  # log P(S = k), (rows,)


class Spectrum(NamedTuple):
    """E[exp(i omega (S - k))] at the nodes of a row, (rows, V) each."""

    number: Array  # N, (rows, 1)
    omega: Array
    sine: Array  # of omega / 2
    cosine: Array
    modulus: Array  # twice the modulus for a node that stands for its conjugate too; or 0
    phase: Array


class Nodes(NamedTuple):
    """The nodes of a row, (rows, V) each."""

    number: Array  # N, (rows, 1)
    omega: Array
    sine: Array  # of omega / 2
    cosine: Array
    twice: Array  # 2 for a node that stands for its conjugate too; 0 for one that does not count


def nodes(coins: Coins, precision: Precision) -> Nodes:
    """How many there are, and which of them count."""
    n = coins.x.shape[-1]
    free = count_of(jnp.isfinite(coins.t), coins.x.dtype)
    number = jnp.minimum(free + 1, precision.number(coins.variance))
    return some_nodes(number, coins.variance, min(precision.most, (n + 1) // 2 + 1), precision)


def some_nodes(number: Array, variance: Array, most: int, precision: Precision) -> Nodes:
    """Of at least so many, those that count: no more than ``most``."""
    dtype = number.dtype
    number = 2 * jnp.ceil((number - 1) / 2) + 1  # odd: at omega = pi a fair coin has D = 0
    number = number[:, None]
    node = jnp.arange(most, dtype=dtype)
    decay = 2 * variance[:, None] * jnp.sin(jnp.pi * node / number) ** 2
    active = (node <= (number - 1) / 2) & (decay < precision.decay)
    node = jnp.where(active, node, 0)
    omega = 2 * jnp.pi * node / number
    cosine = jnp.sin(jnp.pi * (number - 2 * node) / (2 * number))
    twice = jnp.where(active, jnp.where(node > 0, 2.0, 1.0), 0.0).astype(dtype)
    return Nodes(number, omega, jnp.sin(omega / 2), cosine, twice)


def spectrum(coins: Coins, precision: Precision) -> Spectrum:
    """The characteristic function of S - k.

    Logarithms and centred phases add up without the drift of a long complex product.
    """
    at = nodes(coins, precision)
    x, s, c = coins.x[:, None, :], at.sine[..., None], at.cosine[..., None]
    log_modulus = 0.5 * jnp.log1p(-4 * coins.pq[:, None, :] * s**2).sum(-1)
    turn = jnp.arctan(2 * x * s * c / (1 - 2 * x * s**2)) - at.omega[..., None] * x
    phase = jnp.where(coins.up[:, None, :], -turn, turn).sum(-1)
    phase += at.omega * coins.excess[:, None]
    modulus = at.twice * jnp.exp(log_modulus)
    return Spectrum(at.number, at.omega, at.sine, at.cosine, modulus, phase)


def mixture(coins: Coins) -> Mixture:
    """Weights w = E[exp(i omega (S - k))], normalised, of the mixture of independent coins."""
    at = spectrum(coins, DOUBLE if coins.x.dtype == jnp.float64 else SINGLE)
    real, imag = at.modulus * jnp.cos(at.phase), at.modulus * jnp.sin(at.phase)
    total = real.sum(-1, keepdims=True)
    log_mass = jnp.log(total / at.number)[:, 0]
    return Mixture(at.sine, at.cosine, real / total, imag / total, log_mass)


def infer(coins: Coins) -> tuple[Array, Array]:
    """log P(S = k), (rows,), and P(rarer side | S = k) of every coin, (rows, n)."""
    mix = mixture(coins)
    skew = coins.skew

    def add(at: _Node, sum_: Array) -> tuple[Array]:
        determinant = at.c**2 + (skew * at.s) ** 2
        return (sum_ + 2 * at.s * (at.real * at.s * skew - at.imag * at.c) / determinant,)

    (correction,) = _loop(add, mix, (mix.real, mix.imag), like=(skew,))
    return mix.log_mass, corrected(coins, correction)


def corrected(coins: Coins, correction: Array) -> Array:
    """P(rarer side | S = k) from sum_v w_v (r_v - p) / pq."""
    correction = jnp.where(coins.up, -correction, correction)
    return jnp.clip(coins.x + coins.pq * correction, 0, 1)


def of_short_rows(coins: Coins, v: Array | None) -> Any:
    """:func:`infer`, or :func:`covariance_product` of v, item by item, with rows in the last
    dimension, which is the one that runs in parallel. So few factors are multiplied as complex
    numbers, without logarithms."""
    at = nodes(coins, DOUBLE if coins.x.dtype == jnp.float64 else SINGLE)
    s, c = at.sine.T, at.cosine.T  # (V, rows)
    moments = v is None
    v = zeros(coins.x) if v is None else coins.centre(v)
    columns = (coins.skew.T, coins.pq.T, v.T)

    def gather(sums: tuple[Array, ...], item: tuple[Array, ...]) -> tuple[Any, None]:
        real, imag, dev_real, dev_imag = sums
        skew, pq, v = item
        turned = skew * s
        ratio = 2 * pq * v * s / (c**2 + turned**2)
        product = _multiply((real, imag), (c, turned))
        return (*product, dev_real + ratio * turned, dev_imag + ratio * c), None

    zero = zeros(s)
    sums, _ = lax.scan(gather, (zero + 1, zero, zero, zero), columns)
    real, imag, *deviation = sums
    # Each factor is without its e^(i omega / 2), and all are without e^(-i omega k).
    turn = at.omega.T * (0.5 * v.shape[-1] - coins.k)
    weights = _multiply((real, imag), (jnp.cos(turn) * at.twice.T, jnp.sin(turn) * at.twice.T))
    total = weights[0].sum(0)
    weights = (weights[0] / total, weights[1] / total)
    mean = (weights[0] * deviation[0] - weights[1] * deviation[1]).sum(0)
    between = _multiply(weights, (deviation[0] - mean, deviation[1]))

    def correct(_: None, item: tuple[Array, ...]) -> tuple[None, Array]:
        turned = item[0] * s
        across = 2 * s * (weights[0] * turned - weights[1] * c)
        return None, (across / (c**2 + turned**2)).sum(0)

    def spread(_: None, item: tuple[Array, ...]) -> tuple[None, Array]:
        skew, pq, v = item
        turned = skew * s
        inverse = 1 / (c**2 + turned**2)
        across = 2 * s * (between[0] * turned - between[1] * c)
        square = weights[0] * (c**2 - turned**2) + weights[1] * (2 * c * turned)
        return None, pq * (inverse * (across + v * square * inverse)).sum(0)

    if moments:
        _, correction = lax.scan(correct, None, columns)
        return jnp.log(total / at.number[:, 0]), corrected(coins, correction.T)
    _, product = lax.scan(spread, None, columns)
    return product.T


def covariance_product(coins: Coins, v: Array) -> Array:
    """Cov v by total covariance: between nodes, and within each node."""
    v = coins.centre(v)
    mix = mixture(coins)
    skew = coins.skew
    between = _multiply((mix.real, mix.imag), _weighted_deviation(coins, mix, v))

    def add(at: _Node, across: Array, within: Array) -> Complex:
        tilted = skew * at.s
        inverse = 1 / (at.c**2 + tilted**2)
        across += 2 * at.s * (at.real * tilted - at.imag * at.c) * inverse
        weight = at.more
        spread = weight[0] * (at.c**2 - tilted**2) + weight[1] * (2 * at.c * tilted)
        return across, within + spread * inverse**2

    across, within = _loop(add, mix, between, (mix.real, mix.imag), like=(v, v))
    return coins.pq * (across + v * within)


def third_cumulant_product(coins: Coins, u: Array, v: Array) -> Array:
    """sum_jl kappa_ijl u_j v_l by the law of total cumulance."""
    u, v = coins.centre(u), coins.centre(v)
    mix = mixture(coins)
    skew = coins.skew
    weights = (mix.real, mix.imag)
    g, f = _weighted_deviation(coins, mix, u), _weighted_deviation(coins, mix, v)
    inner = _weighted_variance(coins, mix, u * v)
    moment = _multiply(g, f)
    moment = (moment[0] + inner[0], moment[1] + inner[1])
    mean = (mix.real * moment[0] - mix.imag * moment[1]).sum(-1, keepdims=True)
    first = _multiply(weights, (moment[0] - mean, moment[1]))
    on_u, on_v = _multiply(weights, f), _multiply(weights, g)

    def add(at: _Node, *sums: Array) -> tuple[Array, ...]:
        across, by_u, by_v, within = sums
        s, c = at.s, at.c
        tilted = skew * s
        determinant = c**2 + tilted**2
        across += 2 * s * (at.real * tilted - at.imag * c) / determinant
        # r (1 - r) / pq = square, and its product with 1 - 2r = cube
        square = ((c**2 - tilted**2) / determinant**2, -2 * c * tilted / determinant**2)
        quotient = (
            -(skew * c**2 + tilted * s) / determinant,
            (skew * tilted * c - s * c) / determinant,
        )
        cube = _multiply(square, quotient)
        real, imag, u_real, u_imag, v_real, v_imag = at.more
        within += real * cube[0] - imag * cube[1]
        by_u += u_real * square[0] - u_imag * square[1]
        by_v += v_real * square[0] - v_imag * square[1]
        return across, by_u, by_v, within

    across, by_u, by_v, within = _loop(add, mix, first, (*weights, *on_u, *on_v), like=(v, v, v, v))
    return coins.pq * (across + u * by_u + v * by_v + u * v * within)


class _Node(NamedTuple):
    """One node of all rows, (rows, 1) each."""

    s: Array
    c: Array
    real: Array
    imag: Array
    more: tuple[Array, ...]


def _loop(
    add: Callable[..., tuple[Array, ...]],
    mix: Mixture,
    weights: Complex,
    more: tuple[Array, ...] = (),
    like: tuple[Array, ...] = (),
) -> tuple[Array, ...]:
    """Add up over nodes what ``add(node, *sums)`` adds to sums (rows, n)."""
    columns = [x.T[..., None] for x in (mix.sine, mix.cosine, *weights, *more)]

    def step(sums: tuple[Array, ...], node: list[Array]) -> tuple[tuple[Array, ...], None]:
        s, c, real, imag, *rest = node
        return add(_Node(s, c, real, imag, tuple(rest)), *sums), None

    return lax.scan(step, tuple(zeros(x) for x in like), columns)[0]


def _weighted_deviation(coins: Coins, mix: Mixture, v: Array) -> Complex:
    """sum_j v_j (r_j - p_j) at every node, less its mean over the mixture: complex (rows, V)."""
    s, c = mix.sine[..., None], mix.cosine[..., None]
    tilted = coins.skew[:, None, :] * s
    ratio = (coins.pq * v)[:, None, :] * (2 * s) / (c**2 + tilted**2)
    real, imag = (ratio * tilted).sum(-1), (ratio * c).sum(-1)
    mean = (mix.real * real - mix.imag * imag).sum(-1, keepdims=True)
    return real - mean, imag


def _weighted_variance(coins: Coins, mix: Mixture, v: Array) -> Complex:
    """sum_j v_j r_j (1 - r_j) at every node: complex (rows, V)."""
    s, c = mix.sine[..., None], mix.cosine[..., None]
    tilted = coins.skew[:, None, :] * s
    ratio = (coins.pq * v)[:, None, :] / (c**2 + tilted**2) ** 2
    return (ratio * (c**2 - tilted**2)).sum(-1), (ratio * (-2 * c * tilted)).sum(-1)


def _multiply(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
