"""The primitives for several sizes at once, as differentiable operators.

Like those for one size (:mod:`._primitives`), with a chain of derivatives that ends after three.
The distribution p(z) ∝ exp(t . z + w(|z|)) has two parameters, the logits and the weights of
sizes, and its moments come in pairs: those of items, (rows, n), and those of indicators of sizes,
(rows, sizes). Derivatives with respect to tilted logits and their weights are those with respect
to the logits and weights they were made from: a shift moves from one to the other and changes
nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ksubset.functional._primitives import (
    _BEYOND,
    SingleLevelFunction,
    _add,
    _not_forced,
    _primals,
    _register,
    _save,
    _saved,
)
from ksubset.kernels import sizes as kernels
from ksubset.kernels.coins import widest

__all__ = ["infer", "items_product", "law", "product", "third"]


class _Infer(SingleLevelFunction):
    """(logits, log_weights, first, flat, method) -> log_partition, marginals, chances of sizes,
    tilted, weights, centre, log_mass."""

    @staticmethod
    def kernel(logits: Tensor, log_weights: Tensor, first: int, flat: bool, method: str) -> Any:
        return kernels.infer(logits, log_weights, first, flat, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, _, ctx.first, _, ctx.method = inputs
        _, marginals, chances, tilted, weights, centre, log_mass = output
        ctx.mark_non_differentiable(centre, log_mass)
        _save(ctx, logits, marginals, chances, tilted, weights, centre)

    @staticmethod
    def backward(
        ctx: Any,
        for_log_partition: Tensor | None,
        for_marginals: Tensor | None,
        for_chances: Tensor | None,
        for_tilted: Tensor | None,
        for_weights: Tensor | None,
        *_: Any,
    ) -> Any:
        logits, marginals, chances, tilted, weights, centre = _saved(ctx)
        of_items, of_sizes = for_tilted, for_weights
        if for_log_partition is not None:
            each = for_log_partition.unsqueeze(-1)
            of_items = _add(of_items, each * _not_forced(marginals, logits))
            of_sizes = _add(of_sizes, each * chances)
        if for_marginals is not None and for_chances is None and not ctx.needs_input_grad[1]:
            law = tilted, weights, centre, ctx.first
            of_items = _add(of_items, items_product(*law, for_marginals, ctx.method))
        elif for_marginals is not None or for_chances is not None:
            directions = _or_zeros(for_marginals, marginals), _or_zeros(for_chances, chances)
            items, sizes = product(tilted, weights, centre, ctx.first, *directions, ctx.method)
            of_items, of_sizes = _add(of_items, items), _add(of_sizes, sizes)
        return of_items, of_sizes, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_logits: Tensor | None, of_weights: Tensor | None, *_: Any) -> Any:
        logits, marginals, chances, tilted, weights, centre = _primals(ctx)
        u, f = _or_zeros(of_logits, marginals), _or_zeros(of_weights, chances)
        items, sizes = product(tilted, weights, centre, ctx.first, u, f, ctx.method)
        whole = (_not_forced(marginals, logits) * u).sum(-1) + (chances * f).sum(-1)
        return whole, items, sizes, u.clone(), f.clone(), None, None


class _Law(SingleLevelFunction):
    """(logits, log_weights, first, flat, method) -> tilted, weights, centre."""

    @staticmethod
    def kernel(logits: Tensor, log_weights: Tensor, first: int, flat: bool, method: str) -> Any:
        return tuple(kernels.law(logits, log_weights, first, flat, method)[:3])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx: Any, for_tilted: Any, for_weights: Any, _: Any) -> Any:
        return for_tilted, for_weights, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_logits: Any, of_weights: Any, *_: Any) -> Any:
        copies = (None if x is None else x.clone() for x in (of_logits, of_weights))
        return *copies, None


class _ItemsProduct(SingleLevelFunction):
    """(tilted, weights, centre, first, v, method) -> covariances of items with v . z."""

    @staticmethod
    def kernel(
        tilted: Tensor, weights: Tensor, centre: Tensor, first: int, v: Tensor, method: str
    ) -> Any:
        return kernels.items_product(kernels.Sizes(tilted, weights, centre, first), v, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tilted, weights, centre, ctx.first, v, ctx.method = inputs
        _save(ctx, tilted, weights, centre, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return (None,) * 6
        tilted, weights, centre, v = _saved(ctx)
        law, none = (tilted, weights, centre, ctx.first), torch.zeros_like(weights)
        of_law: tuple[Any, Any] = (None, None)
        of_v = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            of_law = third(*law, v, none, grad, none)
        if ctx.needs_input_grad[4]:
            of_v = items_product(*law, grad, ctx.method)
        return *of_law, None, None, of_v, None

    @staticmethod
    def jvp(
        ctx: Any,
        of_tilted: Tensor | None,
        of_weights: Tensor | None,
        _centre: Any,
        _first: Any,
        of_v: Tensor | None,
        _method: Any,
    ) -> Any:
        tilted, weights, centre, v = _primals(ctx)
        law, items = (tilted, weights, centre, ctx.first), None
        if of_tilted is not None or of_weights is not None:
            none = torch.zeros_like(weights)
            direction = _or_zeros(of_tilted, v), _or_zeros(of_weights, weights)
            items = third(*law, v, none, *direction)[0]
        return items if of_v is None else _add(items, items_product(*law, of_v, ctx.method))


class _Product(SingleLevelFunction):
    """(tilted, weights, centre, first, v, f, method) -> covariances of items and of sizes with
    v . z + f(|z|)."""

    @staticmethod
    def kernel(
        tilted: Tensor,
        weights: Tensor,
        centre: Tensor,
        first: int,
        v: Tensor,
        f: Tensor,
        method: str,
    ) -> Any:
        sizes = kernels.Sizes(tilted, weights, centre, first)
        return kernels.covariance_product(sizes, v, f, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tilted, weights, centre, ctx.first, v, f, ctx.method = inputs
        _save(ctx, tilted, weights, centre, v, f)

    @staticmethod
    def backward(ctx: Any, for_items: Tensor | None, for_sizes: Tensor | None) -> Any:
        if for_items is None and for_sizes is None:
            return (None,) * 7
        tilted, weights, centre, v, f = _saved(ctx)
        law = (tilted, weights, centre, ctx.first)
        other = _or_zeros(for_items, v), _or_zeros(for_sizes, f)
        of_law: tuple[Any, Any] = (None, None)
        of_direction: tuple[Any, Any] = (None, None)
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            of_law = third(*law, v, f, *other)
        if ctx.needs_input_grad[4] or ctx.needs_input_grad[5]:
            of_direction = product(*law, *other, ctx.method)
        return *of_law, None, None, *of_direction, None

    @staticmethod
    def jvp(
        ctx: Any,
        of_tilted: Tensor | None,
        of_weights: Tensor | None,
        _centre: Any,
        _first: Any,
        of_v: Tensor | None,
        of_f: Tensor | None,
        _method: Any,
    ) -> Any:
        tilted, weights, centre, v, f = _primals(ctx)
        law = (tilted, weights, centre, ctx.first)
        items = sizes = None
        if of_tilted is not None or of_weights is not None:
            items, sizes = third(*law, v, f, _or_zeros(of_tilted, v), _or_zeros(of_weights, f))
        if of_v is not None or of_f is not None:
            more = product(*law, _or_zeros(of_v, v), _or_zeros(of_f, f), ctx.method)
            items, sizes = _add(items, more[0]), _add(sizes, more[1])
        return items, sizes


class _Third(SingleLevelFunction):
    """(tilted, weights, centre, first, u, f, v, g) -> third cumulants of items and of sizes with
    u . z + f(|z|) and v . z + g(|z|), the end of the chain."""

    @staticmethod
    def kernel(
        tilted: Tensor, weights: Tensor, centre: Tensor, first: int, *directions: Tensor
    ) -> Any:
        sizes = kernels.Sizes(tilted, weights, centre, first)
        return kernels.third_cumulant_product(sizes, *directions)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(_BEYOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_BEYOND)


def _or_zeros(x: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if x is None else x


def _pair_like(tilted: Tensor, weights: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(tilted), torch.empty_like(weights)


infer = _register(
    "infer_sizes",
    "(Tensor logits, Tensor log_weights, int first, bool flat, str method) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _Infer,
    lambda logits, log_weights, first, flat, method: (
        logits.new_empty(logits.shape[0]),
        torch.empty_like(logits),
        logits.new_empty(log_weights.shape),
        torch.empty_like(logits),
        logits.new_empty(log_weights.shape),
        logits.new_empty(logits.shape[0], dtype=torch.int64),
        logits.new_empty(logits.shape[0], dtype=widest(logits)),
    ),
    rows_in=(0, 0, None, None, None),
    rows_out=(0,) * 7,
)
product = _register(
    "covariance_product_of_sizes",
    "(Tensor tilted, Tensor weights, Tensor centre, int first, Tensor v, Tensor f, str method) -> "
    "(Tensor, Tensor)",
    _Product,
    _pair_like,
    rows_in=(0, 0, 0, None, 0, 0, None),
    rows_out=(0, 0),
)
law = _register(
    "law_of_sizes",
    "(Tensor logits, Tensor log_weights, int first, bool flat, str method) -> "
    "(Tensor, Tensor, Tensor)",
    _Law,
    lambda logits, log_weights, first, flat, method: (
        torch.empty_like(logits),
        logits.new_empty(log_weights.shape),
        logits.new_empty(logits.shape[0], dtype=torch.int64),
    ),
    rows_in=(0, 0, None, None, None),
    rows_out=(0, 0, 0),
)
items_product = _register(
    "covariance_product_of_items",
    "(Tensor tilted, Tensor weights, Tensor centre, int first, Tensor v, str method) -> Tensor",
    _ItemsProduct,
    lambda tilted, weights, centre, first, v, method: torch.empty_like(tilted),
    rows_in=(0, 0, 0, None, 0, None),
    rows_out=(0,),
)
third = _register(
    "third_cumulant_product_of_sizes",
    "(Tensor tilted, Tensor weights, Tensor centre, int first, Tensor u, Tensor f, Tensor v, "
    "Tensor g) -> (Tensor, Tensor)",
    _Third,
    _pair_like,
    rows_in=(0, 0, 0, None, 0, 0, 0, 0),
    rows_out=(0, 0),
)
