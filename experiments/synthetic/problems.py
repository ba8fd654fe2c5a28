"""Losses of k-subsets, many problems side by side, with their exact gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset import oracle

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problems:
    """Logits (problems, n), and a loss that takes (..., problems, draws, n)."""

    name: str
    logits: Tensor
    k: int
    loss: Loss

    def exact(self) -> Tensor:
        """The gradients of the expected loss, float64, by enumeration: the sum over all subsets of
        p(z) f(z) (z - mu)."""
        z = oracle.support(self.logits.shape[-1], self.k)
        losses = self.loss(z.float().expand(len(self.logits), *z.shape)).double()
        rows = []
        for logits, values in zip(self.logits, losses, strict=True):
            p = oracle.log_probabilities(logits, self.k).exp()
            centred = z - oracle.marginals(logits, self.k)
            rows.append(((p * values).unsqueeze(-1) * centred).sum(0))
        return torch.stack(rows)


def quadratic(n: int, k: int, count: int, absolute: bool, seed: int) -> Problems:
    """The paper's: the squared distance from a target b."""
    generator = torch.Generator().manual_seed(seed)
    logits, target = torch.randn(2, count, n, generator=generator)
    if absolute:
        target = target.abs()
    target = target.unsqueeze(1)
    return Problems("quadratic", logits, k, lambda z: (z - target).square().sum(-1))


def network(n: int, k: int, count: int, seed: int, width: int = 16) -> Problems:
    """A random network with one hidden layer: far from quadratic."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, n, generator=generator)
    first = torch.randn(count, n, width, generator=generator) * 2 / k**0.5
    second = torch.randn(count, width, 1, generator=generator)
    return Problems("network", logits, k, lambda z: (torch.tanh(z @ first) @ second).squeeze(-1))
