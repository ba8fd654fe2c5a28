"""The law over several sizes as a mixture of k-subset distributions, one for each size.

Right for any weights, and differentiable in them too: everything is put together from the
primitives for one size, in the widest type. Time and memory grow with the number of sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import (
    Names,
    Problem,
    check_logits,
    problem,
    reads_values,
    values_can_be_read,
)
from ksubset.functional import _primitives
from ksubset.kernels.coins import widest
from ksubset.sizes import Between, Sizes


class SizedProblem(NamedTuple):
    """Rows of logits and their sizes ``first``, ``first + 1``, ..."""

    given: Problem  # its k is nobody's
    sizes: Sizes
    first: int
    log_weights: Tensor  # (rows, sizes), in the widest type; -inf for what cannot be
    random: bool  # the log-weights are log-probabilities

    @property
    def counts(self) -> Tensor:
        """(sizes,)."""
        size = self.log_weights.shape[-1]
        return torch.arange(self.first, self.first + size, device=self.log_weights.device)


_NAMES = Names()


def sized_problem(
    logits: Tensor,
    sizes: Sizes,
    mask: Tensor | None = None,
    *,
    names: Names = _NAMES,
    more: dict[str, tuple[int, ...]] | None = None,
    validate_args: bool | None = None,
) -> SizedProblem:
    """Check, broadcast and flatten."""
    check_logits(names.logits, logits)
    shapes = {names.k: tuple(sizes.batch_shape)} if sizes.batch_shape else {}
    given = problem(
        logits, 0, mask, names=names, more={**shapes, **(more or {})}, validate_args=False
    )
    theta = given.logits
    own = sizes.rows(given.n, widest(theta), theta.device, names.k)
    count = own.log_weights.shape[-1]
    weights = own.log_weights.expand(*given.batch_shape, count).reshape(len(theta), count)
    found = SizedProblem(given, sizes, own.first, weights, own.given)
    forced, allowed = limits(theta)
    counts = found.counts
    possible = (counts >= forced.unsqueeze(-1)) & (counts <= allowed.unsqueeze(-1))
    if reads_values(logits) if validate_args is None else validate_args:
        _check_values(found, possible, forced, allowed, names)
    return found._replace(log_weights=torch.where(possible, weights, -torch.inf))


def limits(theta: Tensor) -> tuple[Tensor, Tensor]:
    """How many items must be chosen, and how many may be: (rows,) each."""
    theta = theta.detach()
    return (theta == torch.inf).sum(-1), (theta > -torch.inf).sum(-1)


def _check_values(
    found: SizedProblem, possible: Tensor, forced: Tensor, allowed: Tensor, names: Names
) -> None:
    """Raise for NaN logits and for rows that have no subset of any of the sizes."""
    given = found.given
    if given.logits.is_meta:
        return
    bad = given.logits.isnan().any(-1)
    if bool(bad.any()):
        raise ValueError(f"{names.logits} must not be NaN, got NaN in {_where(bad, given)}")
    wanted = found.log_weights > -torch.inf
    if isinstance(found.sizes, Between):
        for bound in found.sizes.bounds(given.n, given.logits.device, names.k):
            if isinstance(bound, Tensor) and bool((bound > given.n).any()):
                raise ValueError(
                    f"{names.k} must not go beyond the number of items n = {given.n}, "
                    f"got {found.sizes!r} with {int(bound.max())}"
                )
    # Sizes that are given probabilities cannot do without one that is not possible.
    wrong = wanted & ~possible if found.random else ~(wanted & possible)
    bad = wrong.any(-1) if found.random else wrong.all(-1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0, 0])
        low, high = int(forced[row]), int(allowed[row])
        what = "have only sizes" if found.random else "have a size"
        raise ValueError(
            f"{names.k} must {what} between the number of items with a logit of +inf, {low}, and "
            f"the number of allowed items, {high}, got {found.sizes!r} in {_where(bad, given)}"
        )


def _where(bad: Tensor, given: Problem) -> str:
    if not given.batch_shape:
        return "the only row"
    row = torch.unravel_index(bad.nonzero()[0, 0], given.batch_shape)
    return f"row {tuple(int(i) for i in row)} ({int(bad.sum())} of {bad.numel()} rows)"


class Mixture(NamedTuple):
    """Every row's law of the size, and the k-subset law within each size."""

    problem: SizedProblem
    rows: Problem  # (rows * sizes): every row with every size, in the widest type
    log_sizes: Tensor  # log P(|z| = j), (rows, sizes)
    total: Tensor  # log-partition over the finite logits, (rows,)
    totals: Tensor  # each size's, (rows, sizes)
    mu: Tensor  # (rows, sizes, n)
    tilted: Tensor  # (rows, sizes, n)
    log_mass: Tensor  # (rows, sizes)

    @property
    def chances(self) -> Tensor:
        """P(|z| = j), (rows, sizes)."""
        return self.log_sizes.exp()

    def marginals(self) -> Tensor:
        """(rows, n)."""
        return (self.chances.unsqueeze(-1) * self.mu).sum(-2)


def mixture(found: SizedProblem, method: str) -> Mixture:
    """Infer every row with every size."""
    theta = found.given.logits.to(found.log_weights.dtype)
    rows = each_size(found, theta)
    shape = found.log_weights.shape
    total, mu, tilted, log_mass, _ = _primitives.infer(rows.logits, rows.size, method)
    totals = total.reshape(shape)
    possible = found.log_weights > -torch.inf
    if found.random:
        impossible = found.log_weights.exp().sum(-1, keepdim=True) < 0.5
        joint = found.log_weights.masked_fill(impossible | theta.isnan().any(-1, True), torch.nan)
        whole = torch.zeros_like(joint[..., 0])
    else:
        joint = torch.where(possible, found.log_weights + totals, -torch.inf)
        joint = joint.masked_fill(~possible.any(-1, keepdim=True), torch.nan)
        whole = joint.logsumexp(-1)
    return Mixture(
        found,
        rows,
        joint - whole.unsqueeze(-1),
        whole,
        totals,
        mu.reshape(*shape, found.given.n),
        tilted.reshape(*shape, found.given.n),
        log_mass.reshape(shape),
    )


def each_size(found: SizedProblem, theta: Tensor) -> Problem:
    """Every row with every size; sizes that cannot be are moved to one that can."""
    rows, sizes = found.log_weights.shape
    forced, allowed = limits(theta)
    k = found.counts.expand(rows, sizes)
    k = torch.minimum(torch.maximum(k, forced.unsqueeze(-1)), allowed.unsqueeze(-1))
    n = found.given.n
    wide = theta.unsqueeze(1).expand(rows, sizes, n).reshape(rows * sizes, n)
    shape = torch.Size((*found.given.batch_shape, sizes))
    return Problem(wide, k.reshape(-1), shape, theta.dtype)


def may_read(x: Tensor) -> bool:
    """Whether values may decide what is computed."""
    return x.device.type == "cpu" and values_can_be_read()
