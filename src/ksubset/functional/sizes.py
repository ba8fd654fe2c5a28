"""The distribution of the size of a subset.

Arguments common to all functions are described in :mod:`ksubset.functional.inference`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.functional import _sized
from ksubset.sizes import Sizes, exactly

__all__ = ["size_mean", "size_probabilities", "size_variance"]


def size_probabilities(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The probabilities of the sizes, :math:`P(|z| = j) \propto e^{c_j} e_j(e^\theta)`.

    Differentiable to second order.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values (NaN, sizes that cannot be); None: those of eager CPU tensors.

    Returns:
        (..., n + 1), for the sizes 0 ... n; float32 for half precision logits.

    Examples:
        >>> size_probabilities(torch.zeros(4), between(1, 3))  # 4, 6 and 4 subsets
        tensor([0.0000, 0.2857, 0.4286, 0.2857, 0.0000])
    """
    sizes = k if isinstance(k, Sizes) else exactly(k)
    return _sized.size_probabilities(
        logits, sizes, mask=mask, method=method, validate_args=validate_args
    )


def size_mean(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The expected size :math:`\mathrm{E}\, |z| = \sum_i \mu_i`.

    Differentiable to second order.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values (NaN, sizes that cannot be); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> size_mean(torch.tensor([1.0, 0.0, 0.0, -1.0]), at_most(2))
        tensor(1.5030)
    """
    chances = size_probabilities(logits, k, mask=mask, method=method, validate_args=validate_args)
    return (chances * _counts(chances)).sum(-1)


def size_variance(
    logits: Tensor,
    k: int | Tensor | Sizes,
    *,
    mask: Tensor | None = None,
    method: str = "auto",
    validate_args: bool | None = None,
) -> Tensor:
    r"""The variance of the size, :math:`\mathrm{Var}\, |z|`.

    Differentiable to second order.

    Args:
        logits: (..., n).
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values (NaN, sizes that cannot be); None: those of eager CPU tensors.

    Returns:
        (...), float32 for half precision logits.

    Examples:
        >>> size_variance(torch.zeros(4), at_least(0))  # of four fair coins
        tensor(1.)
    """
    chances = size_probabilities(logits, k, mask=mask, method=method, validate_args=validate_args)
    counts = _counts(chances)
    mean = (chances * counts).sum(-1, keepdim=True)
    return (chances * (counts - mean) ** 2).sum(-1)


def _counts(chances: Tensor) -> Tensor:
    return torch.arange(chances.shape[-1], dtype=chances.dtype, device=chances.device)
