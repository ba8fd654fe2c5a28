"""SIMPLE's samples in plain eager mode, with one node in the graph and no other operation.

On a GPU a small kernel takes less time than each operator around it. Where nobody but autograd has
to see what happens (no compiler, transform, subclass or forward mode), :func:`simple` goes from the
user's logits to the samples in the user's shape in one step. The operators of ``_primitives`` give
the same numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ksubset import kernels
from ksubset.functional import _primitives


class _Simple(torch.autograd.Function):
    """(logits (..., n), k (rows,), seeds (samples, rows), method, shape) -> samples so shaped."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, k: Tensor, seeds: Tensor, method: str, shape: tuple[int, ...]
    ) -> Tensor:
        rows = logits if logits.dim() == 2 else logits.reshape(len(k), -1)
        drawn, tilted = kernels.sample(rows, k, seeds, method)
        ctx.save_for_backward(logits, k, tilted)
        ctx.method, ctx.samples = method, len(seeds)
        ctx.set_materialize_grads(False)
        return drawn.view(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None, None, None, None
        logits, k, tilted = ctx.saved_tensors
        grad = grad.reshape(ctx.samples, *tilted.shape)
        # One product serves all samples of a row: it is linear.
        grad = grad[0] if ctx.samples == 1 else grad.sum(0)
        if torch.is_grad_enabled():  # to be differentiated again: w.r.t. the logits too
            tilted = _primitives.tilt(logits.reshape(tilted.shape), k)
        product = _primitives.covariance_product(tilted, k, grad, ctx.method)
        return product.reshape(logits.shape), None, None, None, None


def simple(logits: Tensor, k: Tensor, seeds: Tensor, method: str, shape: tuple[int, ...]) -> Tensor:
    """Exact samples whose gradient is Cov g; see the class for shapes."""
    result: Tensor = _Simple.apply(logits, k, seeds, method, shape)
    return result
