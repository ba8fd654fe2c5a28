"""SIMPLE's samples in plain eager mode, with one node in the graph and no other operation.

On a GPU a small kernel takes less time than each operator around it, and than the checks before
it. Where nobody but autograd has to see what happens (no compiler, transform, subclass or forward
mode), :func:`simple` goes from the user's logits to samples in the user's shape in one step, and
checks arguments of a kind it has seen before no more. The operators of ``_primitives`` give the
same numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset import kernels
from ksubset.functional import _primitives


class Plan(NamedTuple):
    """What a call with such arguments needs."""

    k: Tensor  # (rows,)
    seeds: tuple[int, int]  # the shape of the seeds
    shape: tuple[int, ...]  # of the samples


_PLANS: dict[Any, Plan] = {}
_MOST_PLANS = 1024


def key_of(
    logits: Tensor, k: Any, sample_shape: Any, mask: Tensor | None, method: str
) -> tuple[Any, ...] | None:
    """What a plan depends on; None where there can be no plan."""
    if (
        type(k) is not int
        or mask is not None
        or type(sample_shape) is not tuple
        or not isinstance(logits, Tensor)
        or logits.dtype not in (torch.float32, torch.float64)
        or not _primitives.plain_eager((logits,))
        or not _primitives.no_forward_mode()
    ):
        return None
    return logits.shape, logits.dtype, logits.device, k, sample_shape, method


def plan_for(key: tuple[Any, ...] | None) -> Plan | None:
    """The plan of a call like one before."""
    return _PLANS.get(key) if key is not None else None


def keep(key: tuple[Any, ...], k: Tensor, seeds: tuple[int, int]) -> None:
    """Make a plan of a call that passed all checks."""
    if k.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # what is made during a capture belongs to the graph
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    shape, _, _, _, sample_shape, _ = key
    _PLANS[key] = Plan(k, seeds, (*sample_shape, *shape))


class _Simple(_primitives.SingleLevelFunction):
    """(logits (..., n), k (rows,), seeds (samples, rows), method, shape) -> samples so shaped."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, k: Tensor, seeds: Tensor, method: str, shape: tuple[int, ...]
    ) -> Tensor:
        rows = logits if logits.dim() == 2 else logits.reshape(len(k), logits.shape[-1])
        drawn, tilted = kernels.sample(rows, k, seeds, method)
        ctx.save_for_backward(logits, k, tilted)
        ctx.method, ctx.samples = method, seeds.shape[0]
        ctx.set_materialize_grads(False)
        # In place: a view that leaves a function costs autograd as much as a small kernel.
        return drawn.resize_(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None, None, None, None
        logits, k, tilted = ctx.saved_tensors
        # One product serves all samples of a row: it is linear.
        if ctx.samples != 1:
            grad = grad.reshape(ctx.samples, *tilted.shape).sum(0)
        elif grad.shape != tilted.shape:
            grad = grad.reshape(tilted.shape)
        if torch.is_grad_enabled():  # to be differentiated again: w.r.t. the logits too
            tilted = _primitives.tilt(logits.reshape(tilted.shape), k)
            product = _primitives.covariance_product(tilted, k, grad, ctx.method)
        elif _primitives.plain_eager((grad,)):
            product = kernels.covariance_product(tilted, k, grad, ctx.method)
        else:
            product = _primitives.covariance_product(tilted, k, grad, ctx.method)
        if product.shape != logits.shape:
            product = product.reshape(logits.shape)
        return product, None, None, None, None


def simple(logits: Tensor, plan: Plan, seeds: Tensor, method: str) -> Tensor:
    """Exact samples whose gradient is Cov g."""
    function: Any = _Simple  # whose apply only the interpreter knows
    result: Tensor = function.apply(logits, plan.k, seeds, method, plan.shape)
    return result
