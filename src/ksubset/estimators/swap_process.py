"""Exact samples and the swaps at them: what the estimators that evaluate swaps share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import problem
from ksubset.estimators.base import batch_logits, only_gradient
from ksubset.functional import _primitives
from ksubset.functional.swaps import PLANS
from ksubset.kernels.swaps import product_plan, sparse_product_plan

_BASELINES = ("none", "leave_one_out")


def check_plan(plan: str) -> str:
    """Raise unless there is such a plan."""
    if plan not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
    return plan


def check_baseline(baseline: str) -> str:
    """Raise unless there is such a baseline."""
    if baseline not in _BASELINES:
        raise ValueError(f"baseline must be one of {', '.join(_BASELINES)}, got {baseline!r}")
    return baseline


class SwapProcess:
    r"""Exact samples z and the rates :math:`r_{ij}(z)` at which item i is swapped for item j.

    Attributes:
        z: k-hot (samples, ..., n), without a gradient.
        deviations: z minus the marginals: the total rate of swaps that remove a chosen item; for
            the other items, minus the total rate of swaps that add it.
        sizes: k, (..., 1).
    """

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
        self._marginals = functional.marginals(self.logits.detach(), k)
        self.deviations = self.z - self._marginals
        self.sizes = given.k.reshape(given.batch_shape).unsqueeze(-1)
        tilted = _primitives.tilt(given.logits, given.k, "auto")
        self._tilted, self._k = (
            x.expand(num_samples, *x.shape).flatten(0, 1) for x in (tilted, given.k)
        )

    def product(self, v: Tensor, z: Tensor | None = None, *, plan: str = "exact") -> Tensor:
        """Half the sum over swaps of r_ij (e_i - e_j)(v_i - v_j), at z or at other subsets."""
        z = self.z if z is None else z
        deviations = z - self._marginals
        if plan == "product":
            return product_plan(deviations, v)
        v = torch.where(deviations == 0, 0, v)
        return 0.5 * (deviations.abs() * v - self._exchange(z, v))

    def sparse_product(self, v: Tensor, *, plan: str = "exact") -> Tensor:
        """The transpose of the sum over swaps of r_ij (e_i - e_j) v_i, which asks for v at chosen
        items only: zero at all others."""
        if plan == "product":
            product = sparse_product_plan(self.deviations, v)
        else:
            v = v.expand(self.z.shape)
            product = self.deviations * v - self._exchange(self.z, v)
        # Whatever gradient the other items have, NaN included, goes nowhere.
        return torch.where(self.deviations > 0, product, 0)

    def draw(self, generator: torch.Generator | None) -> Tensor:
        """e_j - e_i for one swap of every row, drawn in proportion to the rates; zero where there
        is none: (samples, ..., n)."""
        removed = _one_of(self.deviations.clamp(min=0), generator)
        rates = self._exchange(self.z, removed).clamp(min=0)
        added = _one_of(torch.where(self.deviations < 0, rates, 0), generator)
        return added - removed * added.sum(-1, keepdim=True)

    def total(self, z: Tensor) -> Tensor:
        """The sum of the rates of all swaps at z, (samples, ..., 1)."""
        return (z - self._marginals).clamp(min=0).sum(-1, keepdim=True)

    def chosen(self) -> Iterator[Tensor]:
        """The chosen items of every row, one after another, one-hot; zeros for rows with fewer."""
        count = self.z.cumsum(-1, dtype=torch.float32) * self.z
        for rank in range(1, int(self.sizes.amax()) + 1 if self.sizes.numel() else 1):
            yield (count == rank).to(self.z.dtype)

    def rows(self, losses: Tensor) -> Iterator[Tensor]:
        """The rows that share a loss, one after another: 1 for the row, 0 elsewhere, (..., 1)."""
        shared = self.z.shape[losses.dim() : -1]
        count = shared.numel()
        which = torch.arange(count, device=self.z.device).reshape(*shared, 1)
        for row in range(count):
            yield (which == row).to(self.z.dtype)

    def difference(self, here: Tensor, there: Tensor) -> Tensor:
        """The difference of two losses, for each of the rows that share them: (..., 1). Losses may
        be of any type."""
        dtype = torch.promote_types(there.dtype, self.z.dtype)
        change = here.detach().to(dtype) - there.detach().to(dtype)
        missing = self.z.dim() - change.dim()
        return change.reshape(*change.shape, *(1,) * missing).to(self.z.dtype)

    def surrogate(self, losses: Tensor, estimate: Tensor) -> Tensor:
        """The mean loss, with the mean estimate for the gradient of the logits."""
        return (losses.sum() + (estimate.detach() * self.direction()).sum()) / len(losses)

    def direction(self) -> Tensor:
        """Zero, with the gradient of the finite logits: (..., n)."""
        return torch.where(self.logits.isfinite(), only_gradient(self.logits), 0)

    def _exchange(self, z: Tensor, v: Tensor) -> Tensor:
        """sum_j r_ij v_j at chosen items i, sum_i r_ij v_i at the others: (samples, ..., n)."""
        rows = (x.reshape(self._tilted.shape).to(self._tilted) for x in (z, v))
        return _primitives.exchange(self._tilted, self._k, *rows).reshape(v.shape).to(v.dtype)


def _one_of(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """One-hot (..., n), in proportion to the weights; zero where they are."""
    sums = weights.cumsum(-1)
    device = weights.device if generator is None else generator.device
    u = torch.rand(weights.shape[:-1], generator=generator, device=device, dtype=torch.float64)
    aim = u.to(weights).unsqueeze(-1) * sums[..., -1:]
    hit = (sums > aim) & (weights > 0)
    return (hit & (hit.cumsum(-1) == 1)).to(weights.dtype)
