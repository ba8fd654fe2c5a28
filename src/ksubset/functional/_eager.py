"""Samples in plain eager mode, with one node in the graph and no other operation.

On a GPU a small kernel takes less time than each operator around it, and than the checks before
it. Where only autograd observes the call (no compiler, transform, subclass or forward mode),
:func:`simple`, :func:`swap` and :func:`reinmax` go from the user's logits to samples in the user's
shape in one step. Arguments of a kind seen before are not checked again, except for their values,
and not for these where a kernel notices by itself what cannot be sampled. The operators of
``_primitives`` give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ksubset import kernels
from ksubset._arguments import FLOATING_TYPES, Problem, check_values
from ksubset.functional import _primitives


class Plan(NamedTuple):
    """What a call with such arguments needs: nothing in a GPU's memory, which another stream might
    not see written yet and a captured graph would read after the plan is gone."""

    k: int | None  # None: every call brings one for each row
    seeds: tuple[int, int]  # (samples, rows)
    rows: tuple[int, ...]  # the shape of the logits as rows
    dtype: torch.dtype  # what is computed in
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
        type(method) is not str
        or (sample_shape and not all(type(size) is int for size in sample_shape))
        or not isinstance(logits, Tensor)
        or logits.dtype not in FLOATING_TYPES
        or not _primitives.plain_eager((logits,))
        or not _primitives.no_forward_mode()
        or not (mask is None or _is_mask(mask, logits))
    ):
        return None
    if type(k) is not int:
        if not _fits(k, logits, logits.shape[:-1]) or k.dtype not in _INTEGERS:
            return None
        k = k.shape
    validate = logits.is_cpu if validate_args is None else bool(validate_args)
    of_mask = None if mask is None else mask.shape
    return logits.shape, logits.dtype, logits.device, k, sample_shape, of_mask, method, validate


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def _is_mask(mask: Any, logits: Tensor) -> bool:
    return _fits(mask, logits, logits.shape) and mask.dtype == torch.bool and mask.dim() > 0


def _fits(x: Any, logits: Tensor, shape: torch.Size) -> bool:
    """Whether x is a plain tensor beside the logits that broadcasts to this shape."""
    return (
        isinstance(x, Tensor)
        and _primitives.is_plain(x)
        and x.layout is torch.strided
        and x.device == logits.device
        and x.dim() <= len(shape)
        and all(a in (1, b) for a, b in zip(x.shape[::-1], shape[::-1], strict=False))
    )


def plan_for(key: tuple[Any, ...] | None) -> Plan | None:
    """The plan of a call like one before."""
    return _PLANS.get(key) if key is not None else None


def keep(key: tuple[Any, ...], given: Problem, seeds: tuple[int, int]) -> Plan:
    """Make a plan of a call that passed all checks."""
    rows = given.logits
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    shape, _, _, k, sample_shape, _, method, validate = key
    same = k if isinstance(k, int) else None
    batch_shape, dtype = given.batch_shape, given.dtype  # a plan must not hold on to the logits

    def check(rows: Tensor, own: Tensor | None) -> None:
        check_values(Problem(rows, cast("Any", own if same is None else same), batch_shape, dtype))

    drawn = (*sample_shape, *shape)
    prepared = kernels.prepare(rows, same, drawn, method, check if validate else None)
    plan = Plan(same, seeds, tuple(rows.shape), rows.dtype, method, prepared)
    _PLANS[key] = plan
    return plan


def _as_rows(logits: Tensor, mask: Tensor | None, plan: Plan) -> Tensor:
    """(rows, n), in the type of the plan, forbidden items at -inf."""
    rows = logits
    if rows.dtype != plan.dtype:
        rows = rows.to(plan.dtype)
    if mask is not None:
        rows = torch.where(mask, rows, -torch.inf)
    return rows if rows.dim() == 2 else rows.reshape(plan.rows)


def _own_counts(k: Tensor | None, plan: Plan, batch_shape: torch.Size) -> Tensor | None:
    """(rows,), if every row has a k of its own."""
    if k is None:
        return None
    if k.dtype != torch.int64:
        k = k.to(torch.int64)
    return k if k.shape == plan.rows[:1] else k.expand(batch_shape).reshape(plan.rows[0])


class _Saved(NamedTuple):
    """What the backward pass finds of a call."""

    plan: Plan
    logits: Tensor
    mask: Tensor | None
    k: Tensor | None  # (rows,)
    kept: Tensor  # by the sampler
    z: Tensor | None  # the samples as the user has them, where the product depends on them

    def rows(self) -> Tensor:
        """The logits (rows, n)."""
        return _as_rows(self.logits, self.mask, self.plan)

    def tilted(self) -> tuple[Tensor, Tensor | int]:
        """Tilted logits that know where they come from, and k."""
        k = cast("int", self.plan.k) if self.k is None else self.k
        return _primitives.tilt(self.rows(), k, self.plan.method), k

    def each(self, x: Tensor) -> Tensor:
        """Samples or their gradients, in the type of the plan."""
        return x if x.dtype == self.plan.dtype else x.to(self.plan.dtype)


class _Planned(_primitives.SingleLevelFunction):
    """(logits (..., n), mask, k, seeds (samples, rows) or one, plan) -> samples shaped as planned.

    A mask needs no node of its own: all products are zero where it forbids.
    """

    product: Callable[[_Saved, Tensor, bool], Tensor]
    keeps_samples: bool

    @classmethod
    def draw(
        cls,
        ctx: Any,
        logits: Tensor,
        mask: Tensor | None,
        k: Tensor | None,
        seeds: Tensor,
        plan: Plan,
    ) -> Tensor:
        """Samples, and what is kept for the product."""
        counts = _own_counts(k, plan, logits.shape[:-1])
        drawn, kept = plan.kernels.sample(_as_rows(logits, mask, plan), counts, seeds)
        if drawn.dtype != logits.dtype:
            drawn = drawn.to(logits.dtype)
        ctx.kind, ctx.plan = cls, plan
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, mask, counts, kept, drawn if cls.keeps_samples else None)
        return drawn

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return (None,) * 5
        saved = _Saved(ctx.plan, *ctx.saved_tensors)
        # Otherwise somebody has to see the product, perhaps to differentiate again.
        planned = not torch.is_grad_enabled() and _primitives.plain_eager((grad,))
        product = ctx.kind.product(saved, grad, planned)
        logits = saved.logits
        if product.shape != logits.shape:
            product = product.reshape(logits.shape)
        if product.dtype != logits.dtype:
            product = product.to(logits.dtype)
        return product, None, None, None, None


def _covariance_product(saved: _Saved, grad: Tensor, planned: bool) -> Tensor:
    plan = saved.plan
    # One product serves all samples of a row: it is linear.
    if plan.seeds[0] != 1:
        grad = grad.reshape(plan.seeds[0], *plan.rows).sum(0, dtype=plan.dtype)
    else:
        grad = saved.each(grad)
        grad = grad if grad.dim() == 2 else grad.reshape(plan.rows)
    if planned:
        return plan.kernels.covariance_product(saved.rows, saved.k, saved.kept, grad)
    tilted, k = saved.tilted()
    return _primitives.covariance_product(tilted, k, grad, plan.method)


def _swap_product(saved: _Saved, grad: Tensor, planned: bool) -> Tensor:
    plan, z, grad = saved.plan, saved.each(cast("Tensor", saved.z)), saved.each(grad)
    if planned:
        return plan.kernels.swap_product(saved.rows, saved.k, saved.kept, z, grad)
    tilted, k = saved.tilted()
    each = plan.seeds[0], *plan.rows
    z, grad = z.detach().reshape(each), grad.reshape(each)
    return _primitives.swap_product(tilted, k, z, grad, plan.method, "product")


def _reinmax_product(saved: _Saved, grad: Tensor, planned: bool) -> Tensor:
    plan, z, grad = saved.plan, saved.each(cast("Tensor", saved.z)), saved.each(grad)
    each = plan.seeds[0], *plan.rows
    z, grad = z.detach().reshape(each), grad.reshape(each)
    if planned:
        total = grad[0] if len(grad) == 1 else grad.sum(0)
        covariance = plan.kernels.covariance_product(saved.rows, saved.k, saved.kept, total)
        mu = plan.kernels.marginals(saved.rows(), saved.k)
        return kernels.second_order(covariance, z - mu, grad)
    tilted, k = saved.tilted()
    return _primitives.swap_product(tilted, k, z, grad, plan.method, "reinmax")


class _Simple(_Planned):
    product, keeps_samples = staticmethod(_covariance_product), False

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        return _Simple.draw(ctx, *given)


class _Swap(_Planned):
    product, keeps_samples = staticmethod(_swap_product), True

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        return _Swap.draw(ctx, *given)


class _ReinMax(_Planned):
    product, keeps_samples = staticmethod(_reinmax_product), True

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        return _ReinMax.draw(ctx, *given)


Planned = Callable[[Tensor, "Tensor | None", "Tensor | None", Tensor, Plan], Tensor]
"""(logits, mask, k, seeds, plan) -> samples; k is a tensor where the plan has none."""

# Whose apply only the interpreter knows.
simple: Planned = cast("Any", _Simple).apply
"""Exact samples whose gradient is Cov g."""
swap: Planned = cast("Any", _Swap).apply
"""Exact samples whose gradient is that of swaps by the product plan."""
reinmax: Planned = cast("Any", _ReinMax).apply
"""Exact samples whose gradient is ReinMax's."""
