"""The paper's dynamic programme in extended precision."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class LogSpaceDP:
    r"""The paper's dynamic programme over prefixes, in log space and extended precision.

    ``prefix[i, j]`` is the log-sum of :math:`\exp(\theta \cdot z)` over the choices of j among the
    first i items, ``suffix[i, j]`` the one over completions of such a choice to k items. For
    finite logits of any size; O(n k) time and memory. With weights over sizes, it is the
    distribution :math:`p(z) \propto \exp(\theta \cdot z + c_{|z|})` over subsets of up to k items.

    Args:
        logits: (n,), finite.
        k: the size of the subsets.
        log_weights: :math:`c_0, \dots, c_k`, if smaller subsets are possible too: (k + 1,).

    Attributes:
        k: the size of the subsets.
        prefix: (n + 1, k + 1), of numpy's widest floating point type.
        suffix: (n + 1, k + 2), likewise; the last column is -inf.

    Examples:
        >>> exact = oracle.LogSpaceDP(torch.zeros(1000), 3)
        >>> exact.marginals()[:2]
        tensor([0.0030, 0.0030], dtype=torch.float64)
        >>> round(exact.entropy(), 4)  # log of 166167000 equally likely subsets
        18.9285
        >>> fast = KSubset(3, logits=torch.zeros(1000).double())
        >>> abs(float(fast.entropy()) - exact.entropy()) < 1e-11
        True
    """

    def __init__(self, logits: Tensor, k: int, log_weights: Tensor | None = None) -> None:
        theta = logits.detach().to("cpu", torch.float64).numpy().astype(np.longdouble)
        n = len(theta)
        self.k = k
        self.prefix = np.full((n + 1, k + 1), -np.inf, dtype=np.longdouble)
        self.suffix = np.full((n + 1, k + 2), -np.inf, dtype=np.longdouble)
        self.prefix[0, 0] = 0
        self.suffix[n, k] = 0
        if log_weights is not None:
            self.suffix[n, :-1] = log_weights.detach().to("cpu", torch.float64).numpy()
        for i in range(n):
            self.prefix[i + 1] = self.prefix[i]
            np.logaddexp(
                self.prefix[i, 1:], self.prefix[i, :-1] + theta[i], out=self.prefix[i + 1, 1:]
            )
        for i in reversed(range(n)):
            self.suffix[i, :-1] = np.logaddexp(
                self.suffix[i + 1, :-1], self.suffix[i + 1, 1:] + theta[i]
            )
        self._theta = theta
        self._log_partition = np.logaddexp.reduce(self.prefix[n] + self.suffix[n, :-1])
        self._one_size = log_weights is None
        # P(i-th item chosen, j chosen before it)
        with np.errstate(invalid="ignore"):
            self._chosen = np.exp(
                self.prefix[:-1] + theta[:, None] + self.suffix[1:, 1:] - self._log_partition
            )

    def log_partition(self) -> float:
        r"""The log-partition function :math:`A = \log \sum_z \exp(\theta \cdot z)`."""
        return float(self._log_partition)

    def marginals(self) -> Tensor:
        """The inclusion probabilities P(z_i = 1), float64 (n,)."""
        return torch.from_numpy(self._chosen.sum(1).astype(np.float64))

    def size_probabilities(self) -> Tensor:
        """P(|z| = j) for j = 0 ... k, float64 (k + 1,)."""
        return torch.from_numpy(self._sizes().astype(np.float64))

    def _sizes(self) -> np.ndarray:
        return np.exp(self.prefix[-1] + self.suffix[-1, :-1] - self._log_partition)

    def entropy(self) -> float:
        """The entropy in nats, by the paper's recurrence
        H[i, j] = H_b(taken) + taken H[i-1, j-1] + (1 - taken) H[i-1, j],
        which adds up non-negative terms where A - theta . mu would cancel."""
        total = np.zeros(self.k + 1, dtype=np.longdouble)
        for i in range(len(self._theta)):
            taken = self._taken_before(i)
            with np.errstate(divide="ignore", invalid="ignore"):
                coin = -taken * np.log(taken) - (1 - taken) * np.log1p(-taken)
            shifted = np.concatenate([[0], total[:-1]])
            total = np.nan_to_num(coin) + taken * shifted + (1 - taken) * total
        sizes = self._sizes()
        with np.errstate(divide="ignore", invalid="ignore"):
            of_size = np.nan_to_num(-sizes * np.log(sizes))
        return float((of_size + sizes * total).sum())

    def _taken_before(self, i: int) -> np.ndarray:
        """P(item i chosen | j chosen among the first i + 1), for every j."""
        with np.errstate(invalid="ignore"):
            taken = np.exp(self.prefix[i, :-1] + self._theta[i] - self.prefix[i + 1, 1:])
        return np.concatenate([[0], np.nan_to_num(taken)])

    def covariance_product(self, v: Tensor) -> Tensor:
        """Cov v, from E[v . z | j chosen so far], which needs neither logarithms nor signs.

        Args:
            v: (n,).

        Returns:
            float64 (n,).
        """
        weights = v.detach().to("cpu", torch.float64).numpy().astype(np.longdouble)
        mu = self._chosen.sum(1)
        if self._one_size:  # a constant does not matter
            weights = weights - weights @ mu / max(self.k, 1)
        n, width = len(weights), self.k + 1
        before = np.zeros((n + 1, width), dtype=np.longdouble)
        after = np.zeros((n + 1, width + 1), dtype=np.longdouble)
        with np.errstate(invalid="ignore"):
            for i in range(n):
                taken = self._taken_before(i)
                shifted = np.concatenate([[0], before[i, :-1] + weights[i]])
                before[i + 1] = taken * shifted + (1 - taken) * before[i]
            for i in reversed(range(n)):
                taken = np.exp(self.suffix[i + 1, 1:] + self._theta[i] - self.suffix[i, :-1])
                taken = np.nan_to_num(taken)
                after[i, :-1] = (
                    taken * (after[i + 1, 1:] + weights[i]) + (1 - taken) * after[i + 1, :-1]
                )
        total = self._sizes() @ before[n]
        given = before[:-1] + weights[:, None] + after[1:, 1:] - total
        return torch.from_numpy((self._chosen * given).sum(1).astype(np.float64))
