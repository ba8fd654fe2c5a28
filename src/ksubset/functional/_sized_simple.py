"""Samples of ranges of sizes in plain eager mode, by a kernel that draws size and subset at once.

As :mod:`._eager` does for one size. Where there is no such kernel, or somebody but autograd
observes the call, :func:`ksubset.functional._sized.simple` goes step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ksubset._arguments import FLOATING_TYPES, problem
from ksubset.functional import _primitives
from ksubset.functional._nodes import nodes
from ksubset.functional._size_problem import SizedProblem, sized_problem
from ksubset.functional.sampling import _random
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
        and isinstance(k, Between)
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
    n = logits.shape[-1]
    low, high = k.bounds(n, logits.device, "k")
    if not (isinstance(low, int) and isinstance(high, int)):
        return None
    from ksubset.kernels.cpu import sizes as compiled

    given = problem(logits, 0, mask, validate_args=False)
    if not compiled.serves(given.logits, high) or low == high:
        return None
    samples = math.prod(sample_shape)
    seed = _random((), logits.device, generator)

    def checked() -> SizedProblem:
        return sized_problem(logits, k, mask, validate_args=validate_args)

    call = _Call(low, high, samples, seed, draw_sizes, checked)
    z = given.vector(cast("Any", _Simple).apply(given.logits, call))
    return z.reshape(*sample_shape, *z.shape[1:])


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
        return kernels.covariance_product(law, total, torch.zeros_like(weights), "auto")[0], None


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
