"""The distribution over several sizes of concave weights, in one pass of the spectral method.

Time and memory are those of one size, whatever the number of sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ksubset.functional import _size_primitives
from ksubset.functional._attach import attach
from ksubset.functional._size_problem import SizedProblem
from ksubset.kernels.coins import Coins, log_outcome, log_outcomes, wide_sum


class Nodes(NamedTuple):
    """The results of one pass, for all rows."""

    problem: SizedProblem
    method: str
    total: Tensor  # log-partition over the finite logits, (rows,)
    mu: Tensor  # (rows, n)
    chances: Tensor  # P(|z| = j), (rows, sizes)
    tilted: Tensor  # (rows, n)
    weights: Tensor  # of sizes beside the tilted logits, (rows, sizes)
    centre: Tensor  # (rows,)
    log_mass: Tensor  # log sum_j e^weight(j) P(S = j) of the tilted coins, (rows,)

    def batched(self) -> Nodes:
        """With the batch's shape in place of rows."""
        shape = self.problem.given.batch_shape
        parts = (x.reshape((*shape, *x.shape[1:])) for x in self[2:])
        return Nodes(self.problem, self.method, *parts)

    def marginals(self) -> Tensor:
        """(rows, n)."""
        return self.mu

    def product(self, v: Tensor) -> Tensor:
        """Cov v, (rows, n)."""
        law = (self.tilted, self.weights, self.centre, self.problem.first)
        return _size_primitives.items_product(*law, v.to(self.weights.dtype), self.method)

    def matrix(self) -> Tensor:
        """Cov, (rows, n, n), by n products."""
        rows, n = self.mu.shape
        units = torch.eye(n, dtype=self.mu.dtype, device=self.mu.device)
        each = self._replace(
            tilted=_repeated(self.tilted, n),
            weights=_repeated(self.weights, n),
            centre=_repeated(self.centre, n),
        )
        return each.product(units.expand(rows, n, n).reshape(-1, n)).reshape(rows, n, n)

    def entropy(self) -> Tensor:
        """log Z - E w(|z|) + the cross-entropy of the marginals with the tilted coins: (rows,)."""
        t, weights = (torch.where(x.isfinite(), x, 0) for x in (self.tilted, self.weights))
        surrogate = self.total - (t * self.mu).sum(-1) - (weights * self.chances).sum(-1)
        coins = Coins.from_tilted(self.tilted.detach(), self.centre)
        mu = self.mu.detach()
        rarer = torch.where(coins.up, 1 - mu, mu)
        mean = wide_sum(weights.detach() * self.chances.detach())
        return attach(coins.entropy(self.log_mass - mean, rarer), surrogate)

    def log_prob(self, row: Tensor, z: Tensor, size: Tensor) -> Tensor:
        """Of z (values, n) in rows (values,)."""
        at = (size - self.problem.first).clamp(0, self.weights.shape[-1] - 1)
        weight = self.weights[row, at]
        exact = log_outcome(self.tilted.detach()[row], z > 0) + weight.detach()
        exact = exact - self.log_mass[row]
        t = torch.where(self.tilted.isfinite(), self.tilted, 0)
        finite = torch.where(weight.isfinite(), weight, 0)
        surrogate = (t[row] * z.to(t.dtype)).sum(-1) + finite - self.total[row]
        return attach(exact.to(t.dtype), surrogate)


def _repeated(x: Tensor, n: int) -> Tensor:
    return x.unsqueeze(1).expand(len(x), n, *x.shape[1:]).reshape(-1, *x.shape[1:])


def nodes(found: SizedProblem, flat: bool, method: str) -> Nodes:
    """Infer from the rows; ``flat`` says that no size has another weight than another."""
    parts = _size_primitives.infer(found.given.logits, found.log_weights, found.first, flat, method)
    return Nodes(found, method, *parts)


def product(found: SizedProblem, flat: bool, v: Tensor, method: str) -> Tensor:
    """Cov v, (rows, n), without what else :func:`nodes` infers."""
    first = found.first
    law = _size_primitives.law(found.given.logits, found.log_weights, first, flat, method)
    return _size_primitives.items_product(*law, first, v.to(law[1].dtype), method)


def divergence(p: Nodes, q: Nodes) -> Tensor:
    """KL(p || q) in the batch shape of both, over the same sizes.

    Every term is small where p and q are close. The gradients are those of the surrogate:
    Cov_p with the difference of both, and the differences of the moments.
    """
    p, q = p.batched(), q.batched()
    t_p, t_q, w_p, w_q = p.tilted, q.tilted, p.weights, q.weights
    heads_p, tails_p = log_outcomes(t_p.detach())
    heads_q, tails_q = log_outcomes(t_q.detach())
    mu, chances = p.mu.detach(), p.chances.detach()
    terms = mu * (heads_p - heads_q) + (1 - mu) * (tails_p - tails_q)
    apart = torch.where(chances > 0, w_p.detach() - w_q.detach(), 0)
    value = wide_sum(terms) + wide_sum(chances * apart) + q.log_mass - p.log_mass
    never, always = t_q == -torch.inf, t_q == torch.inf
    outside = ((never & (t_p > -torch.inf)) | (always & (t_p < torch.inf))).any(-1)
    value = torch.where(outside & ~value.isnan(), torch.inf, value.clamp_min(0))
    distance = torch.where(t_p.isfinite() & t_q.isfinite(), t_p - t_q, 0)
    between = torch.where(w_p.isfinite() & w_q.isfinite(), w_p - w_q, 0)
    surrogate = (distance * p.mu).sum(-1) + (between * p.chances).sum(-1) - p.total + q.total
    return attach(value.to(mu.dtype), surrogate)
