"""The distribution over several sizes as a mixture of k-subset distributions, one for each size.

Right for any weights, and differentiable in them too: everything is put together from the
primitives for one size, in the widest type. Time and memory grow with the number of sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import Problem
from ksubset.functional import _primitives
from ksubset.functional._size_problem import SizedProblem, limits


class Mixture(NamedTuple):
    """Every row's distribution of the size, and the k-subset distribution within each size."""

    problem: SizedProblem
    method: str
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

    def product(self, v: Tensor) -> Tensor:
        """Cov v, (rows, n), by total covariance: within sizes and between them."""
        chances, mu = self.chances.unsqueeze(-1), self.mu
        flat = self.rows.logits.shape
        each = v.to(mu.dtype).unsqueeze(1).expand(mu.shape)
        within = _primitives.covariance_product(
            self.tilted.reshape(flat), self.rows.size, each.reshape(flat), self.method
        ).reshape(mu.shape)
        distance = mu - (chances * mu).sum(-2, keepdim=True)
        between = distance * (distance * each).sum(-1, keepdim=True)
        return (chances * (within + between)).sum(-2)

    def matrix(self) -> Tensor:
        """Cov, (rows, n, n), by n products."""
        units = torch.eye(self.mu.shape[-1], dtype=self.mu.dtype, device=self.mu.device)
        columns = [self.product(unit.expand(len(self.mu), -1)) for unit in units]
        return torch.stack(columns, -1)

    def entropy(self) -> Tensor:
        """That of the size, and the mean of those within each size: (rows,)."""
        chances = self.chances
        within = _primitives.entropy(self.rows.logits, self.rows.size, self.method)[0]
        surprise = torch.where(self.log_sizes == -torch.inf, 0, -self.log_sizes)
        return (chances * (surprise + within.reshape(chances.shape))).sum(-1)

    def log_prob(self, row: Tensor, z: Tensor, size: Tensor) -> Tensor:
        """log P(|z| = size) + log p(z | size) of z (values, n) in rows (values,)."""
        at = (size - self.problem.first).clamp(0, self.log_sizes.shape[-1] - 1)
        known = (x[row, at] for x in (self.tilted, self.mu, self.log_mass))
        z = z.to(self.mu.dtype).unsqueeze(0)
        within = _primitives.log_outcome(*known, size, z, self.method).reshape(-1)
        return self.log_sizes[row, at] + within


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
        method,
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
