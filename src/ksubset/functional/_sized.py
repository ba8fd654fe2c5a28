"""What the public functions do with sizes in place of k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import (
    check_dense,
    check_logits,
    check_method,
    check_sample_shape,
    reads_values,
)
from ksubset._checks import Names
from ksubset.functional import _primitives, _sized_simple
from ksubset.functional._attach import attach
from ksubset.functional._by_size import of_sizes
from ksubset.functional._mixed import Mixture, mixture
from ksubset.functional._nodes import Nodes, divergence, nodes, product
from ksubset.functional._size_problem import SizedProblem, sized_problem
from ksubset.functional.inference import _divergence, _moments
from ksubset.functional.sampling import _seeds, sample
from ksubset.kernels import random
from ksubset.kernels.largest import k_largest
from ksubset.sizes import Between, Sizes, exactly

_SIZE = 2  # purpose of the random keys that draw sizes


def _law(logits: Tensor, sizes: Sizes, method: str, **options: Any) -> Nodes | Mixture:
    check_method(method)
    return _infer(sized_problem(logits, sizes, **options), method)


def _by_nodes(sizes: Sizes, method: str) -> bool:
    """Whether all sizes go at once; they do one by one otherwise."""
    return sizes.concave and method in ("auto", "spectral")


def _infer(found: SizedProblem, method: str) -> Nodes | Mixture:
    if _by_nodes(found.sizes, method):
        return nodes(found, isinstance(found.sizes, Between), method)
    return mixture(found, method)


@of_sizes
def log_partition(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """log sum_j exp(c_j + A_j)."""
    found = _law(logits, k, method, **options)
    if found.problem.random:
        raise TypeError(
            f"k must not be sizes of given probabilities in log_partition, got {k!r}: there is one "
            "partition function for each size, log_partition(logits, size)"
        )
    given = found.problem.given
    forced = (given.logits == torch.inf).any(-1) & ~found.total.isnan()
    return given.scalar(attach(torch.where(forced, torch.inf, found.total), found.total))


@of_sizes
def marginals(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """sum_j P_j mu_j."""
    found = _law(logits, k, method, **options)
    return found.problem.given.vector(found.marginals())


@of_sizes
def size_probabilities(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """(..., n + 1)."""
    found = _law(logits, k, method, **options)
    given, first = found.problem.given, found.problem.first
    rest = given.n - first - found.problem.log_weights.shape[-1] + 1
    chances = torch.nn.functional.pad(found.chances, (first, rest))
    return chances.reshape(*given.batch_shape, given.n + 1).to(given.logits.dtype)


@of_sizes
def covariance_product(
    logits: Tensor, k: Sizes, v: Tensor, *, method: str, **options: Any
) -> Tensor:
    """By total covariance: within sizes and between them."""
    check_dense("v", v)
    check_method(method)
    problem = sized_problem(logits, k, more={"v": tuple(v.shape[:-1])}, **options)
    given = problem.given
    rows = given.rows("v", v)
    if _by_nodes(k, method):
        return given.vector(product(problem, isinstance(k, Between), rows, method))
    return given.vector(mixture(problem, method).product(rows))


@of_sizes
def covariance_matrix(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """By n products."""
    found = _law(logits, k, method, **options)
    given = found.problem.given
    return found.matrix().reshape(*given.batch_shape, given.n, given.n).to(given.dtype)


@of_sizes
def pairwise_marginals(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """Cov + mu mu^T."""
    found = _law(logits, k, method, **options)
    given = found.problem.given
    mu = found.marginals()
    joint = found.matrix() + mu.unsqueeze(-1) * mu.unsqueeze(-2)
    return joint.reshape(*given.batch_shape, given.n, given.n).to(given.dtype)


@of_sizes
def entropy(logits: Tensor, k: Sizes, *, method: str, **options: Any) -> Tensor:
    """That of the size, and the mean of those within each size."""
    found = _law(logits, k, method, **options)
    return found.problem.given.scalar(found.entropy())


@of_sizes
def kl_divergence(
    logits_p: Tensor,
    logits_q: Tensor,
    k: Sizes | int | Tensor,
    k_q: Sizes | int | Tensor | None,
    *,
    mask_p: Tensor | None,
    mask_q: Tensor | None,
    method: str,
    validate_args: bool | None,
) -> Tensor:
    """That of the sizes, and the mean of those within each size."""
    check_method(method)
    one, other = _as_sizes(k), _as_sizes(k if k_q is None else k_q)
    names = Names("logits_p", "k", "mask_p")
    p = sized_problem(logits_p, one, mask_p, names=names, validate_args=validate_args)
    names = Names("logits_q", "k" if k_q is None else "k_q", "mask_q")
    q = sized_problem(logits_q, other, mask_q, names=names, validate_args=validate_args)
    if p.given.n != q.given.n:
        raise ValueError(
            f"logits_p and logits_q must have the same number of items, got {p.given.n} and "
            f"{q.given.n}"
        )
    try:
        torch.broadcast_shapes(p.given.batch_shape, q.given.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"the batch shapes of p, {tuple(p.given.batch_shape)}, and q, "
            f"{tuple(q.given.batch_shape)}, must broadcast"
        ) from None
    first = min(p.first, q.first)
    last = max(x.first + x.log_weights.shape[-1] for x in (p, q))
    p, q = _over(p, first, last), _over(q, first, last)
    law_p, law_q = _infer(_wide(p), method), _infer(_wide(q), method)
    if isinstance(law_p, Nodes) and isinstance(law_q, Nodes):
        value = divergence(law_p, law_q)
    else:
        value = _mixed_divergence(mixture(p, method), mixture(q, method), method)
    return value.to(torch.promote_types(p.given.logits.dtype, q.given.logits.dtype))


def _mixed_divergence(p: Mixture, q: Mixture, method: str) -> Tensor:
    """(...), by size."""
    log_p, log_q = (x.log_sizes.reshape(*x.problem.given.batch_shape, -1) for x in (p, q))
    within = _divergence(
        _moments(p.rows, method, exact_rests=True), _moments(q.rows, method), method
    )
    chances = log_p.exp()
    drawn = (chances > 0) | chances.isnan()
    ratio = torch.where(drawn, log_p, 0) - torch.where(drawn, log_q, 0)
    value = (torch.where(drawn, chances, 0) * (ratio + torch.where(drawn, within, 0))).sum(-1)
    return torch.where(value < 0, value * 0, value)


def _as_sizes(k: Sizes | int | Tensor) -> Sizes:
    return k if isinstance(k, Sizes) else exactly(k)


def _wide(found: SizedProblem) -> SizedProblem:
    """In the widest type: a divergence has small differences of large numbers."""
    given = found.given
    return found._replace(given=given._replace(logits=given.logits.to(found.log_weights.dtype)))


def _over(found: SizedProblem, first: int, last: int) -> SizedProblem:
    """The same with more sizes, none of which is possible."""
    room = (found.first - first, last - found.first - found.log_weights.shape[-1])
    weights = torch.nn.functional.pad(found.log_weights, room, value=-torch.inf)
    return found._replace(first=first, log_weights=weights)


@of_sizes
def log_prob(
    logits: Tensor,
    k: Sizes,
    value: Tensor,
    *,
    mask: Tensor | None,
    method: str,
    validate_args: bool | None,
) -> Tensor:
    """log P(|z|) + log p(z | |z|)."""
    found = _law(logits, k, method, mask=mask, validate_args=validate_args)
    given, first = found.problem.given, found.problem.first
    if not isinstance(value, Tensor):
        raise TypeError(f"value must be a tensor, got {type(value).__name__}")
    check_dense("value", value)
    if value.dim() == 0 or value.shape[-1] != given.n:
        raise ValueError(
            f"value must have shape (..., n) with n = {given.n}, got {tuple(value.shape)}"
        )
    try:
        shape = torch.broadcast_shapes(value.shape[:-1], given.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"the batch shape of value, {tuple(value.shape[:-1])}, must broadcast with that of the "
            f"logits and k, {tuple(given.batch_shape)}"
        ) from None
    z = value.detach().to(found.mu.dtype).expand(*shape, given.n).reshape(-1, given.n)
    row = torch.arange(len(given.logits), device=z.device)
    row = row.reshape(given.batch_shape).expand(shape).reshape(-1)
    size = (z != 0).sum(-1)
    last = found.problem.log_weights.shape[-1] - 1
    inside = (size >= first) & (size <= first + last)
    at = (size - first).clamp(0, last)
    inside = inside & (found.problem.log_weights[row, at] > -torch.inf)
    binary = ((z == 0) | (z == 1)).all(-1)
    if reads_values(value) if validate_args is None else validate_args:
        _check_support(binary, inside, size, k)
    result = found.log_prob(row, torch.where(binary.unsqueeze(-1), z, 0), size)
    result = torch.where(inside | result.isnan(), result, -torch.inf)
    return result.masked_fill(~binary, torch.nan).reshape(shape).to(given.logits.dtype)


def _check_support(binary: Tensor, possible: Tensor, size: Tensor, k: Sizes) -> None:
    if not bool(binary.all()):
        raise ValueError("value must be 0 or 1 everywhere, got other entries")
    if not bool(possible.all()):
        raise ValueError(
            f"value must have as many ones as one of the sizes {k!r} that its row admits, "
            f"got {int(size[~possible][0])}"
        )


@of_sizes
def mode(logits: Tensor, k: Sizes, *, mask: Tensor | None, validate_args: bool | None) -> Tensor:
    """The largest logits, of the best size."""
    found = sized_problem(logits, k, mask, validate_args=validate_args)
    given = found.given
    theta = given.logits.detach()
    weights = found.log_weights.detach()
    if found.random:
        weights = weights - mixture(found, "auto").totals.detach()
    finite = theta.to(weights.dtype).sort(-1, descending=True).values
    finite = torch.where(finite.isfinite(), finite, 0)
    gains = torch.nn.functional.pad(finite.cumsum(-1), (1, 0))[:, found.counts]
    scores = torch.where(weights == -torch.inf, -torch.inf, weights + gains)
    best = found.counts[scores.argmax(-1)]
    impossible = (weights == -torch.inf).all(-1, keepdim=True)
    chosen = k_largest(theta, best).masked_fill(impossible, torch.nan)
    return given.vector(chosen)


@of_sizes
def simple(
    logits: Tensor,
    k: Sizes,
    sample_shape: Sequence[int],
    mask: Tensor | None,
    generator: torch.Generator | None,
    method: str,
    validate_args: bool | None,
) -> Tensor:
    """The size from its own distribution, then a subset of that size; the gradient is that of the
    marginals."""
    sample_shape = check_sample_shape(sample_shape)
    known = _sized_simple.simple(
        logits, k, sample_shape, mask, generator, method, validate_args, draw_sizes
    )
    if known is not None:
        return known
    found = _law(logits, k, method, mask=mask, validate_args=validate_args)
    given = found.problem.given
    drawn = draw(found, math.prod(sample_shape), generator)
    with torch.no_grad():
        z = _primitives.sample(drawn.logits, drawn.size, drawn.seeds, method)[0]
    z, mu = z.reshape(drawn.shape), found.marginals()
    if mu.requires_grad or not (_primitives.plain_eager((mu,)) and _primitives.no_forward_mode()):
        z = z + (mu - mu.detach()).to(z.dtype)
    z = given.vector(z)
    return z.reshape(*sample_shape, *z.shape[1:])


class Drawn(NamedTuple):
    """The size of every sample, and what a sampler of subsets of one size takes."""

    shape: tuple[int, ...]  # (samples, rows, n)
    logits: Tensor  # (samples * rows, n)
    size: Tensor  # (samples * rows,)
    seeds: Tensor  # (1, samples * rows)


def draw(found: Nodes | Mixture, samples: int, generator: torch.Generator | None) -> Drawn:
    """Sizes, from their own distribution."""
    theta = found.problem.given.logits
    seeds = _seeds((samples, len(theta)), theta.device, generator)
    with torch.no_grad():
        size = draw_sizes(found.chances.detach(), found.problem.first, seeds)
    shape = (samples, *theta.shape)
    each = theta.expand(shape).reshape(-1, theta.shape[-1])
    return Drawn(shape, each, size.reshape(-1), seeds.reshape(1, -1))


@of_sizes
def sample_indices(
    logits: Tensor, k: Sizes, sample_shape: Sequence[int], *, mask: Tensor | None, **options: Any
) -> Tensor:
    """Ascending, as many as the largest size has, with -1 behind them."""
    z = sample(logits, k, sample_shape, mask=mask, **options)
    order = z.sort(dim=-1, descending=True, stable=True)
    width = _largest(k, logits)
    return order.indices[..., :width].masked_fill(~(order.values[..., :width] > 0), -1)


def _largest(sizes: Sizes, logits: Tensor) -> int:
    own = sizes.rows(logits.shape[-1], logits.dtype, logits.device, "k")
    return own.first + own.log_weights.shape[-1] - 1


@of_sizes
def log_prob_indices(
    logits: Tensor, k: Sizes, indices: Tensor, *, validate_args: bool | None, **options: Any
) -> Tensor:
    """Of the k-hot vectors; -1 is no item."""
    if not isinstance(indices, Tensor):
        raise TypeError(f"indices must be a tensor, got {type(indices).__name__}")
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise TypeError(f"indices must be an integer tensor, got {indices.dtype}")
    check_logits("logits", logits)
    n = logits.shape[-1]
    index = indices.detach().to(torch.int64)
    check = reads_values(index) if validate_args is None else validate_args
    if check:
        outside = (index < -1) | (index >= n)
        if bool(outside.any()):
            raise ValueError(
                f"indices must be between 0 and n - 1 = {n - 1}, or -1 for no item, "
                f"got {int(index[outside][0])}"
            )
    wide = torch.promote_types(logits.dtype, torch.float32)
    times = torch.zeros(*index.shape[:-1], n + 2, dtype=wide, device=index.device)
    # -1 falls into the last place, what is out of range into the one before it.
    place = torch.where(index == -1, n + 1, torch.where((index < 0) | (index >= n), n, index))
    times = times.scatter_add(-1, place, torch.ones_like(place, dtype=wide))[..., : n + 1]
    wrong = (times[..., :n] > 1).any(-1) | (times[..., n] > 0)
    if check and bool(wrong.any()):
        raise ValueError("indices must be different in each set, got one of them twice")
    value = log_prob(logits, k, times[..., :n].clamp_max(1), validate_args=validate_args, **options)
    return torch.where(wrong & ~value.isnan(), -torch.inf, value)


@of_sizes
def kl_to_uniform(logits: Tensor, k: Sizes, *, mask: Tensor | None, **options: Any) -> Tensor:
    """From the same sizes with equal logits."""
    check_logits("logits", logits)
    uniform = torch.zeros_like(logits).masked_fill(logits.detach() == -torch.inf, -torch.inf)
    return kl_divergence(logits, uniform, k, None, mask_p=mask, mask_q=mask, **options)


class OfSizes(NamedTuple):
    """What a distribution asks of its logits and sizes, as of one pass of inference for one k."""

    logits: Tensor
    sizes: Sizes
    method: str

    def marginals(self) -> Tensor:
        """(..., n)."""
        return marginals(self.logits, self.sizes, method=self.method, validate_args=False)

    def log_partition(self) -> Tensor:
        """(...)."""
        return log_partition(self.logits, self.sizes, method=self.method, validate_args=False)

    def log_prob(self, value: Tensor, validate: bool) -> Tensor:
        """Of 0/1 vectors (..., n): (...)."""
        options: dict[str, Any] = {"method": self.method, "validate_args": validate}
        return log_prob(self.logits, self.sizes, value, mask=None, **options)

    def log_prob_indices(self, k: int, indices: Tensor, validate: bool) -> Tensor:
        """Of sets of indices (..., k), -1 for no item: (...)."""
        options: dict[str, Any] = {"method": self.method, "validate_args": validate}
        return log_prob_indices(self.logits, self.sizes, indices, mask=None, **options)


def draw_sizes(chances: Tensor, first: int, seeds: Tensor) -> Tensor:
    """(samples, rows) sizes for seeds of that shape, -1 in rows that have none."""
    noise = random.uniform(random.keys(seeds, _SIZE), 0, 1, chances.dtype)
    reached = chances.cumsum(-1)
    # Rounding must not lead to a size that has no probability: not the last ones' either.
    reached = reached / reached[..., -1:]
    last = torch.where(chances > 0, torch.arange(chances.shape[-1], device=chances.device), 0)
    place = torch.searchsorted(reached.contiguous(), noise.squeeze(-1).T.contiguous(), right=True).T
    size = first + torch.minimum(place, last.amax(-1))
    return size.masked_fill(reached[..., -1].isnan(), -1)
