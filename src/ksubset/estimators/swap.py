"""Gradients from single swaps: the estimators of docs/swaps.md that differentiate the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import check_sample_shape
from ksubset.estimators.base import Pathwise, only_gradient
from ksubset.estimators.swap_process import SwapProcess, check_baseline, check_plan
from ksubset.sizes import Sizes


class Swap(Pathwise):
    r"""Exact samples forward; backward, half the sum over all swaps of a chosen item i for another
    item j of :math:`r_{ij}(z)\, (e_i - e_j)\, (g_i - g_j)`, with :math:`g = \nabla f(z)`.

    With the exact plan the estimate is unbiased for every loss that is quadratic in z. With the
    product plan it is unbiased for quadratic losses if k = 1 or k = n - 1, and has a small bias
    otherwise, for linear losses too. Its noise does not grow with n as ReinMax's does. For k = 1 it
    is ReinMax. :func:`ksubset.swap` is the function.

    With several samples, the others can serve as a baseline. Let :math:`c_s` be the mean of their
    gradients, and L(z) the matrix of the sum above. The estimate of sample s is then
    :math:`L(z_s)(g_s - c_s) + \mathrm{Cov}(z)\, c_s`. With the exact plan its mean is the same;
    with the product plan its bias is smaller, and zero for linear losses.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n). For k there may be sizes
    (:mod:`ksubset.sizes`) without a gap between them.

    Args:
        plan: "product", O(n), or "exact", O(nk).
        baseline: "none"; or "leave_one_out", for every sample the mean gradient of the others, of
            which there must be at least one.

    Examples:
        >>> from ksubset.estimators import Swap
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> target = torch.tensor([2.0, 0.0, 0.0, 0.0])
        >>> z = Swap().sample(logits, 2, (100_000,))
        >>> (z - target).square().sum(-1).mean().backward()
        >>> logits.grad.round(decimals=1)  # the exact gradient: -1 and 1/3
        tensor([-1.0000,  0.3000,  0.3000,  0.3000])
    """

    def __init__(self, plan: str = "product", baseline: str = "none") -> None:
        super().__init__()
        self.plan, self.baseline = check_plan(plan), check_baseline(baseline)

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor | Sizes,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        shape = check_sample_shape(sample_shape)
        z = functional.swap(logits, k, shape, plan=self.plan, mask=mask, generator=generator)
        if self.baseline == "none":
            return z
        samples = math.prod(shape)
        if samples < 2:
            raise ValueError(
                f"the leave-one-out baseline needs at least 2 samples, got sample_shape {shape}"
            )
        # The gradient g_s multiplies a vector that carries L(z_s) to the logits. The other samples'
        # vectors carry what is subtracted, the marginals the covariance.
        carried = only_gradient(z).reshape(samples, *z.shape[len(shape) :])
        others = (carried.sum(0) - carried) / (samples - 1)
        mean = only_gradient(functional.marginals(logits, k, mask=mask))
        return z + (mean - others).reshape(z.shape)


class SparseSwap(Pathwise):
    r"""The swap estimate from the gradients of the *chosen* items alone, for routers whose other
    experts never ran: the sum over swaps of :math:`r_{ij}(z)\, (e_i - e_j)\, g_i`.

    Exact samples forward. With the exact plan the estimate is unbiased for linear losses. With the
    product plan, :math:`r_{ij} = (1 - \mu_i) \mu_j / \sum_{l \notin z} \mu_l`, it is so if k = 1
    or k = n - 1, and has a small bias otherwise: a chosen item i gets :math:`(1 - \mu_i) g_i`, and
    the sum of these is taken from the items that were not chosen, in proportion to their marginals.
    The gradient :math:`g_i` stands for what the loss would lose without item i; :class:`Removal`
    evaluates that.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        plan: "product", O(n), or "exact", O(nk).

    Examples:
        >>> from ksubset.estimators import SparseSwap
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = SparseSwap().sample(logits, 2)
        >>> z.backward(z.detach() * 2)  # nothing is known of items that were not chosen
        >>> torch.equal(logits.grad, torch.where(z > 0, 1.0, -1.0))
        True
    """

    def __init__(self, plan: str = "product") -> None:
        super().__init__()
        self.plan = check_plan(plan)

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        shape = check_sample_shape(sample_shape)
        swaps = SwapProcess(logits, k, math.prod(shape), mask, generator)
        z = swaps.z + swaps.sparse_product(swaps.direction(), plan=self.plan)
        return z.reshape(*shape, *z.shape[1:])
