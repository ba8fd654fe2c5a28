"""Subsets of several sizes, each within the next: an ordering of the items.

Arguments common to all functions are described in :mod:`ksubset.functional.inference`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import check_sample_shape, integer, problem
from ksubset.functional.sampling import _seeds
from ksubset.kernels import nested

__all__ = ["NestedSubsets", "nested_subsets"]


class NestedSubsets(NamedTuple):
    """What :func:`nested_subsets` returns.

    Attributes:
        order: int64 (*sample_shape, ..., K), the items in their order; K is the largest size.
        subsets: 0/1 (*sample_shape, ..., sizes, n), the first items of the order for every size.

    Examples:
        >>> order, subsets = nested_subsets(torch.zeros(6), [2, 4])
        >>> order.shape, subsets.sum(-1)
        (torch.Size([4]), tensor([2., 4.]))
    """

    order: Tensor
    subsets: Tensor


def nested_subsets(
    logits: Tensor,
    sizes: int | Sequence[int],
    sample_shape: Sequence[int] = (),
    *,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    validate_args: bool | None = None,
) -> NestedSubsets:
    r"""An ordering of items whose first k, for every k, are an exact k-subset of these logits.

    The sequential sampler is run for all sizes with the same random numbers. Every subset has the
    k-subset distribution :math:`p(z) \propto \exp(\theta \cdot z)`, and each contains all
    smaller ones: selections that may be stopped anywhere, or that grow. Without a gradient.

    Args:
        logits: (..., n).
        sizes: the sizes of the subsets, or one of them; the order is as long as the largest.
        sample_shape: the leading shape of several samples per row.
        mask: boolean, broadcast to the logits; False forbids an item.
        generator: the source of randomness; the same seed gives the same samples.
        validate_args: check values (NaN, too few allowed items); None: those of eager CPU tensors.

    Returns:
        The order and the subsets, :class:`NestedSubsets`. Items with a logit of +inf come first;
        where a size is smaller than their number, which no exact subset has, it is filled with
        some of them.

    Examples:
        >>> logits = torch.randn(3, 10)
        >>> order, subsets = nested_subsets(logits, [1, 2, 5])
        >>> order.shape, subsets.shape
        (torch.Size([3, 5]), torch.Size([3, 3, 10]))
        >>> bool((subsets[:, 1:] >= subsets[:, :-1]).all())  # each within the next
        True
    """
    sample_shape = check_sample_shape(sample_shape)
    wanted = _checked(sizes)
    most = max(wanted)
    given = problem(logits, most, mask, validate_args=validate_args)
    seeds = _seeds((math.prod(sample_shape), len(given.logits)), given.logits.device, generator)
    theta = given.logits.detach()
    order, rank = nested.order(theta, most, seeds)
    limits = torch.tensor(wanted, device=theta.device).unsqueeze(-1)
    subsets = (rank.unsqueeze(-2) < limits).to(given.dtype)
    bad = _without_order(theta, most)
    if bad is not None:
        order = torch.where(bad.unsqueeze(-1), -1, order)
        subsets = subsets.masked_fill(bad[:, None, None], torch.nan)
    shape = (*sample_shape, *given.batch_shape)
    subsets = subsets.reshape(*shape, len(wanted), given.n)
    if not isinstance(sizes, Sequence):
        subsets = subsets.squeeze(-2)
    return NestedSubsets(order.reshape(*shape, most), subsets)


def _without_order(theta: Tensor, most: int) -> Tensor | None:
    """The rows that have none; None if that is seen at once."""
    if theta.device.type == "cpu" and theta.numel() and most <= theta.shape[-1]:
        low, high = torch.aminmax(theta)
        if math.isfinite(float(low)) and math.isfinite(float(high)):
            return None
    return theta.isnan().any(-1) | ((theta > -torch.inf).sum(-1) < most)


def _checked(sizes: int | Sequence[int]) -> list[int]:
    try:
        found = [integer(k) for k in (sizes if isinstance(sizes, Sequence) else [sizes])]
    except TypeError:
        found = []
    if not found or min(found) < 0:
        raise ValueError(f"sizes must be an int or a sequence of ints, all >= 0, got {sizes!r}")
    return found
