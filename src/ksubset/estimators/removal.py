"""Removal: an unbiased gradient from the loss without each of the chosen items (docs/swaps.md)."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.estimators.base import Estimator, Loss, check_samples, evaluate
from ksubset.estimators.score import others
from ksubset.estimators.swap_process import SwapProcess, check_baseline, check_plan


class Removal(Estimator):
    r"""Exact samples; the gradient from what the loss would be without each of the chosen items.
    Unbiased for every loss, which need not be differentiable in z.

    With :math:`\Delta_i = f(z) - f(z - e_i)` for the chosen items of an exact sample z, the
    estimate is the sum over swaps of :math:`r_{ij}(z)\, (e_i - e_j)\, \Delta_i`. The loss must make
    sense for k - 1 items. It is evaluated k + 1 times per sample: at z, and without each chosen
    item of each of the rows that share a loss. If ``vectorized``, ``loss_fn`` is called twice in
    all: the second call has a leading dimension of samples times removals, and no gradient. Samples
    carry no gradient: there is ``surrogate`` only, of logits (..., n).

    Args:
        plan: "exact", O(nk), or "product", O(n) and nearly unbiased.
        baseline: what is subtracted from :math:`\Delta_i`: "none"; or "leave_one_out", its mean
            over the other samples, of which there must be at least one. The mean of the estimate is
            the same.

    Examples:
        >>> from ksubset.estimators import Removal
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> seen = []
        >>> def loss(z):
        ...     seen.append(int(z.sum()))
        ...     return (z[0] > 0.5).float()  # no gradient passes through it
        >>> Removal().surrogate(loss, logits, 2).backward()
        >>> seen
        [2, 1, 1]
    """

    def __init__(self, plan: str = "exact", baseline: str = "none") -> None:
        super().__init__()
        self.plan, self.baseline = check_plan(plan), check_baseline(baseline)

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
        losses = evaluate(loss_fn, swaps.z, vectorized)
        changes = _changes(loss_fn, swaps, losses, vectorized)
        if self.baseline == "leave_one_out":
            mean = changes.sum(-1, keepdim=True) / swaps.sizes.clamp(min=1)
            changes = changes - swaps.z * others(mean)
        # Where an item is not chosen, nothing changes: the product has one end of each swap only.
        return swaps.surrogate(losses, 2 * swaps.product(changes, plan=self.plan))


def _changes(loss_fn: Loss, swaps: SwapProcess, losses: Tensor, vectorized: bool) -> Tensor:
    """f(z) - f(z - e_i) at chosen items, 0 at the others: (samples, ..., n)."""
    removed = [item * row for row in swaps.rows(losses) for item in swaps.chosen()]
    if not removed:
        return torch.zeros_like(swaps.z)
    with torch.no_grad():
        items = torch.stack(removed)
        without = (swaps.z - items).flatten(0, 1)
        left = evaluate(loss_fn, without, vectorized).unflatten(0, items.shape[:2])
        parts = zip(items, left, strict=True)
        return torch.stack([item * swaps.difference(losses, x) for item, x in parts]).sum(0)
