"""Exact quantities of the k-subset distribution p(z) = exp(theta . z) / e_k(exp theta), sum z = k.

Common to all functions: ``logits`` has shape (..., n). ``k`` is an int or an integer tensor
broadcast over the batch (...), a different k per row, or several sizes at once
(:mod:`ksubset.sizes`). ``mask`` is boolean and broadcasts to the
logits; False forbids an item, like a logit of -inf; a logit of +inf forces it. float64 and
float32 are computed natively, half precision in float32, with scalars returned in float32.
``method`` is "auto", "spectral", "dp" or "tree". ``validate_args=True`` checks values (NaN
logits, k out of range) on any device; by default eager CPU tensors are checked, and rows that
were not give NaN.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ksubset import kernels
from ksubset._arguments import (
    Problem,
    check_dense,
    check_logits,
    check_method,
    integer,
    problem,
    reads_values,
)
from ksubset._checks import Names
from ksubset.functional import _primitives
from ksubset.functional._attach import attach
from ksubset.functional._by_size import divergence_of_sizes, with_sizes
from ksubset.functional._inferred import infer
from ksubset.kernels.coins import Coins, sum_without_overflow, widest
from ksubset.sizes import Sizes

__all__ = [
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "kl_divergence",
    "kl_to_uniform",
    "log_partition",
    "log_prob",
    "log_prob_exactly_k",
    "log_prob_indices",
    "marginals",
    "mode",
    "pairwise_marginals",
]


def log_partition(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The log-partition function :math:`A(\theta) = \log e_k(e^{\theta_1}, \dots, e^{\theta_n})`.

    Its gradient is :func:`marginals`, its Hessian the covariance. It is +inf if an item is
    forced by a logit of +inf.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> log_partition(torch.zeros(4), 2).exp()  # the number of 2-subsets of 4 items
        tensor(6.)
    """
    if isinstance(k, Sizes):
        return with_sizes(
            log_partition, logits, k, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    return infer(given, method).log_partition()


def log_prob_exactly_k(
    logits: Tensor,
    k: int | Tensor,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The paper's :math:`\log P(\sum_i z_i = k)` of independent coins with
    :math:`P(z_i = 1) = \sigma(\theta_i)`, that is :math:`A(\theta) - \sum_i \log(1+e^{\theta_i})`.

    Args:
        logits: (..., n).
        k: an int, or integers broadcast over the batch.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> log_prob_exactly_k(torch.zeros(4), 2).exp()  # two heads of four fair coins
        tensor(0.3750)
    """
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    total, _, tilted, log_mass, shift = _primitives.infer(given.logits, given.size, method)
    theta = given.logits
    free = theta.isfinite()
    finite = torch.where(free, theta, 0)
    surrogate = total - torch.where(free, _softplus(finite), 0).sum(-1)

    # The ratio to the tilted coins, as a sum of small terms: a coin's likelier side under the
    # tilt is the reference.
    coins = Coins.from_tilted(tilted.detach(), given.k)
    reference = _softplus(torch.where(coins.up, -finite, finite))
    terms = torch.where(free, -torch.log1p(-coins.x) - reference, 0).detach()
    overshoot = (coins.up.sum(-1) - given.k).to(shift.dtype)
    value = log_mass + sum_without_overflow(terms, shift, overshoot)
    return given.scalar(attach(value.to(theta.dtype), surrogate))


def marginals(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The inclusion probabilities :math:`\mu_i = P(z_i = 1) = \partial A / \partial \theta_i`.

    They sum to k. The Jacobian is the covariance.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (..., n), in the type of the logits.

    Examples:
        >>> marginals(torch.tensor([0.0, 0.0, 0.0, -torch.inf]), 2)
        tensor([0.6667, 0.6667, 0.6667, 0.0000])
    """
    if isinstance(k, Sizes):
        return with_sizes(
            marginals, logits, k, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    return given.vector(_primitives.infer(given.logits, given.size, method)[1])


def covariance_product(
    logits: Tensor,
    k: int | Tensor | Sizes,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The product :math:`\mathrm{Cov}(z)\, v` without the matrix: SIMPLE's backward pass.

    The covariance is symmetric and annihilates constants, so v matters up to a constant only.
    Differentiable once, in logits and v.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        v: (..., n), broadcast with the logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (..., n), in the type of the logits.

    Examples:
        >>> covariance_product(torch.zeros(4), 2, torch.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """
    check_method(method)
    check_logits("logits", logits)
    if not isinstance(v, Tensor) or v.is_complex():
        kind = v.dtype if isinstance(v, Tensor) else type(v).__name__
        raise TypeError(f"v must be a real tensor, got {kind}")
    check_dense("v", v)
    if v.dim() == 0 or v.shape[-1] not in (1, logits.shape[-1]):
        raise ValueError(
            f"v must have shape (..., n) with n = {logits.shape[-1]}, got {tuple(v.shape)}"
        )
    if isinstance(k, Sizes):
        return with_sizes(
            covariance_product, logits, k, v, mask=mask, method=method, validate_args=validate_args
        )
    given = problem(logits, k, mask, more={"v": v.shape[:-1]}, validate_args=validate_args)
    tilted = _primitives.tilt(given.logits, given.size, method)
    product = _primitives.covariance_product(tilted, given.size, given.rows("v", v), method)
    return given.vector(product)


def covariance_matrix(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The matrix :math:`\mathrm{Cov}(z_i, z_j) = P(z_i = z_j = 1) - \mu_i \mu_j`, by n products.

    It is symmetric, and its rows sum to 0. Differentiable once.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (..., n, n), in the type of the logits.

    Examples:
        >>> covariance_matrix(torch.zeros(2), 1)
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]])
    """
    if isinstance(k, Sizes):
        return with_sizes(
            covariance_matrix, logits, k, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    tilted = _primitives.tilt(given.logits, given.size, method)
    return _matrix(given, tilted, method)


def _matrix(given: Problem, tilted: Tensor, method: str) -> Tensor:
    n, rows = given.n, tilted.shape[0]
    columns = torch.eye(n, dtype=tilted.dtype, device=tilted.device).expand(rows, n, n)
    product = _primitives.covariance_product(
        tilted.unsqueeze(1).expand(rows, n, n).reshape(-1, n),
        given.k.unsqueeze(1).expand(rows, n).reshape(-1),
        columns.reshape(-1, n),
        method,
    )
    return product.reshape(*given.batch_shape, n, n).to(given.dtype)


def pairwise_marginals(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""Joint inclusion probabilities :math:`P(z_i = z_j = 1)`, :math:`\mu_i` on the diagonal.

    A row sums to :math:`k \mu_i`: given item i there are k items.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (..., n, n), in the type of the logits.

    Examples:
        >>> pairwise_marginals(torch.zeros(3), 2)
        tensor([[0.6667, 0.3333, 0.3333],
                [0.3333, 0.6667, 0.3333],
                [0.3333, 0.3333, 0.6667]])
    """
    if isinstance(k, Sizes):
        return with_sizes(
            pairwise_marginals, logits, k, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    _, mu, tilted, _, _ = _primitives.infer(given.logits, given.size, method)
    wide = given._replace(dtype=given.logits.dtype)
    mu = wide.vector(mu)
    joint = _matrix(wide, tilted, method) + mu.unsqueeze(-1) * mu.unsqueeze(-2)
    return joint.to(given.dtype)


def log_prob(
    logits: Tensor,
    k: int | Tensor | Sizes,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The log-probability :math:`\theta \cdot z - A(\theta)` of subsets, -inf for one that takes a
    forbidden item or leaves a forced one. Its gradient in the logits is :math:`z - \mu`.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        value: k-hot vectors (..., n), broadcast with the logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> log_prob(torch.zeros(4), 2, torch.tensor([1.0, 0.0, 0.0, 1.0])).exp()
        tensor(0.1667)
    """
    if isinstance(k, Sizes):
        return with_sizes(
            log_prob, logits, k, value, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    # Inferred once per row of logits, not once per value.
    given = problem(logits, k, mask, validate_args=validate_args)
    if validate_args is None:
        validate_args = isinstance(value, Tensor) and reads_values(value)
    return infer(given, method).log_prob(value, validate_args)


def log_prob_indices(
    logits: Tensor,
    k: int | Sizes,
    indices: Tensor,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The log-probability :math:`\sum_{i \in S} \theta_i - A(\theta)` of subsets S given by their
    indices, as :func:`sample_indices` returns them: :func:`log_prob` without k-hot vectors.

    Their order does not matter. Indices out of range and repeated ones are an error if values are
    checked, and of probability 0 otherwise. The gradient in the logits is :math:`z - \mu`.

    Args:
        logits: (..., n).
        k: an int, since rows of different length do not fit into one tensor; or sizes, with which
            an index of -1 is no item.
        indices: integers (..., k), broadcast with the logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> log_prob_indices(torch.zeros(4), 2, torch.tensor([3, 0])).exp()
        tensor(0.1667)
    """
    if isinstance(k, Sizes):
        return with_sizes(
            log_prob_indices,
            logits,
            k,
            indices,
            mask=mask,
            method=method,
            validate_args=validate_args,
        )
    check_method(method)
    if isinstance(k, Tensor):
        raise TypeError("k must be an int in log_prob_indices, got a tensor")
    given = problem(logits, k, mask, validate_args=validate_args)
    if validate_args is None:
        validate_args = isinstance(indices, Tensor) and reads_values(indices)
    return infer(given, method).log_prob_indices(integer(k), indices, validate_args)


def entropy(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The entropy :math:`H = -\mathrm{E} \log p(z) = A(\theta) - \theta \cdot \mu`, in nats.

    Its gradient is :math:`-\mathrm{Cov}\,\theta`.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> entropy(torch.zeros(20), 10)  # log of 184756 equally likely subsets
        tensor(12.1268)
    """
    if isinstance(k, Sizes):
        return with_sizes(entropy, logits, k, mask=mask, method=method, validate_args=validate_args)
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    return given.scalar(_primitives.entropy(given.logits, given.size, method)[0])


def kl_divergence(
    logits_p: Tensor,
    logits_q: Tensor,
    k: int | Tensor | Sizes,
    k_q: int | Tensor | Sizes | None = None,
    *,
    mask_p: Tensor | None = None,
    mask_q: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
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
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> kl_divergence(torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3), 1)
        tensor(0.1233)
    """
    if isinstance(k, Sizes) or isinstance(k_q, Sizes):
        return divergence_of_sizes(
            kl_divergence, logits_p, logits_q, k, k_q, mask_p=mask_p, mask_q=mask_q, method=method,
            validate_args=validate_args,
        )  # fmt: skip
    check_method(method)
    size_q = k if k_q is None else k_q
    check_logits("logits_p", logits_p)
    check_logits("logits_q", logits_q)
    if logits_p.shape[-1] != logits_q.shape[-1]:
        raise ValueError(
            f"logits_p and logits_q must have the same number of items, got "
            f"{logits_p.shape[-1]} and {logits_q.shape[-1]}"
        )
    # Each distribution first by itself, so that neither is worked out more often than it has rows.
    names = Names("logits_p", "k", "mask_p")
    first = problem(logits_p, k, mask_p, names=names, validate_args=validate_args)
    names = Names("logits_q", "k" if k_q is None else "k_q", "mask_q")
    second = problem(logits_q, size_q, mask_q, names=names, validate_args=validate_args)
    try:
        torch.broadcast_shapes(first.batch_shape, second.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"the batch shapes of p, {tuple(first.batch_shape)}, and q, "
            f"{tuple(second.batch_shape)}, must broadcast"
        ) from None
    p = _moments(first, method, exact_rests=True)
    value = _divergence(p, _moments(second, method), method)
    return value.to(torch.promote_types(first.logits.dtype, second.logits.dtype))


def _softplus(x: Tensor) -> Tensor:
    """log(1 + exp x) to full precision, where torch's softplus turns linear at 20."""
    return -F.logsigmoid(-x)


class _Moments(NamedTuple):
    """What a divergence needs to know of a distribution, in batch shape."""

    tilted: Tensor  # in the widest type, with the special values of kernels.coins
    marginals: Tensor
    rests: Tensor  # 1 - marginals
    log_mass: Tensor  # log P(S = k) of the tilted coins
    k: Tensor


def _moments(given: Problem, method: str, exact_rests: bool = False) -> _Moments:
    theta = given.logits
    if not kernels.are_compiled(theta, method):
        theta = theta.to(widest(theta))  # float32 has log P(S = k) to six digits only
    _, mu, tilted, log_mass, shift = _primitives.infer(theta, given.size, method)
    if tilted.dtype != shift.dtype:
        # As accurate as the logits themselves, where ``tilted`` is rounded and may overflow.
        has_choice = tilted.isfinite().any(-1, keepdim=True)
        exact = theta.to(shift.dtype) + shift.unsqueeze(-1)
        exact = torch.where(theta.isfinite() & has_choice, exact, tilted.detach().to(exact.dtype))
        tilted = torch.where(tilted.isnan(), torch.nan, exact)
    rests = 1 - mu.detach()
    if exact_rests:  # the marginals of what is left out
        # A trace makes tensors of shapes. (The compiler knows no other way to ask for one.)
        traced = torch.jit.is_tracing()  # type: ignore[attr-defined]
        size = given.k if traced else given.size
        rests = _primitives.infer(-theta.detach(), given.n - size, method)[1]
    shape = (*given.batch_shape, given.n)
    return _Moments(
        tilted.reshape(shape),
        mu.reshape(shape),
        rests.reshape(shape),
        log_mass.reshape(given.batch_shape),
        given.k.reshape(given.batch_shape),
    )


def _divergence(p: _Moments, q: _Moments, method: str) -> Tensor:
    """KL(p || q) in the batch shape of both."""
    batch_shape = torch.broadcast_shapes(p.k.shape, q.k.shape)
    n, rows = p.tilted.shape[-1], math.prod(batch_shape)
    vectors = (p.tilted, q.tilted, p.marginals, q.marginals, p.rests)
    scalars = (p.log_mass, q.log_mass, p.k, q.k)
    value = _primitives.divergence(
        *(x.expand(*batch_shape, n).reshape(rows, n) for x in vectors),
        *(x.expand(batch_shape).reshape(rows) for x in scalars),
        method,
    )
    return value.reshape(batch_shape)


def kl_to_uniform(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The divergence from the uniform distribution over the k-subsets of the m *allowed* items,
    :math:`\log \binom{m}{k} - H`: the exact KL term of a k-subset VAE.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> kl_to_uniform(torch.tensor([5.0, 5.0, -5.0, -5.0]), 2)
        tensor(1.7898)
    """
    if isinstance(k, Sizes):
        return with_sizes(
            kl_to_uniform, logits, k, mask=mask, method=method, validate_args=validate_args
        )
    check_method(method)
    given = problem(logits, k, mask, validate_args=validate_args)
    p = _moments(given, method)
    allowed = (given.logits.detach() > -torch.inf).reshape(p.tilted.shape)
    return given.scalar(_divergence(p, _uniform(p, allowed), method))


def _uniform(p: _Moments, allowed: Tensor) -> _Moments:
    """The uniform distribution over the k-subsets of the allowed items."""
    count, size = allowed.sum(-1).to(p.log_mass.dtype), p.k.to(p.log_mass.dtype)
    chance = torch.where(size > 0, size / count, 0)
    subsets = (count + 1).lgamma() - (size + 1).lgamma() - (count - size + 1).lgamma()
    # Equal coins: S is binomial.
    log_mass = subsets + torch.special.xlogy(size, chance)
    log_mass = log_mass + torch.special.xlog1py(count - size, -chance)
    tilted = torch.where(allowed, torch.logit(chance).unsqueeze(-1), -torch.inf)
    return _Moments(tilted, p.marginals.detach(), p.rests, log_mass, p.k)


def mode(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    validate_args: bool | None = None,
) -> Tensor:
    r"""The most likely subset (MAP), which maximises :math:`\theta \cdot z`: the k largest logits,
    exactly k of them also on ties (the earlier item wins). Without a gradient.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        k-hot (..., n), in the type of the logits.

    Examples:
        >>> mode(torch.tensor([0.1, 2.0, 2.0, 2.0]), 2)
        tensor([0., 1., 1., 0.])
    """
    if isinstance(k, Sizes):
        return with_sizes(mode, logits, k, mask=mask, validate_args=validate_args)
    given = problem(logits, k, mask, validate_args=validate_args)
    theta, size = given.logits.detach(), given.size
    if _primitives.plain_eager((theta, size)):  # nothing is differentiated
        return given.vector(kernels.mode(theta, size))
    return given.vector(_primitives.mode(theta, size))
