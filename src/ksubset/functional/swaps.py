"""Exact samples whose gradient comes from swaps (docs/swaps.md).

Arguments common to all functions are described in :mod:`ksubset.functional.inference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ksubset._checks import PLANS, check_plan
from ksubset.functional import _eager, _primitives, _sized_swap
from ksubset.functional.sampling import draw
from ksubset.sizes import Sizes

__all__ = ["PLANS", "swap"]


def swap(
    logits: Tensor,
    k: int | Tensor | Sizes,
    sample_shape: Sequence[int] = (),
    *,
    plan: str = "product",
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""Exact k-hot samples whose gradient sees curvature: unbiased for quadratic losses.

    The forward pass draws from the k-subset distribution itself. The backward pass compares the
    sample with every subset that differs from it by one swap of a chosen item i for another one j.
    With :math:`g = \nabla f(z)`, the gradient is

    :math:`\tfrac12 \sum_{i \in z,\, j \notin z} r_{ij}(z)\, (e_i - e_j)\, (g_i - g_j)`,

    where :math:`r_{ij}(z)` are the rates of a reversible swap process, the plan. The exact rates
    make the estimate unbiased for every loss that is quadratic in z. The product plan,
    :math:`r_{ij} = (1 - \mu_i) \mu_j / \sum_{l \notin z} \mu_l`, is exact for k = 1 and k = n - 1
    and close elsewhere, and needs two sums over the row. Theorem and proof: docs/swaps.md.

    With several sizes, what changes with the size of a subset comes from single items that join it
    or leave it.

    A second derivative treats the plan as a constant.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``, without a
            gap between them.
        sample_shape: the leading shape of several samples per row.
        plan: "product", O(n), or "exact", O(nk).
        mask: boolean, broadcast to the logits; False forbids an item.
        generator: the source of randomness; the same seed gives the same samples.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values (NaN, k out of range); None: those of eager CPU tensors.

    Returns:
        k-hot (*sample_shape, ..., n), in the type of the logits.

    Examples:
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = swap(logits, 2, (1_000_000,))
        >>> (z[:, 0] * z[:, 1]).mean().backward()  # the probability that both are chosen
        >>> logits.grad.round(decimals=2)  # the exact gradient: 1/12
        tensor([ 0.0800,  0.0800, -0.0800, -0.0800])
    """
    check_plan(plan)
    if isinstance(k, Sizes):
        exact = k.exact
        if exact is None:
            options = (mask, generator, method, validate_args)
            return _sized_swap.swap(logits, k, sample_shape, plan, *options)
        k = exact
    return draw_by(plan, logits, k, sample_shape, mask, generator, method, validate_args)


def draw_by(plan: str, *arguments: Any) -> Tensor:
    """Exact samples whose gradient is a symmetric product: with a plan of swaps, or "reinmax"."""

    def sample_rows(*problem: Any) -> tuple[Tensor, Tensor]:
        return _primitives.swap(*problem, plan)

    planned = {"product": _eager.swap, "reinmax": _eager.reinmax}.get(plan)
    return draw(sample_rows, planned, *arguments)
