"""Exact samples of the k-subset distribution, with and without SIMPLE's gradient.

Arguments common to all functions are described in :mod:`ksubset.functional.inference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ksubset._arguments import Problem, check_method, check_sample_shape, problem
from ksubset.functional import _eager, _primitives
from ksubset.functional._by_size import with_sizes
from ksubset.kernels.random import following
from ksubset.sizes import Sizes

__all__ = ["sample", "sample_indices", "simple"]


def simple(
    logits: Tensor,
    k: int | Tensor | Sizes,
    sample_shape: Sequence[int] = (),
    *,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""Exact k-hot samples whose gradient is SIMPLE's, :math:`\mathrm{Cov}(z)\, g`.

    The forward pass draws from the k-subset distribution itself; the backward pass differentiates
    the exact marginals in place of the samples (Ahmed, Zeng, Niepert and Van den Broeck, ICLR
    2023).

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        generator: the source of randomness; the same seed gives the same samples.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> logits = torch.zeros(3, 5, requires_grad=True)
        >>> z = simple(logits, 2)
        >>> z.sum(-1)
        tensor([2., 2., 2.], grad_fn=<SumBackward1>)
        >>> z[:, 0].sum().backward()
        >>> logits.grad[0]
        tensor([ 0.2400, -0.0600, -0.0600, -0.0600, -0.0600])
    """
    if isinstance(k, Sizes):
        return with_sizes(
            simple, logits, k, sample_shape, mask=mask, generator=generator, method=method,
            validate_args=validate_args,
        )  # fmt: skip
    return draw(
        _primitives.sample, _eager.simple, logits, k, sample_shape, mask, generator, method,
        validate_args,
    )  # fmt: skip


def draw(
    operator: Callable[..., tuple[Tensor, Tensor]],
    planned: _eager.Planned | None,
    logits: Tensor,
    k: int | Tensor,
    sample_shape: Sequence[int],
    mask: Tensor | None,
    generator: torch.Generator | None,
    method: str,
    validate_args: bool | None,
) -> Tensor:
    """Exact samples by an operator; or by its planned form, if it has one, where only autograd
    observes the call."""
    sample_shape = check_sample_shape(sample_shape)
    key = None
    if planned is not None:
        key = _eager.key_of(logits, k, sample_shape, mask, method, validate_args)
    plan = _eager.plan_for(key)
    if planned is None or plan is None:
        check_method(method)
        given = problem(logits, k, mask, validate_args=validate_args)
        shape = math.prod(sample_shape), given.logits.shape[0]  # a seed for every drawn row
        if planned is None or key is None:
            seeds = _seeds(shape, given.logits.device, generator)
            rows = operator(given.logits, given.size, seeds, method)[0]
            return _shaped(given, rows, sample_shape)
        plan = _eager.keep(key, given, shape)
    if plan.kernels.one_seed:
        seeds = _random((), logits.device, generator)
    else:
        seeds = _seeds(plan.seeds, logits.device, generator)
    return planned(logits, mask, k if isinstance(k, Tensor) else None, seeds, plan)


def sample(
    logits: Tensor,
    k: int | Tensor | Sizes,
    sample_shape: Sequence[int] = (),
    *,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""Exact k-hot samples of :math:`p(z) \propto \exp(\theta \cdot z)`, without a gradient.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        generator: the source of randomness; the same seed gives the same samples.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> sample(torch.zeros(3, 5), torch.tensor([1, 2, 5]), (7,)).sum(-1)[0]
        tensor([1., 2., 5.])
    """
    return simple(
        logits.detach() if isinstance(logits, Tensor) else logits,
        k,
        sample_shape,
        mask=mask,
        generator=generator,
        method=method,
        validate_args=validate_args,
    )


def sample_indices(
    logits: Tensor,
    k: int | Sizes,
    sample_shape: Sequence[int] = (),
    *,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""Exact samples of :math:`p(z) \propto \exp(\theta \cdot z)` as the ascending indices of the
    chosen items, to gather with; without a gradient.

    Args:
        logits: (..., n).
        k: an int, since rows of different length do not fit into one tensor; or sizes, with which
            rows are filled up with -1.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        generator: the source of randomness; the same seed gives the same samples.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        int64 (*sample_shape, ..., k), k the largest of several sizes; -1 in rows that admit no
        subset and were not checked.

    Examples:
        >>> tokens = torch.randn(8, 100, 16)
        >>> chosen = sample_indices(torch.zeros(8, 100), 10)
        >>> tokens.take_along_dim(chosen.unsqueeze(-1), 1).shape
        torch.Size([8, 10, 16])
    """
    if isinstance(k, Sizes):
        return with_sizes(
            sample_indices, logits, k, sample_shape, mask=mask, generator=generator, method=method,
            validate_args=validate_args,
        )  # fmt: skip
    if isinstance(k, Tensor):
        raise TypeError("k must be an int in sample_indices, got a tensor")
    z = sample(
        logits,
        k,
        sample_shape,
        mask=mask,
        generator=generator,
        method=method,
        validate_args=validate_args,
    )
    # Stable: the chosen ones first, in their order.
    order = z.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return order.masked_fill(z[..., :1].isnan(), -1)


def _seeds(
    shape: tuple[int, int], device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """One for every drawn row. On a CPU, where a random number takes as long as a short row, a
    random one and those that follow it."""
    if device.type == "cpu":
        return following(_random((), device, generator), shape)
    return _random(shape, device, generator)


def _random(
    shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None
) -> Tensor:
    if generator is None:  # the overload that torch.compile knows has no generator
        return torch.randint(-(1 << 62), 1 << 62, shape, device=device)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    seeds = torch.randint(-(1 << 62), 1 << 62, shape, generator=generator, device=generator.device)
    return seeds.to(device)


def _shaped(given: Problem, rows: Tensor, sample_shape: tuple[int, ...]) -> Tensor:
    """Rows (samples, rows, n) in the shape and type that the user expects."""
    z = given.vector(rows)
    return z.reshape(*sample_shape, *z.shape[1:])
