"""Quantities of rows with explicit derivatives (docs/mathematics.md, section 4).

Logits are (..., n), k is (...). Each rule asks for what the quantity above has already found: a
function and all its derivatives solve for the tilt once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ksubset.jax import _primitives


class Inferred(NamedTuple):
    """What one pass knows of a distribution."""

    total: Array  # (...): the log-partition over the finite logits
    marginals: Array  # (..., n)
    tilted: Array  # (..., n), special values as in kernels/coins.py
    rarer: Array  # (..., n): P(the coin shows its rarer side | S = k); without a derivative
    log_mass: Array  # (...): log P(S = k) of the tilted coins; likewise
    shift: Array  # (...): the tilt's; likewise


@jax.custom_jvp
def infer(logits: Array, k: Array) -> Inferred:
    """One pass of inference."""
    tilted, shift = _primitives.tilt(logits, k)
    log_mass, rarer = _primitives.moments(tilted, k)
    up = tilted > 0
    # A = log P(S = k) + sum softplus(t) - k c, with the large terms of the likelier heads taken
    # from the logits themselves, so that they need not cancel against k c.
    likely = jnp.where(up & jnp.isfinite(logits), logits, 0)
    overshoot = (up.sum(-1) - k).astype(shift.dtype)
    total = sum_without_overflow(likely, shift, overshoot) + log_mass - _log_likely(tilted)
    total = jnp.where(jnp.isnan(tilted).any(-1), jnp.nan, total)
    marginals = jnp.where(up, 1 - rarer, rarer)
    return Inferred(total, marginals, tilted, rarer, log_mass, shift)


@infer.defjvp
def _infer_jvp(primals: Any, tangents: Any) -> Any:
    logits, k = primals
    found = infer(logits, k)
    moved = _primitives.covariance_product(found.tilted, k, tangents[0])
    of_total = (jnp.where(logits == jnp.inf, 0, found.marginals) * tangents[0]).sum(-1)
    none = jnp.zeros_like(tangents[0])  # of a type that varies like the logits in a shard_map
    rest = (none, none.sum(-1), none.sum(-1))
    return found, Inferred(of_total, moved, tangents[0], *rest)


@jax.custom_jvp
def tilted(logits: Array, k: Array) -> Array:
    """Tilted logits alone: what does not change when all logits shift passes its derivative on."""
    return _primitives.tilt(logits, k)[0]


@tilted.defjvp
def _tilted_jvp(primals: Any, tangents: Any) -> Any:
    return tilted(*primals), tangents[0]


@jax.custom_jvp
def attach(value: Array, surrogate: Array) -> Array:
    """The value of one formula, with the derivative of another that equals it."""
    return value


@attach.defjvp
def _attach_jvp(primals: Any, tangents: Any) -> Any:
    return attach(*primals), tangents[1]


@jax.custom_jvp
def entropy(logits: Array, k: Array) -> Array:
    """H = log P(S = k) + the cross-entropy of the marginals with the coins, at least 0."""
    found = infer(logits, k)
    cross = (jnp.abs(finite(found.tilted)) * found.rarer).sum(-1) - _log_likely(found.tilted)
    return jnp.maximum(found.log_mass + cross, 0)


@entropy.defjvp
def _entropy_jvp(primals: Any, tangents: Any) -> Any:
    logits, k = primals
    t = tilted(logits, k)
    product = _primitives.covariance_product(t, k, finite(t))
    return entropy(logits, k), -(product * tangents[0]).sum(-1)


@jax.custom_jvp
def log_outcome(logits: Array, k: Array, z: Array) -> Array:
    """log p(z) of z (..., n): -inf where there are not k ones, NaN where anything else is in z."""
    found = infer(logits, k)
    far = jnp.abs(found.tilted)
    rarer = (z > 0) != (found.tilted > 0)
    value = _log_likely(found.tilted) - jnp.where(rarer, far, 0).sum(-1) - found.log_mass
    value = jnp.where((z.sum(-1) != k) & ~jnp.isnan(value), -jnp.inf, value)
    return jnp.where(((z != 0) & (z != 1)).any(-1), jnp.nan, value)


@log_outcome.defjvp
def _log_outcome_jvp(primals: Any, tangents: Any) -> Any:
    logits, k, z = primals
    slope = z - infer(logits, k).marginals
    return log_outcome(logits, k, z), (slope * tangents[0]).sum(-1)


@jax.custom_jvp
def divergence(p: Array, k_p: Array, q: Array, k_q: Array) -> Array:
    """KL(p || q): every term is small where p and q are close."""
    of_p, of_q = infer(p, k_p), infer(q, k_q)
    # 1 - mu needs digits of its own where q finds unlikely what p hardly ever does.
    rests = infer(-p, p.shape[-1] - k_p).marginals
    return cross_terms(of_p, rests, of_q.tilted, of_q.log_mass, k_p != k_q)


@divergence.defjvp
def _divergence_jvp(primals: Any, tangents: Any) -> Any:
    p, k_p, q, k_q = primals
    of_p, of_q = infer(p, k_p), infer(q, k_q)
    moved = _primitives.covariance_product(of_p.tilted, k_p, tangents[0])
    tangent = (distance(of_p.tilted, of_q.tilted) * moved).sum(-1)
    tangent += ((of_q.marginals - of_p.marginals) * tangents[2]).sum(-1)
    return divergence(p, k_p, q, k_q), tangent


@jax.custom_jvp
def divergence_to_uniform(logits: Array, k: Array) -> Array:
    """KL to the uniform distribution over the k-subsets of the items that are allowed, whose coins
    are all k/m."""
    found = infer(logits, k)
    allowed = logits > -jnp.inf
    count, size = allowed.sum(-1).astype(logits.dtype), k.astype(logits.dtype)
    chance = jnp.where(size > 0, size / count, 0)
    lgamma, xlogy = jax.scipy.special.gammaln, jax.scipy.special.xlogy
    log_mass = lgamma(count + 1) - lgamma(size + 1) - lgamma(count - size + 1)
    log_mass += xlogy(size, chance) + jax.scipy.special.xlog1py(count - size, -chance)
    logit = jnp.log(chance) - jnp.log1p(-chance)
    uniform = jnp.where(allowed, logit[..., None], -jnp.inf)
    return cross_terms(found, 1 - found.marginals, uniform, log_mass, jnp.zeros(k.shape, bool))


@divergence_to_uniform.defjvp
def _to_uniform_jvp(primals: Any, tangents: Any) -> Any:
    logits, k = primals
    t = tilted(logits, k)
    product = _primitives.covariance_product(t, k, finite(t))
    return divergence_to_uniform(logits, k), (product * tangents[0]).sum(-1)


def cross_terms(p: Inferred, rests: Array, tilted: Array, log_mass: Array, other: Array) -> Array:
    """KL(p || q), +inf where p may draw what q cannot, or where the sizes are ``other``."""
    heads_p, tails_p = _log_outcomes(p.tilted)
    heads_q, tails_q = _log_outcomes(tilted)
    terms = p.marginals * (heads_p - heads_q) + rests * (tails_p - tails_q)
    value = terms.sum(-1) + (log_mass - p.log_mass)
    outside = (tilted == -jnp.inf) & (p.tilted > -jnp.inf)
    outside |= (tilted == jnp.inf) & (p.tilted < jnp.inf)
    impossible = (outside.any(-1) | other) & ~jnp.isnan(value)
    return jnp.where(impossible, jnp.inf, jnp.maximum(value, 0))


def distance(p: Array, q: Array) -> Array:
    """The difference of tilted logits less its mean under p: Cov_p takes no notice of constants."""
    largest = float(jnp.finfo(p.dtype).max) / 4
    difference = jnp.clip(finite(p) - finite(q), -largest, largest)
    spread = jax.lax.stop_gradient(jax.nn.sigmoid(p) * jax.nn.sigmoid(-p))
    total = jnp.maximum(spread.sum(-1, keepdims=True), jnp.finfo(p.dtype).tiny)
    mean = (spread / total * jax.lax.stop_gradient(difference)).sum(-1, keepdims=True)
    return difference - mean


def finite(x: Array) -> Array:
    """0 in place of infinities."""
    return jnp.where(jnp.isinf(x), 0, x)


def sum_without_overflow(terms: Array, shift: Array, times: Array) -> Array:
    """The sum of the terms (..., n), and of the shift (...) so many times: of logits near the end
    of their type's range too, which may cancel."""
    scale = 2.0**-24
    return ((terms * scale).sum(-1) + shift * scale * times) / scale


def _log_likely(tilted: Array) -> Array:
    """The log-probability that all coins show their likelier sides."""
    return jnp.log1p(-jax.nn.sigmoid(-jnp.abs(tilted))).sum(-1)


def _log_outcomes(t: Array) -> tuple[Array, Array]:
    """log p and log q of coins with logits t; finite also where they only meet a weight of 0."""
    likelier = jax.nn.log_sigmoid(jnp.abs(t))
    rarer = likelier - jnp.abs(finite(t))
    return jnp.where(t > 0, likelier, rarer), jnp.where(t > 0, rarer, likelier)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def simple(logits: Array, k: Array, keys: Array, random: str, most: int) -> Array:
    """Samples (*samples, ..., n) for keys (*samples, ..., words), with SIMPLE's derivative."""
    return _draw(tilted(logits, k), k, keys, random, most)


@simple.defjvp
def _simple_jvp(random: str, most: int, primals: Any, tangents: Any) -> Any:
    logits, k, keys = primals
    t = tilted(logits, k)
    z = _draw(t, k, keys, random, most)
    moved = _primitives.covariance_product(t, k, tangents[0])
    return z, jnp.broadcast_to(moved, z.shape)


def _draw(tilted: Array, k: Array, keys: Array, random: str, most: int) -> Array:
    samples = keys.shape[: keys.ndim - tilted.ndim]
    tilted = jax.lax.stop_gradient(tilted)
    full = jnp.broadcast_to(tilted, (*samples, *tilted.shape))
    heads = _primitives.sample(
        full, jnp.broadcast_to(k, full.shape[:-1]), keys, random=random, most=most
    )
    # A row that admits no sample, or one that was not accepted in all its tries.
    missing = jnp.isnan(full).any(-1) | (heads.sum(-1) != k)
    return jnp.where(missing[..., None], jnp.nan, heads.astype(tilted.dtype))


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def swap(logits: Array, k: Array, keys: Array, random: str, most: int, plan: str) -> Array:
    """The same samples, with the derivative of a plan of swaps."""
    return simple(logits, k, keys, random, most)


@swap.defjvp
def _swap_jvp(random: str, most: int, plan: str, primals: Any, tangents: Any) -> Any:
    logits, k, keys = primals
    found = jax.tree.map(jax.lax.stop_gradient, infer(logits, k))
    z = _draw(found.tilted, k, keys, random, most)
    # z - mu, with all digits where z is likely: the flow out of a chosen item, minus that into
    # another one.
    chosen, up = z > 0.5, found.tilted > 0
    flow = jnp.where(chosen ^ up, 1 - found.rarer, found.rarer)
    flow = jnp.where(jnp.isinf(found.tilted), 0, flow)
    deviations = jnp.where(chosen, flow, -flow)
    v = jnp.where(deviations == 0, 0, tangents[0])
    if plan == "product":
        return z, _product_plan(deviations, v)
    full = jnp.broadcast_to(found.tilted, z.shape)
    size = jnp.broadcast_to(k, z.shape[:-1])
    exchanged = _primitives.exchange(full, size, z, v, most=most)
    return z, 0.5 * (jnp.abs(deviations) * v - exchanged)


def _product_plan(deviations: Array, v: Array) -> Array:
    """With r_ij = (1 - mu_i) mu_j / Z, Z the total flow: linear in v."""
    # Less their mean, which changes nothing, large values keep their digits.
    v = v - _mean(jnp.abs(deviations), v)
    out, into = jnp.maximum(deviations, 0), jnp.maximum(-deviations, 0)
    swapped_for = jnp.where(deviations > 0, _mean(into, v), _mean(out, v))
    return 0.5 * jnp.abs(deviations) * (v - swapped_for)


def _mean(weights: Array, v: Array) -> Array:
    """The weighted mean of v over items, (..., 1); 0 where all weights are 0."""
    total = weights.sum(-1, keepdims=True)
    mean = (weights * v).sum(-1, keepdims=True) / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, mean, 0)
