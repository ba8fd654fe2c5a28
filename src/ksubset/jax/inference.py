"""Exact quantities of the k-subset distribution p(z) = exp(theta . z) / e_k(exp theta), sum z = k.

Common to all functions: ``logits`` has shape (..., n). ``k`` is an int or integers broadcast over
the batch (...), a different k per row. ``mask`` is boolean and broadcasts to the logits; False
forbids an item, like a logit of -inf; a logit of +inf forces it. float64 and float32 are computed
natively, half precision in float32, with scalars returned in float32. Values are checked (NaN
logits, k out of range) where they are known; under a transform ``validate_args=True`` checks them
with ``jax.experimental.checkify``, and rows that were not checked give NaN.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ksubset._checks import Names
from ksubset.jax import _derivatives, _primitives
from ksubset.jax._arguments import Problem, as_logits, check_support, problem

__all__ = [
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "kl_divergence",
    "kl_to_uniform",
    "log_partition",
    "log_prob",
    "log_prob_exactly_k",
    "marginals",
    "mode",
    "pairwise_marginals",
]


def log_partition(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The log-partition function :math:`A(\theta) = \log e_k(e^{\theta_1}, \dots, e^{\theta_n})`.

    Its gradient is :func:`marginals`, its Hessian the covariance. It is +inf if an item is
    forced by a logit of +inf.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{jnp.exp(log_partition(jnp.zeros(4), 2)):.4f}")  # 2-subsets of 4 items
        6.0000
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    total = _derivatives.infer(given.logits, given.k).total
    forced = (given.logits == jnp.inf).any(-1) & ~jnp.isnan(total)
    return _derivatives.attach(jnp.where(forced, jnp.inf, total), total)


def log_prob_exactly_k(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The paper's :math:`\log P(\sum_i z_i = k)` of independent coins with
    :math:`P(z_i = 1) = \sigma(\theta_i)`, that is :math:`A(\theta) - \sum_i \log(1+e^{\theta_i})`.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{jnp.exp(log_prob_exactly_k(jnp.zeros(4), 2)):.4f}")  # two of four fair coins
        0.3750
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    theta = given.logits
    found = _derivatives.infer(theta, given.k)
    free = jnp.isfinite(theta)
    theta = jnp.where(free, theta, 0)
    surrogate = found.total - jnp.where(free, jax.nn.softplus(theta), 0).sum(-1)
    # The ratio to the tilted coins, as a sum of small terms: a coin's likelier side under the
    # tilt is the reference.
    t = jax.lax.stop_gradient(found.tilted)
    up = t > 0
    reference = jax.nn.softplus(jnp.where(up, -theta, theta))
    terms = -jnp.log1p(-jax.nn.sigmoid(-jnp.abs(t))) - reference
    overshoot = (up.sum(-1) - given.k).astype(theta.dtype)
    value = found.log_mass + _derivatives.sum_without_overflow(
        jnp.where(free, terms, 0), found.shift, overshoot
    )
    return _derivatives.attach(value, surrogate)


def marginals(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The inclusion probabilities :math:`\mu_i = P(z_i = 1) = \partial A / \partial \theta_i`.

    They sum to k. The Jacobian is the covariance.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (..., n), in the type of the logits.

    Examples:
        >>> marginals(jnp.array([0.0, 0.0, 0.0, -jnp.inf]), 2).round(4)
        Array([0.6667, 0.6667, 0.6667, 0.    ], dtype=float32)
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    return _derivatives.infer(given.logits, given.k).marginals.astype(given.dtype)


def covariance_product(
    logits: Array, k: Any, v: Array, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The product :math:`\mathrm{Cov}(z)\, v` without the matrix: SIMPLE's backward pass.

    The covariance is symmetric and annihilates constants, so v matters up to a constant only.
    Differentiable once in the logits, and in v.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        v: (..., n), broadcast with the logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (..., n), in the type of the logits.

    Examples:
        >>> covariance_product(jnp.zeros(5), 2, jnp.array([1.0, 0.0, 0.0, 0.0, 0.0])).round(2)
        Array([ 0.24, -0.06, -0.06, -0.06, -0.06], dtype=float32)
    """
    shape = jnp.shape(v)[:-1]
    given = problem(logits, k, mask, more={"v": shape}, validate_args=validate_args)
    v = jnp.broadcast_to(given.vector("v", v), given.logits.shape)
    tilted = _derivatives.tilted(given.logits, given.k)
    return _primitives.covariance_product(tilted, given.k, v).astype(given.dtype)


def covariance_matrix(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The matrix :math:`\mathrm{Cov}(z_i, z_j) = P(z_i = z_j = 1) - \mu_i \mu_j`, by n products.

    It is symmetric, and its rows sum to 0. Differentiable once.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (..., n, n), in the type of the logits.

    Examples:
        >>> covariance_matrix(jnp.zeros(2), 1).round(4)
        Array([[ 0.25, -0.25],
               [-0.25,  0.25]], dtype=float32)
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    tilted = _derivatives.tilted(given.logits, given.k)
    return _matrix(given, tilted).astype(given.dtype)


def _matrix(given: Problem, tilted: Array) -> Array:
    columns = jnp.eye(given.n, dtype=tilted.dtype)
    shape = (*tilted.shape[:-1], given.n, given.n)
    return _primitives.covariance_product(
        jnp.broadcast_to(tilted[..., None, :], shape),
        jnp.broadcast_to(given.k[..., None], shape[:-1]),
        jnp.broadcast_to(columns, shape),
    )


def pairwise_marginals(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""Joint inclusion probabilities :math:`P(z_i = z_j = 1)`, :math:`\mu_i` on the diagonal.

    A row sums to :math:`k \mu_i`: given item i there are k items.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (..., n, n), in the type of the logits.

    Examples:
        >>> pairwise_marginals(jnp.zeros(3), 2).round(4)
        Array([[0.6667, 0.3333, 0.3333],
               [0.3333, 0.6667, 0.3333],
               [0.3333, 0.3333, 0.6667]], dtype=float32)
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    found = _derivatives.infer(given.logits, given.k)
    mu = found.marginals
    joint = _matrix(given, found.tilted) + mu[..., :, None] * mu[..., None, :]
    return joint.astype(given.dtype)


def log_prob(
    logits: Array,
    k: Any,
    value: Array,
    *,
    mask: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""The log-probability :math:`\theta \cdot z - A(\theta)` of subsets, -inf for one that takes a
    forbidden item or leaves a forced one. Its gradient in the logits is :math:`z - \mu`.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        value: k-hot vectors (..., n), broadcast with the logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{jnp.exp(log_prob(jnp.zeros(4), 2, jnp.array([1.0, 0.0, 0.0, 1.0]))):.4f}")
        0.1667
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    value = jnp.asarray(value)
    if value.ndim == 0 or value.shape[-1] != given.n:
        raise ValueError(
            f"value must have shape (..., n) with n = {given.n}, got shape {value.shape}"
        )
    try:
        shape = jnp.broadcast_shapes(value.shape[:-1], given.batch_shape)
    except ValueError:
        raise ValueError(
            f"the batch shape of value, {value.shape[:-1]}, must broadcast with that of "
            f"the logits and k, {given.batch_shape}"
        ) from None
    if validate_args is not False:
        check_support(value, given.k)
    z = jax.lax.stop_gradient(value).astype(given.logits.dtype)
    return _derivatives.log_outcome(given.logits, given.k, jnp.broadcast_to(z, (*shape, given.n)))


def entropy(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The entropy :math:`H = -\mathrm{E} \log p(z) = A(\theta) - \theta \cdot \mu`, in nats.

    Its gradient is :math:`-\mathrm{Cov}\,\theta`.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{entropy(jnp.zeros(20), 10):.3f}")  # log of 184756 equally likely subsets
        12.127
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    return _derivatives.entropy(given.logits, given.k)


def kl_divergence(
    logits_p: Array,
    logits_q: Array,
    k: Any,
    k_q: Any = None,
    *,
    mask_p: Array | None = None,
    mask_q: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""The Kullback-Leibler divergence of two k-subset distributions,
    :math:`\mathrm{KL}(p \| q) = \mathrm{E}_p \log (p(z) / q(z))`, in nats.

    +inf where the sizes differ, or where p may draw what q cannot. Its gradients are
    :math:`\mathrm{Cov}_p(\theta_p - \theta_q)` and :math:`\mu_q - \mu_p`.

    Args:
        logits_p: (..., n).
        logits_q: (..., n); the batch shapes of p and q are broadcast together.
        k: the size of p's subsets, and of q's unless ``k_q`` is given: an int, or integers
            broadcast over the batch.
        k_q: the size of q's subsets, if it is another.
        mask_p: boolean, broadcast to p's logits; False forbids an item.
        mask_q: boolean, broadcast to q's logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{kl_divergence(jnp.array([1.0, 0.0, 0.0]), jnp.zeros(3), 1):.4f}")
        0.1233
    """
    logits_p, logits_q = as_logits("logits_p", logits_p), as_logits("logits_q", logits_q)
    if logits_p.shape[-1] != logits_q.shape[-1]:
        raise ValueError(
            f"logits_p and logits_q must have the same number of items, got "
            f"{logits_p.shape[-1]} and {logits_q.shape[-1]}"
        )
    names = Names("logits_p", "k", "mask_p")
    p = problem(logits_p, k, mask_p, names=names, validate_args=validate_args)
    names = Names("logits_q", "k" if k_q is None else "k_q", "mask_q")
    size_q = k if k_q is None else k_q
    q = problem(logits_q, size_q, mask_q, names=names, validate_args=validate_args)
    try:
        shape = jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ValueError(
            f"the batch shapes of p, {p.batch_shape}, and q, {q.batch_shape}, must broadcast"
        ) from None
    dtype = jnp.promote_types(p.logits.dtype, q.logits.dtype)
    wide = [jnp.broadcast_to(x.logits, (*shape, p.n)).astype(dtype) for x in (p, q)]
    sizes = [jnp.broadcast_to(x.k, shape) for x in (p, q)]
    return _derivatives.divergence(wide[0], sizes[0], wide[1], sizes[1])


def kl_to_uniform(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The divergence from the uniform distribution over the k-subsets of the m *allowed* items,
    :math:`\log \binom{m}{k} - H`: the exact KL term of a k-subset VAE.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> print(f"{kl_to_uniform(jnp.array([5.0, 5.0, -5.0, -5.0]), 2):.4f}")
        1.7898
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    return _derivatives.divergence_to_uniform(given.logits, given.k)


def mode(
    logits: Array, k: Any, *, mask: Array | None = None, validate_args: bool | None = None
) -> Array:
    r"""The most likely subset (MAP), which maximises :math:`\theta \cdot z`: the k largest logits,
    exactly k of them also on ties (the earlier item wins). Without a gradient.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        k-hot (..., n), in the type of the logits.

    Examples:
        >>> mode(jnp.array([0.1, 2.0, 2.0, 2.0]), 2)
        Array([0., 1., 1., 0.], dtype=float32)
    """
    given = problem(logits, k, mask, validate_args=validate_args)
    theta = jax.lax.stop_gradient(given.logits)
    order = jnp.argsort(-theta, axis=-1, stable=True)
    rank = jnp.argsort(order, axis=-1)
    chosen = (rank < given.k[..., None]).astype(given.dtype)
    allowed, forced = (theta > -jnp.inf).sum(-1), (theta == jnp.inf).sum(-1)
    bad = jnp.isnan(theta).any(-1) | (given.k < forced) | (given.k > allowed) | (given.k < 0)
    return jnp.where(bad[..., None], jnp.nan, chosen)
