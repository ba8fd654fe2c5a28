"""The swap estimate made unbiased by one random swap (docs/swaps.md)."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import Estimator, Loss, check_samples, with_gradient
from ksubset.estimators.score import others
from ksubset.estimators.swap_process import SwapProcess, check_baseline


class CorrectedSwap(Estimator):
    r"""The swap estimate with exact rates, corrected at one random swap: unbiased for every loss
    that is differentiable in z.

    The swap estimate :math:`L(z) g` replaces :math:`f(z) - f(z')` by the trapezoidal rule. Let
    :math:`z' = z - e_I + e_J` be one swap drawn in proportion to the rates, Z(z) the sum of all
    rates, and :math:`g, g'` the gradients at z and z'. The estimate is

    :math:`\tfrac12 \left( L(z) g + \tfrac{Z(z)}{Z(z')} L(z') g' \right) + \tfrac{Z(z)}{2}
    (e_I - e_J) \left( f(z) - f(z') - \tfrac12 (g + g') \cdot (z - z') \right)`.

    The swaps are reversible, so that the first two terms have the same mean; the last one is on
    average what the rule misses, and zero for quadratic losses. The loss and its gradient are
    evaluated at z and at one z' (one for each of the rows that share a loss). Samples carry no
    gradient: there is ``surrogate`` only, of logits (..., n).

    Args:
        baseline: "none"; or "leave_one_out", for every sample the mean gradient c of the others, of
            which there must be at least one: :math:`L(z)(g - c) + \mathrm{Cov}\, c` takes the place
            of :math:`L(z) g`. The mean of the estimate is the same.

    Examples:
        >>> from ksubset.estimators import CorrectedSwap
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> cost = torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> CorrectedSwap().surrogate(lambda z: (z @ cost).exp(), logits, 2).backward()
        >>> logits.grad.sum().abs() < 1e-6
        tensor(True)
    """

    def __init__(self, baseline: str = "none") -> None:
        super().__init__()
        self.baseline = check_baseline(baseline)

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 1,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        check_samples(num_samples, 2 if self.baseline == "leave_one_out" else 1)
        swaps = SwapProcess(logits, k, num_samples, mask, generator)
        z = swaps.z
        losses, g = with_gradient(loss_fn, z, vectorized)
        estimate = torch.zeros_like(z)
        centre = torch.zeros_like(z)
        if self.baseline == "leave_one_out":
            centre = others(g)
            estimate = functional.covariance_product(swaps.logits.detach(), k, centre)
        here = swaps.product(g - centre)
        step = swaps.draw(generator)  # e_J - e_I
        for row in swaps.rows(losses):
            moved = step * row
            there, slope = with_gradient(loss_fn, z + moved, vectorized)
            rule = 0.5 * torch.where(moved == 0, 0, (g + slope) * moved).sum(-1, keepdim=True)
            missed = swaps.difference(there, losses) - rule
            total, back = swaps.total(z), swaps.total(z + moved)
            ratio = total / torch.where(back > 0, back, 1)
            both = 0.5 * (here + ratio * swaps.product(slope - centre, z + moved))
            estimate = estimate + row * both + 0.5 * total * moved * missed
        return swaps.surrogate(losses, estimate)
