"""Functions of rows as primitives of JAX: the one place where transforms are registered.

A primitive takes arrays with equal leading dimensions, which are its rows: ``vmap`` only adds to
them, so that loops until all rows are done and choices for all rows at once stay what they are
(JAX would run both branches of a choice, and mask loops). Derivatives are explicit: the covariance
product and the third cumulants are linear and symmetric, and each is the derivative of the one
before (docs/mathematics.md, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ksubset.jax import _coins, _drawing, _exchange, _series, _spectral
from ksubset.jax._blocks import by_blocks, complete


def _rows(
    name: str,
    own: Sequence[int],
    function: Callable[..., Any],
    results: Sequence[int],
    on_cpu: Callable[..., Any] | None = None,
) -> Primitive:
    """A primitive from a function of rows.

    Args:
        own: for each argument, how many dimensions a row has.
        function: of arguments with one leading dimension; static ones by keyword.
        results: for each result, how many dimensions a row has.
        on_cpu: the same function, if on a CPU blocks of rows that fit into its cache should come
            one after the other.
    """
    primitive = Primitive(f"ksubset_{name}")
    primitive.multiple_results = True

    def run(function: Callable[..., Any], *arguments: Array, **static: Any) -> list[Array]:
        first = arguments[0]
        lead = first.shape[: first.ndim - own[0]]
        rows = math.prod(lead)
        flat = [
            x.reshape(rows, *x.shape[x.ndim - d :]) for x, d in zip(arguments, own, strict=True)
        ]
        out = function(*flat, **static)
        out = out if isinstance(out, tuple) else (out,)
        return [x.reshape(*lead, *x.shape[1:]) for x in out]

    def abstract(*arguments: Any, **static: Any) -> list[Any]:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arguments]
        out = jax.eval_shape(partial(run, function, **static), *shapes)
        return [_like(arguments, x) for x in out]

    def batch(arguments: Any, dims: Any, **static: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(arguments, dims, strict=True) if d is not None)
        full = [
            jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
            for x, d in zip(arguments, dims, strict=True)
        ]
        return primitive.bind(*full, **static), [0] * len(results)

    primitive.def_impl(partial(_run_eagerly, primitive))
    primitive.def_abstract_eval(abstract)
    batching.primitive_batchers[primitive] = batch

    def lower(function: Callable[..., Any], **where: str) -> None:
        rule = mlir.lower_fun(partial(run, function), multiple_results=True)
        mlir.register_lowering(primitive, rule, **where)

    lower(function)
    if on_cpu is not None:
        lower(on_cpu, platform="cpu")
    return primitive


def _like(arguments: Sequence[Any], result: jax.ShapeDtypeStruct) -> Any:
    """The type of a result: sharded, and varying inside of ``shard_map``, like the argument that
    varies over most axes of a mesh. (What says so has another name from JAX 0.10 on.)"""

    def varies(argument: Any) -> int:
        return len(argument.mat.varying if hasattr(argument, "mat") else argument.vma)

    given = max((x for x in arguments if x.ndim >= result.ndim), key=varies)
    spec = jax.sharding.PartitionSpec(*given.sharding.spec[: result.ndim])
    return given.update(
        shape=result.shape,
        dtype=result.dtype,
        weak_type=False,
        sharding=given.sharding.update(spec=spec),
    )


def _run_eagerly(primitive: Primitive, *arguments: Array, **static: Any) -> list[Array]:
    return _compiled(primitive, tuple(sorted(static.items())))(*arguments)


def _compiled(primitive: Primitive, static: tuple[tuple[str, Any], ...]) -> Any:
    key = (primitive, static)
    if key not in _COMPILED:
        _COMPILED[key] = jax.jit(partial(primitive.bind, **dict(static)))
    return _COMPILED[key]


_COMPILED: dict[Any, Any] = {}


def _linear(primitive: Primitive, linear: Sequence[int], derivative: Callable[..., Array]) -> None:
    """Register the derivatives of a symmetric function that is linear in some of its arguments.

    Args:
        linear: where they are. With respect to any of them, its transpose is itself.
        derivative: in the first argument, the tilted logits, of a tangent and the arguments.
    """

    def jvp(primals: Any, tangents: Any, **static: Any) -> Any:
        out = primitive.bind(*primals, **static)
        total: Any = None
        for place, tangent in enumerate(tangents):
            if isinstance(tangent, ad.Zero) or place == 1:  # k has no tangent
                continue
            if place == 0:
                term = derivative(tangent, *primals)
            else:
                arguments = list(primals)
                arguments[place] = tangent
                (term,) = primitive.bind(*arguments, **static)
            total = term if total is None else total + term
        if total is None:
            return out, [ad.Zero.from_primal_value(out[0])]
        return out, [total]

    def transpose(cotangents: Any, *arguments: Any, **static: Any) -> Any:
        (cotangent,) = cotangents
        result: list[Any] = [None] * len(arguments)
        for place in linear:
            if ad.is_undefined_primal(arguments[place]):
                if isinstance(cotangent, ad.Zero):
                    result[place] = ad.Zero(arguments[place].aval)
                else:
                    swapped = list(arguments)
                    swapped[place] = cotangent
                    (result[place],) = primitive.bind(*swapped, **static)
        return result

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose


def _covariance(t: Array, k: Array, v: Array) -> Array:
    if t.shape[-1] <= _spectral.SHORT:
        return _spectral.of_short_rows(_coins.coins(t, k), v)
    if not _by_series(t):
        return _spectral.covariance_product(_coins.coins(t, k), v)

    def by_nodes(t: Array, k: Array, v: Array) -> tuple[Array]:
        return (_spectral.covariance_product(_coins.coins(t, k), v),)

    coins = _coins.coins(t, k)
    by = _series.expand(coins)
    found = _series.covariance_product(coins, by, coins.centre(v))
    return complete(by.serves, (found,), by_nodes, t, k, v)[0]


def _by_series(t: Array) -> bool:
    """Whether rows go by sums of powers, if their coins allow it."""
    return t.dtype == jnp.float32 and t.shape[0] > 0


def _third(t: Array, k: Array, u: Array, v: Array) -> Array:
    return _spectral.third_cumulant_product(_coins.coins(t, k), u, v)


def _moments(t: Array, k: Array) -> tuple[Array, Array]:
    if t.shape[-1] <= _spectral.SHORT:
        return _spectral.of_short_rows(_coins.coins(t, k), None)
    if not _by_series(t):
        return _spectral.infer(_coins.coins(t, k))
    coins = _coins.coins(t, k)
    by = _series.expand(coins)
    found = _series.infer(coins, by)
    log_mass, rarer = complete(
        by.serves, found, lambda t, k: _spectral.infer(_coins.coins(t, k)), t, k
    )
    return log_mass, rarer


_TILT = _rows("tilt", (1, 0), _coins.tilt, (1, 0), partial(by_blocks, _coins.tilt))
_MOMENTS = _rows("moments", (1, 0), _moments, (0, 1), partial(by_blocks, _moments))
_COVARIANCE = _rows(
    "covariance_product", (1, 0, 1), _covariance, (1,), partial(by_blocks, _covariance)
)
_THIRD = _rows("third_cumulant_product", (1, 0, 1, 1), _third, (1,))
_SAMPLE = _rows("sample", (1, 0, 1), _drawing.draw, (1,), partial(_drawing.draw, blocks=True))
_EXCHANGE = _rows("exchange", (1, 0, 1, 1), _exchange.exchange, (1,))


def tilt(logits: Array, k: Array) -> tuple[Array, Array]:
    """Tilted logits (..., n) and shifts (...) of logits (..., n) and k (...)."""
    t, shift = _TILT.bind(logits, k)
    return t, shift


def moments(t: Array, k: Array) -> tuple[Array, Array]:
    """log P(S = k), (...), and P(rarer side | S = k), (..., n), of tilted logits."""
    log_mass, rarer = _MOMENTS.bind(t, k)
    return log_mass, rarer


def covariance_product(t: Array, k: Array, v: Array) -> Array:
    """Cov v, of tilted logits; differentiable twice in them and in v."""
    return _COVARIANCE.bind(t, k, v)[0]


def third_cumulant_product(t: Array, k: Array, u: Array, v: Array) -> Array:
    """sum_jl kappa_ijl u_j v_l, of tilted logits; differentiable in u and v."""
    return _THIRD.bind(t, k, u, v)[0]


def sample(t: Array, k: Array, keys: Array, *, random: str, most: int) -> Array:
    """Booleans (..., n), k of them true in a row that admits a sample.

    Args:
        t: tilted logits.
        k: (...).
        keys: the data of a key per row, (..., words).
        random: the name of the keys' generator.
        most: no k, nor n - k if that is less, is larger.
    """
    return _SAMPLE.bind(t, k, keys, random=random, most=most)[0]


def exchange(t: Array, k: Array, z: Array, v: Array, *, most: int) -> Array:
    """The rates of the exact plan of z (..., n) times v, (..., n)."""
    return _EXCHANGE.bind(t, k, z, v, most=most)[0]


def _no_fourth(tangent: Array, t: Array, k: Array, u: Array, v: Array) -> Array:
    raise NotImplementedError(
        "the third cumulants of the k-subset distribution have no derivative in the logits: its "
        "functions are differentiable to third order"
    )


def _no_exchange(tangent: Array, *_: Array) -> Array:
    raise NotImplementedError("the rates of swaps have no derivative")


_linear(_COVARIANCE, (2,), lambda tangent, t, k, v: third_cumulant_product(t, k, tangent, v))
_linear(_THIRD, (2, 3), _no_fourth)
_linear(_EXCHANGE, (3,), _no_exchange)
