"""What exact sampling is compared with: each takes (logits, k) and returns samples with a gradient.

Written to be fast, as lean as torch allows without kernels of one's own: noise in place, no sorting
of what is chosen, nothing computed forward that only the backward pass needs. Otherwise a ratio
would measure how carelessly a baseline is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ksubset import oracle


def _perturbed(logits: Tensor) -> Tensor:
    """With Gumbel noise: minus the logarithm of an exponential variable."""
    noise = torch.empty_like(logits)
    if noise.is_cuda:
        noise.exponential_()
    else:  # where exponential_ takes three times as long
        noise.uniform_().log_().neg_()
    return logits - noise.log_()


def _top_k(scores: Tensor, k: int) -> Tensor:
    chosen = scores.topk(k, -1, sorted=False).indices
    return torch.zeros_like(scores).scatter_(-1, chosen, 1.0)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, k):  # type: ignore[no-untyped-def]
        perturbed = _perturbed(logits)
        ctx.save_for_backward(perturbed)
        ctx.k = k
        return _top_k(perturbed, k)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (perturbed,) = ctx.saved_tensors
        soft = torch.softmax(perturbed, -1)
        back = torch.ops.aten._softmax_backward_data(grad, soft, -1, soft.dtype)
        return back.mul_(ctx.k), None


def straight_through_gumbel_top_k(logits: Tensor, k: int) -> Tensor:
    """Gumbel top-k forward, k times the softmax of the perturbed logits backward. Not the k-subset
    distribution."""
    return _StraightThrough.apply(logits, k)


def plain_straight_through(logits: Tensor, k: int) -> Tensor:
    """The same as most people write it: noise from two logarithms, a sorted top-k, the softmax in
    the forward pass. The sample less a sum that is zero carries the gradient."""
    uniform = torch.rand_like(logits).clamp_min(torch.finfo(logits.dtype).tiny)
    perturbed = logits - (-uniform.log()).log()
    hard = torch.zeros_like(logits).scatter(-1, perturbed.topk(k, -1).indices, 1.0)
    soft = k * perturbed.softmax(-1)
    return hard - soft.detach() + soft


def compiled_straight_through() -> Callable[[Tensor, int], Tensor]:
    """The lean one through ``torch.compile``, which fuses all but the top-k.

    Compiled at the first call, and from scratch: what has seen several shapes is compiled for any.
    """
    compiled: list[Callable[[Tensor, int], Tensor]] = []

    def sampler(logits: Tensor, k: int) -> Tensor:
        if not compiled:
            torch._dynamo.reset()
            # Its backward pass is timed again and again.
            torch._functorch.config.donated_buffer = False
            compiled.append(
                torch.compile(straight_through_gumbel_top_k, fullgraph=True, dynamic=False)
            )
        return compiled[0](logits, k)

    return sampler


def softsub(logits: Tensor, k: int, temperature: float = 0.5) -> Tensor:
    """Gumbel keys and k successive softmaxes: relaxed samples."""
    keys = _perturbed(logits) / temperature
    relaxed = onehot = torch.softmax(keys, -1)
    for _ in range(k - 1):
        keys = keys + (1 - onehot).clamp_min(1e-20).log() / temperature
        onehot = torch.softmax(keys, -1)
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


def imle(logits: Tensor, k: int, strength: float = 10.0, terms: int = 10) -> Tensor:
    """Perturb-and-MAP with sum-of-gamma noise, and the target distribution theta - lambda g."""
    shape = torch.full((terms, *logits.shape), 1.0 / k, device=logits.device, dtype=logits.dtype)
    steps = torch.arange(1, terms + 1, device=logits.device, dtype=logits.dtype)
    scale = (k / steps).reshape(-1, *(1,) * logits.dim())
    gamma = torch._standard_gamma(shape).mul_(scale)
    noise = gamma.sum(0).sub_(math.log(terms)).div_(k)
    return _IMLE.apply(logits, k, noise, strength)


def log_space_dp(logits: Tensor, k: int) -> Tensor:
    """The paper's algorithm 1 in log space with autodiff, marginals in place of samples: n steps of
    Python, as published. It shows how cost grows with k, not what a kernel for it would cost."""
    leaf = logits if logits.requires_grad else logits.detach().requires_grad_()
    total = oracle.log_partition_autodiff(leaf, k).sum()
    (mu,) = torch.autograd.grad(total, leaf, create_graph=True)
    return mu
