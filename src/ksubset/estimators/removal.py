"""Unbiased gradients from single swaps: the estimators of docs/swaps.md that evaluate the loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import problem
from ksubset.estimators.base import (
    Estimator,
    Loss,
    batch_logits,
    check_samples,
    evaluate,
    only_gradient,
)
from ksubset.functional import _primitives
from ksubset.functional.swaps import PLANS


class Removal(Estimator):
    r"""What would the loss be without each of the chosen items? Unbiased for every loss, which need
    not be differentiable in z.

    With :math:`\Delta_i = f(z) - f(z - e_i)` for the chosen items of an exact sample z, the
    estimate is the sum over swaps of :math:`r_{ij}(z)\, (e_i - e_j)\, \Delta_i`. The loss must make
    sense for k - 1 items, and is evaluated k + 1 times per sample (once for each chosen item of all
    rows that share a loss, and once at z). Samples carry no gradient: there is ``surrogate`` only,
    of logits (..., n).

    Args:
        plan: "exact", O(nk), or "product", O(n) and nearly unbiased.

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

    def __init__(self, plan: str = "exact") -> None:
        super().__init__()
        if plan not in PLANS:
            raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
        self.plan = plan

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
        check_samples(num_samples)
        swaps = _Swaps(logits, k, num_samples, mask, generator)
        z = swaps.z
        losses = evaluate(loss_fn, z, vectorized)
        dropped = torch.zeros_like(z)
        for row in swaps.rows(losses):
            for item in swaps.chosen():
                without = z * (1 - item * row)
                with torch.no_grad():
                    change = losses - evaluate(loss_fn, without, vectorized)
                dropped = dropped + item * row * swaps.spread(change)
        dropped = dropped.detach()
        if self.plan == "exact":
            exchanged = swaps.exchange(dropped)
        else:
            out, into = swaps.deviations.clamp(min=0), (-swaps.deviations).clamp(min=0)
            whole = out.sum(-1, keepdim=True)
            share = (out * dropped).sum(-1, keepdim=True) / torch.where(whole > 0, whole, 1)
            exchanged = into * share
        return swaps.surrogate(losses, swaps.deviations.clamp(min=0) * dropped - exchanged)


class CorrectedSwap(Estimator):
    r"""The swap estimate with exact rates, corrected at one random swap: unbiased for every loss
    that is differentiable in z.

    The swap estimate replaces :math:`f(z) - f(z')` by the trapezoidal rule. Let
    :math:`z' = z - e_I + e_J` be one swap drawn in proportion to the rates, Z the sum of all rates
    and :math:`g, g'` the gradients at z and z'. Then

    :math:`\tfrac{Z}{2} (e_I - e_J) \left( f(z) - f(z') - \tfrac12 (g + g') \cdot (z - z') \right)`

    is on average what the rule misses. It is zero for quadratic losses, so that no noise is added
    there. The loss and its gradient are evaluated at z and at one z' (one for each of the rows
    that share a loss). Samples carry no gradient: there is ``surrogate`` only, of logits (..., n).

    Examples:
        >>> from ksubset.estimators import CorrectedSwap
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> cost = torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> CorrectedSwap().surrogate(lambda z: (z @ cost).exp(), logits, 2).backward()
        >>> logits.grad.sum().abs() < 1e-6
        tensor(True)
    """

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
        check_samples(num_samples)
        swaps = _Swaps(logits, k, num_samples, mask, generator)
        z, deviations = swaps.z.requires_grad_(), swaps.deviations
        with torch.enable_grad():
            losses = evaluate(loss_fn, z, vectorized)
        g = _slope(losses, z)
        estimate = 0.5 * (deviations.abs() * g - swaps.exchange(g))
        step = swaps.one_swap(generator)  # e_J - e_I
        whole = deviations.clamp(min=0).sum(-1, keepdim=True)
        for row in swaps.rows(losses):
            with torch.enable_grad():
                other = (z + step * row).detach().requires_grad_()
                there = evaluate(loss_fn, other, vectorized)
            rule = 0.5 * ((g + _slope(there, other)) * step * row).sum(-1, keepdim=True)
            change = swaps.spread((there - losses).detach())
            missed = (change - rule) * row
            estimate = estimate + 0.5 * whole * step * missed
        return swaps.surrogate(losses, estimate)


def _slope(losses: Tensor, z: Tensor) -> Tensor:
    """The gradient of the losses in z; a loss that does not see z has none."""
    if not losses.requires_grad:
        return torch.zeros_like(z)
    (slope,) = torch.autograd.grad(
        losses.sum(), z, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return slope


class _Swaps:
    """Exact samples, and what there is to know of the swaps at them."""

    def __init__(
        self,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> None:
        self.logits = batch_logits(logits, k, mask)
        given = problem(self.logits.detach(), k)
        self.z = functional.sample(self.logits, k, (num_samples,), generator=generator)
        self.deviations = self.z - functional.marginals(self.logits.detach(), k)
        self._most = int(given.k.amax()) if given.k.numel() else 0
        tilted = _primitives.tilt(given.logits, given.k, "auto")
        self._tilted, self._k = (
            x.expand(num_samples, *x.shape).flatten(0, 1) for x in (tilted, given.k)
        )

    def exchange(self, v: Tensor) -> Tensor:
        """sum_j r_ij v_j at chosen items i, sum_i r_ij v_i at the others: (samples, ..., n)."""
        rows = (x.detach().reshape(self._tilted.shape).to(self._tilted) for x in (self.z, v))
        return _primitives.exchange(self._tilted, self._k, *rows).reshape(v.shape).to(v.dtype)

    def chosen(self) -> Iterator[Tensor]:
        """One chosen item of every row after the other, one-hot; zero where there are no more."""
        count = self.z.detach().cumsum(-1) * self.z.detach()
        for rank in range(1, self._most + 1):
            yield (count == rank).to(self.z.dtype)

    def rows(self, losses: Tensor) -> Iterator[Tensor]:
        """Of those rows that share a loss, one after the other: 1 or 0 (..., 1)."""
        shared = self.z.shape[losses.dim() : -1]
        count = shared.numel()
        which = torch.arange(count, device=self.z.device).reshape(*shared, 1)
        for row in range(count):
            yield (which == row).to(self.z.dtype)

    def spread(self, losses: Tensor) -> Tensor:
        """A loss for each of the rows that share it: (samples, ..., 1)."""
        missing = self.z.dim() - losses.dim()
        return losses.reshape(*losses.shape, *(1,) * missing).to(self.z.dtype)

    def one_swap(self, generator: torch.Generator | None) -> Tensor:
        """e_J - e_I for a swap drawn in proportion to the rates; zero where there is none."""
        first = _one_of(self.deviations.clamp(min=0), generator)
        rates = self.exchange(first).clamp(min=0)
        rates = torch.where(self.deviations < 0, rates, 0)
        return _one_of(rates, generator) - first

    def surrogate(self, losses: Tensor, estimate: Tensor) -> Tensor:
        """The losses, with this estimate for the gradient of the logits."""
        direction = torch.where(self.logits.isfinite(), only_gradient(self.logits), 0)
        return (losses.sum() + (estimate.detach() * direction).sum()) / len(losses)


def _one_of(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """One-hot (..., n), in proportion to the weights; zero where they are."""
    sums = weights.cumsum(-1)
    device = weights.device if generator is None else generator.device
    u = torch.rand(weights.shape[:-1], generator=generator, device=device, dtype=torch.float64)
    aim = u.to(weights).unsqueeze(-1) * sums[..., -1:]
    hit = (sums > aim) & (weights > 0)
    return (hit & (hit.cumsum(-1) == 1)).to(weights.dtype)
