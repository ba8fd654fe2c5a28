"""Samples of several sizes in plain eager mode, by compiled kernels.

As :mod:`._eager` does for one size. Of short rows a kernel draws size and subset at once; of others
one draws the sizes alone, without what else is known of the distribution. Where there are no such
kernels, or somebody but autograd observes the call, :func:`ksubset.functional._sized.simple` goes
step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ksubset._arguments import FLOATING_TYPES, problem
from ksubset.functional import _primitives
from ksubset.functional._nodes import nodes, product
from ksubset.functional._size_problem import SizedProblem, sized_problem
from ksubset.functional.sampling import _random, _seeds
from ksubset.kernels import sizes as kernels
from ksubset.kernels.device import are_compiled
from ksubset.kernels.random import following
from ksubset.sizes import Between, Sizes

DrawSizes = Callable[[Tensor, int, Tensor], Tensor]


class _Call(NamedTuple):
    low: int
    high: int
    samples: int
    seed: Tensor
    draw_sizes: DrawSizes
    checked: Callable[[], SizedProblem]


def simple(
    logits: Tensor,
    k: Sizes,
    sample_shape: tuple[int, ...],
    mask: Tensor | None,
    generator: torch.Generator | None,
    method: str,
    validate_args: bool | None,
    draw_sizes: DrawSizes,
) -> Tensor | None:
    """Samples with SIMPLE's gradient, or None where these take another way."""
    if not (
        method == "auto"
        and k.concave
        and isinstance(logits, Tensor)
        and logits.device.type == "cpu"
        and logits.dtype in FLOATING_TYPES
        and logits.dim() > 0
        and logits.numel() > 0
        and _primitives.plain_eager((logits, mask))
        and _primitives.no_forward_mode()
        and are_compiled(logits, method)
    ):
        return None

    def checked() -> SizedProblem:
        return sized_problem(logits, k, mask, validate_args=validate_args)

    samples = math.prod(sample_shape)
    bounds = _bounds_of_table(logits, k)
    if bounds is None:
        found = checked()
        given = found.given
        if found.log_weights.requires_grad:
            return None
        seeds = _seeds((samples, len(given.logits)), logits.device, generator)
        flat = isinstance(k, Between)
        z = cast("Any", _SimpleRows).apply(given.logits, _RowsCall(found, flat, seeds, draw_sizes))
    else:
        given = problem(logits, 0, mask, validate_args=False)
        seed = _random((), logits.device, generator)
        z = cast("Any", _Simple).apply(
            given.logits, _Call(*bounds, samples, seed, draw_sizes, checked)
        )
    z = given.vector(z)
    return z.reshape(*sample_shape, *z.shape[1:])


def _bounds_of_table(logits: Tensor, k: Sizes) -> tuple[int, int] | None:
    """If a table serves them."""
    if not isinstance(k, Between):
        return None
    low, high = k.bounds(logits.shape[-1], logits.device, "k")
    if not (isinstance(low, int) and isinstance(high, int)) or low == high:
        return None
    from ksubset.kernels.cpu import sizes as tables

    return (low, high) if tables.serves(logits, high) else None


class _Simple(_primitives.SingleLevelFunction):
    """(logits (rows, n), call) -> samples (samples, rows, n) whose gradient is Cov g."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: _Call) -> Tensor:
        from ksubset.kernels.cpu import size_samples

        ctx.call = call
        ctx.set_materialize_grads(False)
        keep = ctx.needs_input_grad[0]
        drawn = size_samples.draw(logits, call.low, call.high, call.seed, call.samples, keep)
        if drawn.left is not None:
            _draw_left(logits, call, drawn.left, drawn, keep)
        ctx.save_for_backward(logits, drawn.tilted, drawn.weights, drawn.centre)
        return drawn.samples

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None
        logits, tilted, weights, centre = ctx.saved_tensors
        # One product serves all samples of a row: it is linear.
        total = grad.sum(0) if ctx.call.samples != 1 else grad[0]
        if torch.is_grad_enabled() or not _primitives.plain_eager((grad,)):
            found = ctx.call.checked()
            given = found.given._replace(logits=logits)
            return nodes(found._replace(given=given), True, "auto").product(total), None
        law = kernels.Sizes(tilted, weights, centre, ctx.call.low)
        return kernels.items_product(law, total, "auto"), None


def _draw_left(logits: Tensor, call: _Call, left: Tensor, drawn: Any, keep: bool) -> None:
    """The rows that the kernel has left, by the nodes."""
    found = call.checked()
    theta = logits[left]
    law = kernels.infer(theta, found.log_weights[left], found.first, True)
    rows, n = logits.shape
    seeds = following(call.seed, (call.samples, rows))[:, left]
    size = call.draw_sizes(law[2], found.first, seeds)
    each = theta.expand(call.samples, *theta.shape).reshape(-1, n)
    z = _primitives.sample(each, size.reshape(-1), seeds.reshape(1, -1), "auto")[0]
    drawn.samples[:, left] = z.reshape(call.samples, -1, n)
    if keep:
        drawn.tilted[left], drawn.weights[left], drawn.centre[left] = law[3], law[4], law[5]


class _RowsCall(NamedTuple):
    found: SizedProblem
    flat: bool
    seeds: Tensor  # (samples, rows)
    draw_sizes: DrawSizes


class _SimpleRows(_primitives.SingleLevelFunction):
    """(logits (rows, n), call) -> samples (samples, rows, n) whose gradient is Cov g."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: _RowsCall) -> Tensor:
        from ksubset.kernels.cpu import size_rows

        ctx.call = call
        ctx.set_materialize_grads(False)
        keep = ctx.needs_input_grad[0]
        weights, first = call.found.log_weights, call.found.first
        drawn = size_rows.draw(logits, weights, first, call.flat, call.seeds, keep)
        left = drawn.left
        if left is not None:
            law = kernels.infer(logits[left], weights[left], first, call.flat)
            drawn.size[:, left] = call.draw_sizes(law[2], first, call.seeds[:, left])
            if keep:
                drawn.tilted[left], drawn.weights[left], drawn.centre[left] = law[3:6]
        ctx.save_for_backward(logits, drawn.tilted, drawn.weights, drawn.centre)
        shape = (len(call.seeds), *logits.shape)
        each = logits.expand(shape).reshape(-1, shape[-1])
        size, seeds = drawn.size.reshape(-1), call.seeds.reshape(1, -1)
        return _primitives.sample(each, size, seeds, "auto")[0].reshape(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None
        logits, tilted, weights, centre = ctx.saved_tensors
        found, flat = ctx.call.found, ctx.call.flat
        total = grad.sum(0) if len(grad) != 1 else grad[0]
        if torch.is_grad_enabled() or not _primitives.plain_eager((grad,)):
            given = found.given._replace(logits=logits)
            return product(found._replace(given=given), flat, total, "auto"), None
        law = kernels.Sizes(tilted, weights, centre, found.first)
        return kernels.items_product(law, total, "auto"), None
