"""Rows of logits with the sizes their subsets may have: checked, broadcast and flattened."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import Problem, check_logits, problem, reads_values
from ksubset._checks import Names
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
    last = own.first + count - 1
    if _all_finite(theta) and _within(sizes, own.log_weights, last, given.n):
        return found
    forced, allowed = limits(theta)
    counts = found.counts
    possible = (counts >= forced.unsqueeze(-1)) & (counts <= allowed.unsqueeze(-1))
    if reads_values(logits) if validate_args is None else validate_args:
        _check_values(found, possible, forced, allowed, names)
    return found._replace(log_weights=torch.where(possible, weights, -torch.inf))


def _all_finite(theta: Tensor) -> bool:
    """As most rows are, which leaves nothing to check or to take out; told at once on a CPU."""
    if not reads_values(theta) or not theta.numel():
        return False
    low, high = torch.aminmax(theta.detach())
    return math.isfinite(float(low)) and math.isfinite(float(high))


def _within(sizes: Sizes, log_weights: Tensor, last: int, n: int) -> bool:
    """Whether every row of n items has some of the sizes, as far as can be seen at once."""
    if isinstance(sizes, Between):
        return last <= n and isinstance(sizes.high, int | None)
    if last > n or not reads_values(log_weights):
        return False
    return bool((log_weights.detach() > -torch.inf).any(-1).all())


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
