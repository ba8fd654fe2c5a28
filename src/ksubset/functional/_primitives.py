"""The primitives as differentiable PyTorch operators: the one place of registration.

Each primitive is an operator ``ksubset::<name>`` with a kernel for all devices, a shape rule
(for compiling and exporting), a vmap rule, and a derivative in both modes. PyTorch's own
helpers give an operator no forward-mode derivative (``torch.library.register_autograd``: zeros
under ``torch.func.jvp``) or no way through the compiler (``torch.autograd.Function``), so the
derivative is registered at the dispatcher's Autograd key, as PyTorch registers its own: there
one level of nested transforms is handled at a time, and the same rule serves eager mode,
``torch.func`` in any nesting, and ``torch.compile``. See docs/decisions.md.

The chain of derivatives is explicit and ends after three: log-partition, marginals,
covariance product, third cumulants. Derivatives w.r.t. the tilted logits equal those w.r.t.
the logits: the distribution does not change when all logits shift, so neither does it matter that
the shift itself depends on them. The gradient of ``tilted`` is therefore passed through as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as is_wrapped
from torch._C._functorch import is_legacy_batchedtensor as is_legacy_batched
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ksubset import kernels
from ksubset._arguments import values_can_be_read
from ksubset.kernels.coins import widest

__all__ = [
    "covariance_product",
    "divergence",
    "entropy",
    "exchange",
    "infer",
    "log_outcome",
    "mode",
    "sample",
    "swap",
    "swap_product",
    "third_cumulant_product",
    "tilt",
]


_LIBRARY = torch.library.Library("ksubset", "DEF")

Size = Tensor | int
"""k: each row's, (rows,), or the same for all."""

# Which axis of an operand or a result holds the rows; None for what is not a tensor.
_Axes = tuple[int | None, ...]


def _fold(batch: int, dims: _Axes, args: tuple[Any, ...], axes: _Axes) -> list[Any]:
    """Merge a vmapped axis into the rows."""
    folded = []
    for argument, dim, axis in zip(args, dims, axes, strict=True):
        if axis is None:
            folded.append(argument)
            continue
        if dim is None:
            argument = argument.unsqueeze(axis).expand(
                *argument.shape[:axis], batch, *argument.shape[axis:]
            )
        else:
            argument = argument.movedim(dim, axis)
        folded.append(argument.flatten(axis, axis + 1))
    return folded


_PLAIN = (Tensor, torch.nn.Parameter)
SingleLevelFunction = _SingleLevelFunction


def plain_eager(args: tuple[Any, ...]) -> bool:
    """No compiler, no transform, no dispatch mode, no tensor that is not plain: nobody but autograd
    has to see the operator."""
    return values_can_be_read() and all(map(is_plain, args))


def is_plain(argument: Any) -> bool:
    """No subclass of tensors, no value that is not in memory as it is. (A transform's tensors may
    outlive it.)"""
    return not isinstance(argument, Tensor) or (
        type(argument) in _PLAIN
        and not argument.is_nested
        and not is_wrapped(argument)
        and not is_legacy_batched(argument)
        and not argument.is_neg()
        and not argument._is_zerotensor()
        and not argument.is_meta
    )


def no_forward_mode() -> bool:
    """No tensor can have a tangent now."""
    return forward_ad._current_level < 0


def _for_nested_levels(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Forward mode is off while a jvp runs, at all levels; those below need it (and this one
    must not see its own tangents: :func:`_primals`)."""

    def jvp(ctx: Any, *tangents: Any) -> Any:
        with forward_ad._set_fwd_grad_enabled(True):
            return rule(ctx, *tangents)

    return jvp


def _register(
    name: str,
    schema: str,
    function: type[Any],
    fake: Callable[..., Any],
    rows_in: _Axes,
    rows_out: _Axes,
) -> Callable[..., Any]:
    """Register ``ksubset::<name>`` and return it; and ``ksubset::<name>.same``, if it has a k.

    Args:
        function: has ``kernel``, ``setup_context``, ``backward`` and ``jvp``.
        fake: shapes and types of the results.
        rows_in, rows_out: for the vmap rule.
    """

    def forward(operator: Callable[..., Any]) -> Callable[..., Any]:
        def below(*args: Any) -> Any:
            # Function.apply switched gradients of both modes off for this level; the levels below,
            # of nested transforms, need them.
            with (
                torch.enable_grad(),
                forward_ad._set_fwd_grad_enabled(True),
                torch._C._AutoDispatchBelowAutograd(),
            ):
                return operator(*args)

        return below

    function.jvp = staticmethod(_for_nested_levels(function.jvp))
    names = [argument.split()[-1] for argument in schema.split(" -> ")[0].strip("()").split(", ")]
    place_of_k = names.index("k") if "k" in names else None

    def register(overload: str, schema: str, rows_in: _Axes) -> Callable[..., Any]:
        full_name = name + overload
        _LIBRARY.define(full_name + schema)
        _LIBRARY.impl(full_name, function.kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"ksubset::{full_name}", fake, lib=_LIBRARY)
        operator = getattr(getattr(torch.ops.ksubset, name), overload[1:] or "default")
        through: Any = type(
            function.__name__, (function,), {"forward": staticmethod(forward(operator))}
        )

        def differentiable(*args: Any) -> Any:
            # Compiled code calls operators where nothing is differentiated any more.
            if not torch.is_grad_enabled() and no_forward_mode() and plain_eager(args):
                return function.kernel(*args)
            with enable_single_level_autograd_function():
                return through.apply(*args)

        _LIBRARY.impl(full_name, differentiable, "Autograd")

        def vmap(info: Any, in_dims: _Axes, *args: Any) -> tuple[Any, Any]:
            batch = info.batch_size
            result = operator(*_fold(batch, in_dims, args, rows_in))
            parts = tuple(
                part.unflatten(axis, (batch, part.shape[axis] // max(batch, 1)))
                for part, axis in zip(
                    (result,) if isinstance(result, Tensor) else result, rows_out, strict=True
                )
            )
            return (parts[0], rows_out[0]) if isinstance(result, Tensor) else (parts, rows_out)

        torch.library.register_vmap(f"ksubset::{full_name}", vmap, lib=_LIBRARY)
        return cast("Callable[..., Any]", operator)

    by_row = same = register("", schema, rows_in)
    if place_of_k is not None:
        # One k for all rows, as a number: compiled code need not write it to memory first.
        axes = (*rows_in[:place_of_k], None, *rows_in[place_of_k + 1 :])
        same = register(".same", re.sub(r"Tensor k\b", "SymInt k", schema), axes)

    # In plain eager mode nothing stands between the function and its kernel: the dispatcher,
    # passed twice, costs as much as a small kernel itself.
    direct: Any = type(function.__name__, (function,), {"forward": staticmethod(function.kernel)})

    def call(*args: Any) -> Any:
        if not plain_eager(args):
            own = place_of_k is None or isinstance(args[place_of_k], Tensor)
            return (by_row if own else same)(*args)
        if not torch.is_grad_enabled() and no_forward_mode():
            return function.kernel(*args)
        return direct.apply(*args)

    return call


def _save(ctx: Any, *values: Size) -> None:
    """For both modes, and have missing gradients passed as None. A k may be a number."""
    ctx.numbers = [None if isinstance(value, Tensor) else value for value in values]
    tensors = [value for value in values if isinstance(value, Tensor)]
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)


def _saved(ctx: Any) -> tuple[Any, ...]:
    """What was saved, in its order."""
    tensors = iter(ctx.saved_tensors)
    return tuple(next(tensors) if number is None else number for number in ctx.numbers)


def _primals(ctx: Any) -> tuple[Any, ...]:
    """What was saved, without the tangents of the level being differentiated."""
    return tuple(
        forward_ad.unpack_dual(value).primal if isinstance(value, Tensor) else value
        for value in _saved(ctx)
    )


def _add(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


def _finite(t: Tensor) -> Tensor:
    """t with zeros for items that are not free, where it meets a zero covariance."""
    return torch.where(t.isfinite(), t, 0)


class _Tilt(_SingleLevelFunction):
    """(logits, k, method) -> tilted."""

    @staticmethod
    def kernel(logits: Tensor, k: Size, method: str) -> Tensor:
        return kernels.tilt(logits, k, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        return tangent.clone()


class _Mode(_SingleLevelFunction):
    """(logits, k) -> the most likely subset, without a derivative."""

    @staticmethod
    def kernel(logits: Tensor, k: Size) -> Tensor:
        return kernels.mode(logits, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        return None


class _Infer(_SingleLevelFunction):
    """(logits, k, method) -> log_partition, marginals, tilted, log_mass, shift."""

    @staticmethod
    def kernel(logits: Tensor, k: Size, method: str) -> Any:
        return kernels.infer(logits, k, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, k, ctx.method = inputs
        _, marginals, tilted, log_mass, shift = output
        ctx.mark_non_differentiable(log_mass, shift)
        _save(ctx, logits, k, marginals, tilted)

    @staticmethod
    def backward(
        ctx: Any,
        for_log_partition: Tensor | None,
        for_marginals: Tensor | None,
        for_tilted: Tensor | None,
        *_: Any,
    ) -> Any:
        logits, k, marginals, tilted = _saved(ctx)
        grad = None
        if for_log_partition is not None:
            grad = for_log_partition.unsqueeze(-1) * _not_forced(marginals, logits)
        if for_marginals is not None:
            grad = _add(grad, covariance_product(tilted, k, for_marginals, ctx.method))
        if for_tilted is not None:
            grad = _add(grad, for_tilted)
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        logits, k, marginals, tilted = _primals(ctx)
        moved = covariance_product(tilted, k, tangent, ctx.method)
        of_log_partition = (_not_forced(marginals, logits) * tangent).sum(-1)
        return of_log_partition, moved, tangent.clone(), None, None


def _not_forced(marginals: Tensor, logits: Tensor) -> Tensor:
    """The derivative of a log-partition over the finite logits."""
    return marginals.masked_fill(logits.detach() == torch.inf, 0)


Known = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class _InferKnown(_Infer):
    """(logits, k, method, known) -> copies of what is known, with the derivatives of _Infer."""

    @staticmethod
    def forward(logits: Tensor, k: Size, method: str, known: Known) -> Any:
        return tuple(result.clone() for result in known)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Infer.setup_context(ctx, inputs[:3], output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return *_Infer.backward(ctx, *grads), None


class _Entropy(_SingleLevelFunction):
    """(logits, k, method) -> entropy, tilted."""

    @staticmethod
    def kernel(logits: Tensor, k: Size, method: str) -> Any:
        return kernels.entropy(logits, k, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, k, ctx.method = inputs
        _save(ctx, k, output[1])

    @staticmethod
    def backward(ctx: Any, for_entropy: Tensor | None, for_tilted: Tensor | None) -> Any:
        k, tilted = _saved(ctx)
        grad = for_tilted
        if for_entropy is not None:
            # What is not free, at infinity, is nothing to a covariance product.
            product = covariance_product(tilted, k, tilted, ctx.method)
            grad = _add(grad, product * -for_entropy.unsqueeze(-1))
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        k, tilted = _primals(ctx)
        moved = covariance_product(tilted, k, tangent, ctx.method)
        return -(_finite(tilted) * moved).sum(-1), tangent.clone()


class _Divergence(_SingleLevelFunction):
    """(tilted_p, tilted_q, marginals_p, marginals_q, rests_p, log_mass_p, log_mass_q, k_p, k_q,
    method) -> KL(p || q).

    Its gradients are Cov_p (t_p - t_q) and mu_q - mu_p. They account for everything that depends on
    the logits: nothing flows through marginals and masses.
    """

    @staticmethod
    def kernel(
        tilted_p: Tensor,
        tilted_q: Tensor,
        marginals_p: Tensor,
        marginals_q: Tensor,
        rests_p: Tensor,
        log_mass_p: Tensor,
        log_mass_q: Tensor,
        k_p: Tensor,
        k_q: Tensor,
        method: str,
    ) -> Tensor:
        return kernels.divergence(
            tilted_p, tilted_q, marginals_p, rests_p, log_mass_p, log_mass_q, k_p, k_q
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.method = inputs[-1]
        _save(ctx, *inputs[:4], inputs[7])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        for_p = for_q = None
        if grad is not None:
            tilted_p, tilted_q, marginals_p, marginals_q, k = _saved(ctx)
            grad = grad.unsqueeze(-1)
            if ctx.needs_input_grad[0]:
                direction = grad * _distance(tilted_p, tilted_q, marginals_p.dtype)
                narrow = tilted_p.to(marginals_p.dtype)
                for_p = covariance_product(narrow, k, direction, ctx.method).to(tilted_p.dtype)
            if ctx.needs_input_grad[1]:
                for_q = (grad * (marginals_q - marginals_p)).to(tilted_q.dtype)
        return for_p, for_q, *(None,) * 8

    @staticmethod
    def jvp(ctx: Any, of_p: Tensor | None, of_q: Tensor | None, *_: Any) -> Any:
        tilted_p, tilted_q, marginals_p, marginals_q, k = _primals(ctx)
        dtype = marginals_p.dtype
        tangent = None
        if of_p is not None:
            moved = covariance_product(tilted_p.to(dtype), k, of_p.to(dtype), ctx.method)
            tangent = (_distance(tilted_p, tilted_q, dtype) * moved).sum(-1)
        if of_q is not None:
            tangent = _add(tangent, ((marginals_q - marginals_p) * of_q.to(dtype)).sum(-1))
        return tangent


def _distance(tilted_p: Tensor, tilted_q: Tensor, dtype: torch.dtype) -> Tensor:
    """The difference of the logits, less its mean under p: Cov_p takes no notice of constants, and
    a narrower type has its digits for what is left."""
    largest = torch.finfo(dtype).max / 4
    distance = (_finite(tilted_p) - _finite(tilted_q)).clamp(-largest, largest)
    spread = (torch.sigmoid(tilted_p) * torch.sigmoid(-tilted_p)).detach()
    total = spread.sum(-1, keepdim=True).clamp_min(torch.finfo(spread.dtype).tiny)
    mean = (spread / total * distance.detach()).sum(-1, keepdim=True)
    return (distance - mean).to(dtype)


class _LogOutcome(_SingleLevelFunction):
    """(tilted, marginals, log_mass, k, z, method) -> log p(z_s), (samples, rows).

    Its gradient z - mu accounts for everything that depends on the logits: nothing flows through
    marginals and masses, except that a second derivative finds the covariance in the former.
    """

    @staticmethod
    def kernel(
        tilted: Tensor, marginals: Tensor, log_mass: Tensor, k: Size, z: Tensor, method: str
    ) -> Tensor:
        return kernels.log_outcome(tilted, log_mass, k, z, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, marginals, _, _, z, _ = inputs
        _save(ctx, marginals, z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        for_tilted = None
        if grad is not None:
            marginals, z = _saved(ctx)
            if len(z) == 1:
                for_tilted = (z[0] - marginals) * grad[0].unsqueeze(-1)
            else:
                for_tilted = ((z - marginals) * grad.unsqueeze(-1)).sum(0)
        return for_tilted, *(None,) * 5

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: Any) -> Any:
        marginals, z = _primals(ctx)
        if tangent is None:
            return z.new_zeros(z.shape[:-1])
        return ((z - marginals) * tangent).sum(-1)


class _CovarianceProduct(_SingleLevelFunction):
    """(tilted, k, v, method) -> Cov v."""

    @staticmethod
    def kernel(tilted: Tensor, k: Size, v: Tensor, method: str) -> Tensor:
        return kernels.covariance_product(tilted, k, v, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tilted, k, v, ctx.method = inputs
        _save(ctx, tilted, k, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None, None, None
        tilted, k, v = _saved(ctx)
        for_tilted = for_v = None
        if ctx.needs_input_grad[0]:
            for_tilted = third_cumulant_product(tilted, k, v, grad, ctx.method)
        if ctx.needs_input_grad[2]:
            for_v = covariance_product(tilted, k, grad, ctx.method)
        return for_tilted, None, for_v, None

    @staticmethod
    def jvp(ctx: Any, of_tilted: Tensor | None, _: Any, of_v: Tensor | None, *rest: Any) -> Any:
        tilted, k, v = _primals(ctx)
        tangent = None
        if of_tilted is not None:
            tangent = third_cumulant_product(tilted, k, v, of_tilted, ctx.method)
        if of_v is not None:
            tangent = _add(tangent, covariance_product(tilted, k, of_v, ctx.method))
        return tangent


_BEYOND = (
    "ksubset: derivatives of the k-subset distribution beyond the third cumulants "
    "(the derivative of a covariance product) are not implemented"
)


class _ThirdCumulantProduct(_SingleLevelFunction):
    """(tilted, k, u, v, method) -> sum_jl kappa_ijl u_j v_l, the end of the chain."""

    @staticmethod
    def kernel(tilted: Tensor, k: Size, u: Tensor, v: Tensor, method: str) -> Tensor:
        return kernels.third_cumulant_product(tilted, k, u, v, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise NotImplementedError(_BEYOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_BEYOND)


class _Sample(_SingleLevelFunction):
    """(logits, k, seeds, method) -> samples (samples, rows, n), tilted.

    Its derivative is SIMPLE's: that of the marginals, in place of the samples'.
    """

    @staticmethod
    def kernel(logits: Tensor, k: Size, seeds: Tensor, method: str) -> Any:
        return kernels.sample(logits, k, seeds, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, k, seeds, ctx.method = inputs
        ctx.samples = seeds.shape[0]
        _save(ctx, k, output[1])

    @staticmethod
    def backward(ctx: Any, for_samples: Tensor | None, for_tilted: Tensor | None) -> Any:
        k, tilted = _saved(ctx)
        grad = for_tilted
        if for_samples is not None:
            # One product serves all samples of a row: it is linear.
            total = for_samples[0] if len(for_samples) == 1 else for_samples.sum(0)
            product = covariance_product(tilted, k, total, ctx.method)
            grad = _add(grad, product)
        return grad, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        k, tilted = _primals(ctx)
        moved = covariance_product(tilted, k, tangent, ctx.method)
        return moved.expand(ctx.samples, *moved.shape).clone(), tangent.clone()


class _Swap(_SingleLevelFunction):
    """(logits, k, seeds, method, plan) -> samples (samples, rows, n), tilted.

    The derivative is a symmetric product L(z), that of swaps with this plan, or ReinMax's.
    """

    @staticmethod
    def kernel(logits: Tensor, k: Size, seeds: Tensor, method: str, plan: str) -> Any:
        return kernels.sample(logits, k, seeds, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, k, _, *ctx.how = inputs
        _save(ctx, k, *output)

    @staticmethod
    def backward(ctx: Any, for_samples: Tensor | None, for_tilted: Tensor | None) -> Any:
        k, z, tilted = _saved(ctx)
        grad = for_tilted
        if for_samples is not None:
            grad = _add(grad, swap_product(tilted, k, z, for_samples, *ctx.how))
        return grad, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        k, z, tilted = _primals(ctx)
        return _swaps_of_each(tilted, k, z, tangent, *ctx.how), tangent.clone()


class _SwapProduct(_SingleLevelFunction):
    """(tilted, k, z, v, method, plan) -> sum_s L(z_s) v_s. L is symmetric, and constant to whoever
    differentiates it."""

    @staticmethod
    def kernel(tilted: Tensor, k: Size, z: Tensor, v: Tensor, method: str, plan: str) -> Tensor:
        return kernels.swap_product(tilted, k, z, v, method, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, _, method, plan = inputs
        ctx.how = method, plan
        _save(ctx, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        for_v = None
        if grad is not None:
            tilted, k, z = _saved(ctx)
            for_v = _swaps_of_each(tilted, k, z, grad, *ctx.how)
        return None, None, None, for_v, None, None

    @staticmethod
    def jvp(ctx: Any, _tilted: Any, _k: Any, _z: Any, tangent: Tensor | None, *_: Any) -> Any:
        tilted, k, z = _primals(ctx)
        if tangent is None:
            return torch.zeros_like(tilted)
        return swap_product(tilted, k, z, tangent, *ctx.how)


def _swaps_of_each(tilted: Tensor, k: Size, z: Tensor, v: Tensor, method: str, plan: str) -> Tensor:
    """L(z_s) v for every sample, (samples, rows, n)."""
    tilted = tilted.expand(len(z), *tilted.shape).flatten(0, 1)
    k = k.expand(len(z), *k.shape).flatten(0, 1) if isinstance(k, Tensor) else k
    each = (x.expand(z.shape).reshape(1, -1, z.shape[-1]) for x in (z, v))
    return swap_product(tilted, k, *each, method, plan).reshape(z.shape)


class _Exchange(_SingleLevelFunction):
    """(tilted, k, z, v) -> product with the exact swap rates, linear and symmetric in v. They are
    constants to whoever differentiates it."""

    @staticmethod
    def kernel(tilted: Tensor, k: Size, z: Tensor, v: Tensor) -> Tensor:
        each = kernels.counts(tilted, k) if isinstance(k, int) else k
        return kernels.exchange(tilted, each, z, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, *inputs[:3])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        return None, None, None, None if grad is None else exchange(*_saved(ctx), grad)

    @staticmethod
    def jvp(ctx: Any, _tilted: Any, _k: Any, _z: Any, tangent: Tensor | None) -> Any:
        tilted, k, z = _primals(ctx)
        return torch.zeros_like(z) if tangent is None else exchange(tilted, k, z, tangent)


def _samples_like(logits: Tensor, _k: Size, seeds: Tensor, *_: str) -> tuple[Tensor, Tensor]:
    return logits.new_empty(seeds.shape[0], *logits.shape), torch.empty_like(logits)


tilt = _register(
    "tilt",
    "(Tensor logits, Tensor k, str method) -> Tensor",
    _Tilt,
    lambda logits, k, method: torch.empty_like(logits),
    rows_in=(0, 0, None),
    rows_out=(0,),
)
mode = _register(
    "mode",
    "(Tensor logits, Tensor k) -> Tensor",
    _Mode,
    lambda logits, k: torch.empty_like(logits),
    rows_in=(0, 0),
    rows_out=(0,),
)
infer = _register(
    "infer",
    "(Tensor logits, Tensor k, str method) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _Infer,
    lambda logits, k, method: (
        logits.new_empty(logits.shape[0]),
        torch.empty_like(logits),
        torch.empty_like(logits),
        logits.new_empty(logits.shape[0], dtype=widest(logits)),
        logits.new_empty(logits.shape[0], dtype=widest(logits)),
    ),
    rows_in=(0, 0, None),
    rows_out=(0, 0, 0, 0, 0),
)


def know(logits: Tensor, k: Size, method: str) -> Known:
    """The numbers that :func:`infer` gives in plain eager mode, for :func:`infer_known`."""
    with torch.no_grad():
        known: Known = _Infer.kernel(logits, k, method)
    return known


def infer_known(logits: Tensor, k: Size, method: str, known: Known) -> Any:
    """:func:`infer`, in plain eager mode, of rows whose results are known."""
    if not torch.is_grad_enabled() and no_forward_mode():
        return _InferKnown.forward(logits, k, method, known)
    function: Any = _InferKnown  # whose apply only the interpreter knows
    return function.apply(logits, k, method, known)


entropy = _register(
    "entropy",
    "(Tensor logits, Tensor k, str method) -> (Tensor, Tensor)",
    _Entropy,
    lambda logits, k, method: (logits.new_empty(logits.shape[0]), torch.empty_like(logits)),
    rows_in=(0, 0, None),
    rows_out=(0, 0),
)
divergence = _register(
    "divergence",
    "(Tensor tilted_p, Tensor tilted_q, Tensor marginals_p, Tensor marginals_q, Tensor rests_p, "
    "Tensor log_mass_p, Tensor log_mass_q, Tensor k_p, Tensor k_q, str method) -> Tensor",
    _Divergence,
    lambda tilted_p, tilted_q, marginals_p, *rest: marginals_p.new_empty(marginals_p.shape[0]),
    rows_in=(*(0,) * 9, None),
    rows_out=(0,),
)
log_outcome = _register(
    "log_outcome",
    "(Tensor tilted, Tensor marginals, Tensor log_mass, Tensor k, Tensor z, str method) -> Tensor",
    _LogOutcome,
    lambda tilted, marginals, log_mass, k, z, method: tilted.new_empty(z.shape[:-1]),
    rows_in=(0, 0, 0, 0, 1, None),
    rows_out=(1,),
)
covariance_product = _register(
    "covariance_product",
    "(Tensor tilted, Tensor k, Tensor v, str method) -> Tensor",
    _CovarianceProduct,
    lambda tilted, k, v, method: torch.empty_like(tilted),
    rows_in=(0, 0, 0, None),
    rows_out=(0,),
)
third_cumulant_product = _register(
    "third_cumulant_product",
    "(Tensor tilted, Tensor k, Tensor u, Tensor v, str method) -> Tensor",
    _ThirdCumulantProduct,
    lambda tilted, k, u, v, method: torch.empty_like(tilted),
    rows_in=(0, 0, 0, 0, None),
    rows_out=(0,),
)
swap = _register(
    "swap",
    "(Tensor logits, Tensor k, Tensor seeds, str method, str plan) -> (Tensor, Tensor)",
    _Swap,
    _samples_like,
    rows_in=(0, 0, 1, None, None),
    rows_out=(1, 0),
)
swap_product = _register(
    "swap_product",
    "(Tensor tilted, Tensor k, Tensor z, Tensor v, str method, str plan) -> Tensor",
    _SwapProduct,
    lambda tilted, *_: torch.empty_like(tilted),
    rows_in=(0, 0, 1, 1, None, None),
    rows_out=(0,),
)
exchange = _register(
    "exchange",
    "(Tensor tilted, Tensor k, Tensor z, Tensor v) -> Tensor",
    _Exchange,
    lambda tilted, k, z, v: torch.empty_like(v),
    rows_in=(0, 0, 0, 0),
    rows_out=(0,),
)
sample = _register(
    "sample",
    "(Tensor logits, Tensor k, Tensor seeds, str method) -> (Tensor, Tensor)",
    _Sample,
    _samples_like,
    rows_in=(0, 0, 1, None),
    rows_out=(1, 0),
)
