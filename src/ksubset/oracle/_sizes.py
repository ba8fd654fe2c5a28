"""Enumeration of the subsets of all sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.oracle import _exact


class SizedEnumeration:
    r"""The distribution :math:`p(z) \propto \exp(\theta \cdot z + c_{|z|})` over subsets of any
    size, one subset after the other.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        log_weights: :math:`c_0, \dots, c_n`, (n + 1,); -inf for a size that is not possible.

    Attributes:
        support: the subsets, float64 (2^n, n), in ascending order of their sizes.
        sizes: their sizes, int64 (2^n,).
        log_probabilities: float64 (2^n,), -inf for a subset that is impossible.

    Examples:
        >>> uniform = oracle.SizedEnumeration(torch.zeros(3), torch.tensor([0.0, 0.0, 0.0, 0.0]))
        >>> uniform.size_probabilities()
        tensor([0.1250, 0.3750, 0.3750, 0.1250], dtype=torch.float64)
    """

    def __init__(self, logits: Tensor, log_weights: Tensor) -> None:
        n = len(logits)
        parts = [_exact._scores(logits, k) for k in range(n + 1)]
        weights = log_weights.detach().to("cpu", torch.float64)
        self.support = torch.cat([z for _, _, z in parts])
        self.sizes = self.support.sum(-1).long()
        scores = torch.cat([own + constant for own, constant, _ in parts]) + weights[self.sizes]
        self._log_partition = scores.logsumexp(0)
        self.log_probabilities = scores.log_softmax(0)
        self.n = n

    @classmethod
    def with_probabilities(cls, logits: Tensor, probabilities: Tensor) -> SizedEnumeration:
        """The distribution whose size j has a given probability, with the k-subset distribution
        within each size.

        Args:
            logits: (n,).
            probabilities: (n + 1,), of the sizes 0 ... n.
        """
        totals = [_exact.log_partition(logits, k) for k in range(len(logits) + 1)]
        weights = probabilities.detach().to("cpu", torch.float64).log() - torch.stack(totals)
        return cls(logits, torch.where(probabilities.cpu() > 0, weights, -torch.inf))

    @property
    def probabilities(self) -> Tensor:
        """float64 (2^n,)."""
        return self.log_probabilities.exp()

    def log_partition(self) -> Tensor:
        """The log of the sum of exp(theta . z + c), over finite logits only."""
        return self._log_partition

    def size_probabilities(self) -> Tensor:
        """P(|z| = j), float64 (n + 1,)."""
        return torch.zeros(self.n + 1).double().index_add(0, self.sizes, self.probabilities)

    def marginals(self) -> Tensor:
        """P(z_i = 1), float64 (n,)."""
        return self.probabilities @ self.support

    def pairwise_marginals(self) -> Tensor:
        """P(z_i = z_j = 1), float64 (n, n)."""
        return torch.einsum("s,si,sj->ij", self.probabilities, self.support, self.support)

    def covariance(self) -> Tensor:
        """Cov(z_i, z_j), float64 (n, n)."""
        z = self.support - self.marginals()
        return torch.einsum("s,si,sj->ij", self.probabilities, z, z)

    def third_cumulant(self) -> Tensor:
        """The third central moments, float64 (n, n, n)."""
        z = self.support - self.marginals()
        return torch.einsum("s,si,sj,sl->ijl", self.probabilities, z, z, z)

    def entropy(self) -> Tensor:
        """In nats."""
        return torch.special.entr(self.probabilities).sum()

    def kl_divergence(self, other: SizedEnumeration) -> Tensor:
        """KL(self || other), in nats; +inf where self may draw what other cannot.

        Args:
            other: a distribution over the same items.
        """
        log_p, log_q = self.log_probabilities, other.log_probabilities
        return torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0.0).sum()
