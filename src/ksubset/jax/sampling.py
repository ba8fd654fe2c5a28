"""Exact samples of the k-subset distribution, with and without a gradient.

Arguments common to all functions are described in :mod:`ksubset.jax.inference`. As everywhere in
JAX, the key comes first, and the same key gives the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ksubset._checks import check_plan, check_sample_shape
from ksubset.jax import _derivatives
from ksubset.jax._arguments import as_logits, keys_of_rows, problem

__all__ = ["sample", "sample_indices", "simple", "swap"]


def simple(
    key: Array,
    logits: Array,
    k: Any,
    sample_shape: Sequence[int] = (),
    *,
    mask: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""Exact k-hot samples whose gradient is SIMPLE's, :math:`\mathrm{Cov}(z)\, g`.

    The forward pass draws from the k-subset distribution itself; the backward pass differentiates
    the exact marginals in place of the samples (Ahmed, Zeng, Niepert and Van den Broeck, ICLR
    2023).

    Args:
        key: a key of ``jax.random``.
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> logits, key = jnp.zeros((3, 5)), jax.random.key(0)
        >>> simple(key, logits, 2).sum(-1)
        Array([2., 2., 2.], dtype=float32)
        >>> jax.grad(lambda logits: simple(key, logits, 2)[:, 0].sum())(logits)[0].round(4)
        Array([ 0.24, -0.06, -0.06, -0.06, -0.06], dtype=float32)
    """
    sample_shape = check_sample_shape(sample_shape)
    given = problem(logits, k, mask, validate_args=validate_args)
    keys, random = keys_of_rows(key, (*sample_shape, *given.batch_shape))
    z = _derivatives.simple(given.logits, given.k, keys, random, given.most)
    return z.astype(given.dtype)


def swap(
    key: Array,
    logits: Array,
    k: Any,
    sample_shape: Sequence[int] = (),
    *,
    plan: str = "product",
    mask: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""Exact k-hot samples whose gradient sees curvature: unbiased for quadratic losses.

    The forward pass draws from the k-subset distribution itself. The backward pass compares the
    sample with every subset that differs from it by one swap of a chosen item i for another one j.
    With :math:`g = \nabla f(z)`, the gradient is

    :math:`\tfrac12 \sum_{i \in z,\, j \notin z} r_{ij}(z)\, (e_i - e_j)\, (g_i - g_j)`,

    where :math:`r_{ij}(z)` are the rates of a reversible swap process, the plan. The exact rates
    make the estimate unbiased for every loss that is quadratic in z. The product plan,
    :math:`r_{ij} = (1 - \mu_i) \mu_j / \sum_{l \notin z} \mu_l`, is exact for k = 1 and k = n - 1
    and close elsewhere, and needs two sums over the row. Theorem and proof: docs/swaps.md.

    A second derivative treats the plan as a constant.

    Args:
        key: a key of ``jax.random``.
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        sample_shape: the leading shape of several samples per row.
        plan: "product", O(n), or "exact", O(nk).
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> def both(logits):  # the probability that items 0 and 1 are both chosen
        ...     z = swap(jax.random.key(0), logits, 2, (100_000,))
        ...     return (z[:, 0] * z[:, 1]).mean()
        >>> jax.grad(both)(jnp.zeros(4)).round(2)  # the exact gradient: 1/12
        Array([ 0.08,  0.08, -0.08, -0.08], dtype=float32)
    """
    check_plan(plan)
    sample_shape = check_sample_shape(sample_shape)
    given = problem(logits, k, mask, validate_args=validate_args)
    keys, random = keys_of_rows(key, (*sample_shape, *given.batch_shape))
    z = _derivatives.swap(given.logits, given.k, keys, random, given.most, plan)
    return z.astype(given.dtype)


def sample(
    key: Array,
    logits: Array,
    k: Any,
    sample_shape: Sequence[int] = (),
    *,
    mask: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""Exact k-hot samples of :math:`p(z) \propto \exp(\theta \cdot z)`, without a gradient.

    Args:
        key: a key of ``jax.random``.
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> sample(jax.random.key(0), jnp.zeros((3, 5)), jnp.array([1, 2, 5]), (7,)).sum(-1)[0]
        Array([1., 2., 5.], dtype=float32)
    """
    logits = jax.lax.stop_gradient(as_logits("logits", logits))
    return simple(key, logits, k, sample_shape, mask=mask, validate_args=validate_args)


def sample_indices(
    key: Array,
    logits: Array,
    k: int,
    sample_shape: Sequence[int] = (),
    *,
    mask: Array | None = None,
    validate_args: bool | None = None,
) -> Array:
    r"""Exact samples of :math:`p(z) \propto \exp(\theta \cdot z)` as the ascending indices of the
    chosen items, to gather with; without a gradient.

    Args:
        key: a key of ``jax.random``.
        logits: (..., n).
        k: an int, since rows of different length do not fit into one array.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range) under transforms too.

    Returns:
        int32 (*sample_shape, ..., k); -1 in rows that admit no subset and were not checked.

    Examples:
        >>> tokens = jnp.zeros((8, 100, 16))
        >>> chosen = sample_indices(jax.random.key(0), jnp.zeros((8, 100)), 10)
        >>> jnp.take_along_axis(tokens, chosen[..., None], axis=1).shape
        (8, 10, 16)
    """
    if jnp.ndim(k) or isinstance(k, jax.core.Tracer):
        raise TypeError("k must be an int in sample_indices, got an array")
    z = sample(key, logits, k, sample_shape, mask=mask, validate_args=validate_args)
    # The place of the j-th item is the number of places with at most j items up to there.
    up_to = jnp.cumsum(z > 0, axis=-1)
    places = jnp.arange(int(k))
    search = jnp.vectorize(
        lambda row: jnp.searchsorted(row, places, side="right"), signature="(n)->(k)"
    )
    order = search(up_to).astype(jnp.int32)
    return jnp.where(jnp.isnan(z[..., :1]), -1, order)
