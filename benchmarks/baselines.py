"""What users run today, written as they would write it. Each takes (logits, k) and returns a
sample with a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import oracle


def _gumbel(like: Tensor) -> Tensor:
    return -torch.log(-torch.log(torch.rand_like(like).clamp_(1e-20, 1 - 1e-7)))


def straight_through_gumbel_top_k(logits: Tensor, k: int) -> Tensor:
    """Gumbel top-k forward, softmax of the perturbed logits backward. Not the k-subset law."""
    perturbed = logits + _gumbel(logits)
    soft = torch.softmax(perturbed, -1) * k
    chosen = perturbed.topk(k, -1).indices
    hard = torch.zeros_like(logits).scatter_(-1, chosen, 1.0)
    return hard + soft - soft.detach()


def softsub(logits: Tensor, k: int, temperature: float = 0.5) -> Tensor:
    """Gumbel keys and k successive softmaxes: relaxed samples."""
    keys = logits + _gumbel(logits)
    relaxed = torch.zeros_like(logits)
    onehot = torch.zeros_like(logits)
    for _ in range(k):
        keys = keys + torch.log((1 - onehot).clamp_min(1e-20))
        onehot = torch.softmax(keys / temperature, -1)
        relaxed = relaxed + onehot
    return relaxed


class _IMLE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, k, noise, strength):  # type: ignore[no-untyped-def]
        z = _top_k(logits + noise, k)
        ctx.save_for_backward(logits, noise, z)
        ctx.k, ctx.strength = k, strength
        return z

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        logits, noise, z = ctx.saved_tensors
        target = _top_k(logits - ctx.strength * grad + noise, ctx.k)
        return (z - target) / ctx.strength, None, None, None


def _top_k(scores: Tensor, k: int) -> Tensor:
    return torch.zeros_like(scores).scatter_(-1, scores.topk(k, -1).indices, 1.0)


def imle(logits: Tensor, k: int, strength: float = 10.0, terms: int = 10) -> Tensor:
    """Perturb-and-MAP with sum-of-gamma noise, and the target distribution theta - lambda g."""
    shape = torch.full((terms, *logits.shape), 1.0 / k, device=logits.device, dtype=logits.dtype)
    steps = torch.arange(1, terms + 1, device=logits.device, dtype=logits.dtype)
    scale = (k / steps).reshape(-1, *(1,) * logits.dim())
    gamma = torch._standard_gamma(shape) * scale
    noise = (gamma.sum(0) - torch.log(torch.tensor(float(terms)))) / k
    return _IMLE.apply(logits, k, noise, strength)


def log_space_dp(logits: Tensor, k: int) -> Tensor:
    """The paper's algorithm 1 in log space with autodiff, marginals in place of samples."""
    leaf = logits if logits.requires_grad else logits.detach().requires_grad_()
    total = oracle.log_partition_autodiff(leaf, k).sum()
    (mu,) = torch.autograd.grad(total, leaf, create_graph=True)
    return mu
