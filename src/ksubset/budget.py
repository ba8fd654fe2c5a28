"""One total for the subsets of several rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import check_sample_shape, integer, reads_values
from ksubset.functional import _primitives, _size_primitives
from ksubset.functional._attach import attach
from ksubset.functional._size_problem import SizedProblem, limits, sized_problem
from ksubset.functional.sampling import _seeds
from ksubset.kernels import tilt, totals
from ksubset.kernels.coins import can_synchronise, widest
from ksubset.sizes import Between, Sizes

__all__ = ["SharedBudget"]

_MOST_STEPS = 50


class SharedBudget:
    r"""Subsets of several rows with sizes of their own and one total over all rows,
    :math:`p(z) \propto \exp(\sum_{ri} \theta_{ri} z_{ri})` where each :math:`|z_r|` is one of its
    row's sizes and :math:`\sum_r |z_r|` is the total.

    Exact: the sizes of the rows are drawn first, given their total, and then a subset of each.

    Args:
        logits: (..., rows, n); -inf forbids an item, +inf forces it.
        total: how many items all rows have together: an int, or integers broadcast over (...).
        sizes: of each row: a range such as ``at_most(16)``, or concave weights; bounds may have an
            entry for every row.
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values; None: those of eager CPU tensors.

    Examples:
        >>> budget = SharedBudget(torch.randn(8, 20), 24, at_most(5))
        >>> z = budget.sample((100,))
        >>> z.sum((-2, -1)).unique(), bool(z.sum(-1).max() <= 5)
        (tensor([24.]), True)
        >>> budget.size_probabilities().shape
        torch.Size([8, 21])
    """

    def __init__(
        self,
        logits: Tensor,
        total: int | Tensor,
        sizes: Sizes,
        *,
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(sizes, Sizes) or not sizes.concave:
            raise ValueError(
                "sizes must be a range such as between(0, 16), or have concave weights, "
                f"got {sizes!r}"
            )
        found = sized_problem(logits, sizes, mask, validate_args=validate_args)
        shape = found.given.batch_shape
        if not shape:
            raise ValueError(
                f"logits must have shape (..., rows, n), got shape {tuple(logits.shape)}"
            )
        self._found = found
        self._shape = shape
        self._total = _total(total, shape[:-1], logits.device)
        least, most = _reach(found, shape)
        check = reads_values(logits) if validate_args is None else validate_args
        bad = (self._total < least) | (self._total > most)
        if check and bool(bad.any()):
            at = int(bad.nonzero()[0])
            raise ValueError(
                f"total must be between the least and the most that the sizes {sizes!r} of all "
                f"rows add up to, {int(least[at])} and {int(most[at])}, got {int(self._total[at])}"
            )
        self._shift = self._tilt()

    def _tilt(self) -> Tensor:
        """What to add to the logits so that sizes are expected to add up to the total: (batch,)."""
        found, shape = self._found, self._shape
        with torch.no_grad():
            batch, rows = len(self._total), shape[-1]
            theta = found.given.logits.detach()
            flat = theta.reshape(batch, rows * found.given.n)
            forced, allowed = limits(flat)
            k = torch.minimum(torch.maximum(self._total, forced + 1), allowed - 1).clamp(min=0)
            start = tilt(flat, k, "auto") - flat
            free = start.isfinite()
            shift = torch.where(free, start, 0).sum(-1) / free.sum(-1).clamp(min=1)
            shift = shift.to(widest(theta))
            low, high = (torch.full_like(shift, x) for x in (-torch.inf, torch.inf))
            for _ in range(_MOST_STEPS):
                chances = self._leaves(shift)[2]
                counts = found.counts.to(chances.dtype)
                mean = (chances * counts).sum(-1, keepdim=True)
                variance = (chances * (counts - mean) ** 2).sum((-2, -1))
                excess = mean.sum((-2, -1)) - self._total
                low = torch.where(excess < 0, shift, low)
                high = torch.where(excess > 0, shift, high)
                close = excess.abs() <= 0.1 * variance.sqrt().clamp(min=1e-3) + 1e-9
                if can_synchronise(close) and bool(close.all()):
                    break
                move = (excess / variance.clamp(min=1e-6)).clamp(-2, 2)
                newton = shift - move
                middle = torch.where(low.isfinite() & high.isfinite(), (low + high) / 2, newton)
                inside = (newton > low) & (newton < high)
                shift = torch.where(close, shift, torch.where(inside, newton, middle))
        return shift

    def _leaves(self, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every row by itself, with shifted logits: log-partitions (batch, rows), logits (all rows,
        n), and the probabilities of sizes (batch, rows, sizes), in the widest type."""
        found, rows = self._found, self._shape[-1]
        theta = found.given.logits.to(shift.dtype)
        each = shift.unsqueeze(-1).expand(-1, rows).reshape(-1, 1)
        theta = torch.where(theta.isinf(), theta, theta + each)
        flat = isinstance(found.sizes, Between)
        whole, _, chances, *_ = _size_primitives.infer(
            theta, found.log_weights, found.first, flat, "auto"
        )
        return whole.reshape(-1, rows), theta, chances.reshape(-1, rows, chances.shape[-1])

    def _rest(self) -> Tensor:
        """The total less what every row has in any case, (batch,)."""
        return self._total - self._shape[-1] * self._found.first

    def _posterior(self) -> tuple[Tensor, Tensor, Tensor]:
        """The probabilities of sizes given the total (batch, rows, sizes), shifted logits, and the
        log-weights with which each row has them by itself."""
        _, theta, chances = self._leaves(self._shift)
        others = totals.outside(totals.levels(chances), self._rest())[:, : self._shape[-1]]
        joint = chances * others
        posterior = joint / joint.sum(-1, keepdim=True)
        weights = self._found.log_weights + _log(others).reshape(self._found.log_weights.shape)
        return posterior, theta, weights

    def log_partition(self) -> Tensor:
        """The log of the sum of exp(theta . z) over all choices with this total: (...)."""
        whole, _, chances = self._leaves(self._shift)
        root = totals.levels(chances)[-1][:, 0]
        mass = root.gather(-1, self._rest().unsqueeze(-1)).squeeze(-1)
        forced = (self._found.given.logits == torch.inf).sum(-1).reshape(whole.shape).sum(-1)
        value = whole.sum(-1) + mass.log() - self._shift * (self._total - forced)
        return value.reshape(self._shape[:-1]).to(self._found.given.logits.dtype)

    def size_probabilities(self) -> Tensor:
        """The probabilities of every row's sizes 0 ... n, given the total: (..., rows, n + 1)."""
        found, posterior = self._found, self._posterior()[0]
        rest = found.given.n - found.first - posterior.shape[-1] + 1
        padded = torch.nn.functional.pad(posterior, (found.first, rest))
        return padded.reshape(*self._shape, -1).to(found.given.logits.dtype)

    def marginals(self) -> Tensor:
        """The inclusion probabilities, (..., rows, n); they sum to the total."""
        _, theta, weights = self._posterior()
        mu = _size_primitives.infer(theta, weights, self._found.first, False, "auto")[1]
        return self._found.given.vector(mu)

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Exact samples, (*sample_shape, ..., rows, n), without a gradient.

        Args:
            sample_shape: the leading shape of several samples.
            generator: the source of randomness; the same seed gives the same samples.
        """
        sample_shape = check_sample_shape(sample_shape)
        given, rows = self._found.given, self._shape[-1]
        samples = math.prod(sample_shape)
        with torch.no_grad():
            found = totals.levels(self._leaves(self._shift)[2])
            seeds = _seeds((samples, len(given.logits)), given.logits.device, generator)
            first = seeds.reshape(samples, -1, rows)[..., 0]
            rest = self._rest().expand(samples, -1)
            size = totals.sample(found, rest, first)[..., :rows] + self._found.first
            each = given.logits.detach().expand(samples, -1, -1).reshape(-1, given.n)
            own = seeds.reshape(1, -1)
            z = _primitives.sample(each, size.reshape(-1), own, "auto")[0]
        z = given.vector(z.reshape(samples, *given.logits.shape))
        return z.reshape(*sample_shape, *z.shape[1:])

    def simple(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Exact samples with SIMPLE's gradient, that of the marginals: all rows' items compete.

        Args:
            sample_shape: the leading shape of several samples.
            generator: the source of randomness; the same seed gives the same samples.
        """
        z = self.sample(sample_shape, generator)
        return attach(z, self.marginals().expand(z.shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability of a choice, (...); -inf for another total or sizes that cannot be.

        Args:
            value: 0/1, (..., rows, n).
        """
        given = self._found.given
        logits = given.vector(given.logits)
        own = functional.log_prob(logits, self._found.sizes, value, validate_args=False)
        total = (value != 0).sum((-2, -1)) == self._total.reshape(self._shape[:-1])
        sizes = functional.log_partition(logits, self._found.sizes, validate_args=False)
        found = own.sum(-1) + (sizes.sum(-1) - self.log_partition())
        return torch.where(total, found, -torch.inf)

    def __repr__(self) -> str:
        return (
            f"SharedBudget(logits: {(*self._shape, self._found.given.n)}, "
            f"sizes: {self._found.sizes!r})"
        )


def _log(x: Tensor) -> Tensor:
    """-inf where rounding has left nothing that could be relied on."""
    kept = x > 1e-13
    return torch.where(kept, torch.log(torch.where(kept, x, 1)), -torch.inf)


def _total(total: Any, shape: torch.Size, device: torch.device) -> Tensor:
    if not isinstance(total, Tensor):
        try:
            total = torch.tensor(integer(total), device=device)
        except TypeError:
            raise TypeError(f"total must be an int or an integer tensor, got {total!r}") from None
    if total.is_floating_point() or total.dtype == torch.bool:
        raise TypeError(f"total must be an int or an integer tensor, got {total.dtype}")
    try:
        return total.to(device, torch.int64).expand(shape).reshape(-1)
    except RuntimeError:
        raise ValueError(
            f"total must broadcast to the shape {tuple(shape)} of the logits without rows and "
            f"items, got shape {tuple(total.shape)}"
        ) from None


def _reach(found: SizedProblem, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """The least and the most that sizes of all rows add up to: (batch,)."""
    possible = found.log_weights > -torch.inf
    n = found.given.n
    low = torch.where(possible, found.counts, n).amin(-1)
    high = torch.where(possible, found.counts, 0).amax(-1)
    return low.reshape(-1, shape[-1]).sum(-1), high.reshape(-1, shape[-1]).sum(-1)
