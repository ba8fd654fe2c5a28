"""Samples in plain eager mode, with one node in the graph and no other operation.

On a GPU a small kernel takes less time than each operator around it, and than the checks before
it. Where only autograd observes the call (no compiler, transform, subclass or forward mode),
:func:`simple` and :func:`swap` go from the user's logits to samples in the user's shape in one
step. Arguments of a kind seen before are not checked again, except for their values, and not for
these where a kernel notices by itself what cannot be sampled. The operators of ``_primitives`` give
the same numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset import kernels
from ksubset._arguments import Problem, check_values, values_can_be_read
from ksubset.functional import _primitives


class Plan(NamedTuple):
    """What a call with such arguments needs: nothing in a GPU's memory, which another stream might
    not see written yet and a captured graph would read after the plan is gone."""

    k: int
    seeds: tuple[int, int]  # (samples, rows)
    rows: tuple[int, ...]  # the shape of the logits as rows
    method: str
    kernels: kernels.Prepared


_PLANS: dict[Any, Plan] = {}
_MOST_PLANS = 1024


def key_of(
    logits: Tensor,
    k: Any,
    sample_shape: Any,
    mask: Tensor | None,
    method: str,
    validate_args: bool | None,
) -> tuple[Any, ...] | None:
    """What a plan depends on; None where there can be no plan."""
    if (
        type(k) is not int
        or mask is not None
        or type(method) is not str
        or (sample_shape and not all(type(size) is int for size in sample_shape))
        or not _is_ordinary(logits)
        or not _primitives.no_forward_mode()
    ):
        return None
    validate = logits.is_cpu if validate_args is None else bool(validate_args)
    return logits.shape, logits.dtype, logits.device, k, sample_shape, method, validate


def _is_ordinary(logits: Any) -> bool:
    """Of a type that needs no conversion, and seen by nobody but autograd."""
    return (
        isinstance(logits, Tensor)
        and logits.dtype in (torch.float32, torch.float64)
        and values_can_be_read()
        and _primitives.is_plain(logits)
    )


def may_fold(logits: Any, mask: Any) -> bool:
    """Whether a mask may become part of the logits before anything is checked: where a kernel is to
    check the values, which it does at no cost."""
    return (
        _is_ordinary(logits)
        and isinstance(mask, Tensor)
        and _primitives.is_plain(mask)
        and logits.is_cpu
        and mask.is_cpu
        and mask.dtype == torch.bool
        and 0 < mask.dim() <= logits.dim()
        and all(m in (1, n) for m, n in zip(mask.shape[::-1], logits.shape[::-1], strict=False))
        and logits.layout is mask.layout is torch.strided
    )


def plan_for(key: tuple[Any, ...] | None) -> Plan | None:
    """The plan of a call like one before."""
    return _PLANS.get(key) if key is not None else None


def keep(key: tuple[Any, ...], given: Problem, seeds: tuple[int, int]) -> Plan:
    """Make a plan of a call that passed all checks."""
    rows = given.logits
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    shape, _, _, k, sample_shape, method, validate = key
    batch_shape, dtype = given.batch_shape, given.dtype  # a plan must not hold on to the logits

    def check(rows: Tensor) -> None:
        check_values(Problem(rows, kernels.counts(rows, k), batch_shape, dtype))

    drawn = (*sample_shape, *shape)
    prepared = kernels.prepare(rows, k, drawn, method, check if validate else None)
    plan = Plan(k, seeds, tuple(rows.shape), method, prepared)
    _PLANS[key] = plan
    return plan


class _Planned(_primitives.SingleLevelFunction):
    """(logits (..., n), seeds (samples, rows) or one, plan) -> samples shaped as planned."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None, None
        plan: Plan = ctx.plan
        logits, *kept = ctx.saved_tensors
        rows = logits if logits.dim() == 2 else logits.reshape(plan.rows)
        # Otherwise somebody has to see the product, perhaps to differentiate again.
        planned = not torch.is_grad_enabled() and _primitives.plain_eager((grad,))
        product = ctx.product(plan, rows, kept, grad, planned)
        return product if logits.dim() == 2 else product.reshape(logits.shape), None, None


def _draw(ctx: Any, logits: Tensor, seeds: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Samples, and what is kept for the product."""
    rows = logits if logits.dim() == 2 else logits.reshape(plan.rows)
    ctx.plan = plan
    ctx.set_materialize_grads(False)
    return plan.kernels.sample(rows, seeds)


def _tilted(rows: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Tilted logits that know where they come from, and the counts."""
    k = kernels.counts(rows, plan.k)
    return _primitives.tilt(rows, k, plan.method), k


class _Simple(_Planned):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, seeds: Tensor, plan: Plan) -> Tensor:
        drawn, kept = _draw(ctx, logits, seeds, plan)
        ctx.save_for_backward(logits, kept)
        ctx.product = _covariance_product
        return drawn


def _covariance_product(
    plan: Plan, rows: Tensor, kept: list[Tensor], grad: Tensor, planned: bool
) -> Tensor:
    # One product serves all samples of a row: it is linear.
    if plan.seeds[0] != 1:
        grad = grad.reshape(plan.seeds[0], *plan.rows).sum(0)
    elif grad.dim() != 2:
        grad = grad.reshape(plan.rows)
    if planned:
        return plan.kernels.covariance_product(rows, kept[0], grad)
    tilted, k = _tilted(rows, plan)
    return _primitives.covariance_product(tilted, k, grad, plan.method)


class _Swap(_Planned):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, seeds: Tensor, plan: Plan) -> Tensor:
        drawn, kept = _draw(ctx, logits, seeds, plan)
        ctx.save_for_backward(logits, kept, drawn)
        ctx.product = _swap_product
        return drawn


def _swap_product(
    plan: Plan, rows: Tensor, kept: list[Tensor], grad: Tensor, planned: bool
) -> Tensor:
    kept_rows, z = kept
    if planned:
        return plan.kernels.swap_product(rows, kept_rows, z, grad)
    tilted, k = _tilted(rows, plan)
    each = plan.seeds[0], *plan.rows
    z, grad = z.detach().reshape(each), grad.reshape(each)
    return _primitives.swap_product(tilted, k, z, grad, plan.method, "product")


def simple(logits: Tensor, plan: Plan, seeds: Tensor) -> Tensor:
    """Exact samples whose gradient is Cov g."""
    function: Any = _Simple  # whose apply only the interpreter knows
    result: Tensor = function.apply(logits, seeds, plan)
    return result


def swap(logits: Tensor, plan: Plan, seeds: Tensor) -> Tensor:
    """Exact samples whose gradient is that of swaps by the product plan."""
    function: Any = _Swap
    result: Tensor = function.apply(logits, seeds, plan)
    return result
