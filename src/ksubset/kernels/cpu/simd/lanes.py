"""Vectors as types, and their arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

CONTRACT = ("contract",)  # multiply-adds may be fused; nothing may be reordered


class Lanes(types.Type):
    """Several numbers of one type."""

    def __init__(self, dtype: types.Number, count: int) -> None:
        self.dtype = dtype
        self.count = count
        super().__init__(name=f"{dtype}x{count}")


BYTES = 32  # of a vector
F32 = Lanes(types.float32, BYTES // 4)
F64 = Lanes(types.float64, BYTES // 8)
PAIRS = {kind: Lanes(kind.dtype, 2 * kind.count) for kind in (F32, F64)}
HALVES = {pair: kind for kind, pair in PAIRS.items()}
FLOATS = (*PAIRS, *HALVES)
WORDS = {F32: Lanes(types.uint32, 8), F64: Lanes(types.uint64, 4)}
SEEDS = {kind: Lanes(types.uint64, kind.count) for kind in FLOATS}
HALF_SEEDS = {kind: Lanes(types.uint32, 2 * kind.count) for kind in PAIRS}
INTEGERS = tuple(dict.fromkeys((*WORDS.values(), *SEEDS.values(), *HALF_SEEDS.values())))


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        if kind in INTEGERS:
            element = ir.IntType(kind.dtype.bitwidth)
        else:
            element = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


def _splat(builder: Any, value: Any, kind: Lanes, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, undefined, zeros)


def as_lanes(context: Any, builder: Any, value: Any, given: Any, kind: Lanes) -> Any:
    """A vector as it is; a scalar in every lane."""
    if isinstance(given, Lanes):
        return value
    scalar = context.cast(builder, value, given, kind.dtype)
    return _splat(builder, scalar, kind, context.get_value_type(kind))


_SCALARS = (types.float64, types.float32, types.int64)
_WHOLE_SCALARS = (types.uint64, types.int64)


def _register_arithmetic(function: Callable[..., Any], instructions: dict[bool, str]) -> None:
    """Instructions by whether they are those of integers."""
    cases = []
    for whole in instructions:
        for kind in INTEGERS if whole else FLOATS:
            cases.append(signature(kind, kind, kind))
            for scalar in _WHOLE_SCALARS if whole else _SCALARS:
                cases += [signature(kind, kind, scalar), signature(kind, scalar, kind)]
    template = type(f"_{function.__name__}", (ConcreteTemplate,), {"cases": cases})
    infer_global(function)(template)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = sig.return_type in INTEGERS
        a, b = (
            as_lanes(context, builder, value, given, sig.return_type)
            for value, given in zip(args, sig.args, strict=True)
        )
        flags = () if whole else CONTRACT
        return getattr(builder, instructions[whole])(a, b, flags=flags)

    lower_builtin(function, Lanes, Lanes)(lower)
    for scalar in (types.Float, types.Integer):
        lower_builtin(function, Lanes, scalar)(lower)
        lower_builtin(function, scalar, Lanes)(lower)


for _function, _instructions in (
    (operator.add, {False: "fadd", True: "add"}),
    (operator.sub, {False: "fsub"}),
    (operator.mul, {False: "fmul", True: "mul"}),
    (operator.truediv, {False: "fdiv"}),
    (operator.and_, {True: "and_"}),
    (operator.xor, {True: "xor"}),
    (operator.lshift, {True: "shl"}),
    (operator.rshift, {True: "lshr"}),
):
    _register_arithmetic(_function, _instructions)


def lanes_of(given: Any) -> Lanes:
    """The vectors of the elements of an array, a vector or a number."""
    if isinstance(given, Lanes):
        return given
    dtype = given.dtype if isinstance(given, types.Array) else given
    return F32 if dtype == types.float32 else F64


def lane_numbers(numbers: Any) -> Any:
    """Which lanes a shuffle takes."""
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), list(numbers))


def constant(bits: int, count: int, value: int) -> Any:
    """A vector of equal integers."""
    return ir.Constant(ir.VectorType(ir.IntType(bits), count), [value] * count)


def width(array: Any) -> int:
    """How many elements of an array one vector holds."""
    raise NotImplementedError  # compiled code has the overload below


@overload(width)
def _width(array):
    count = lanes_of(array).count
    return lambda array: count


@intrinsic
def fill(typing: Any, like: Any, value: Any) -> Any:
    """The value in every lane of a vector of the elements of ``like``, an array or a vector."""
    kind = lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return as_lanes(context, builder, args[1], sig.args[1], kind)

    return kind(like, value), lower


@intrinsic
def pair(typing: Any, a: Any, b: Any) -> Any:
    """Two vectors."""
    kind = next(k for k in (*FLOATS, *INTEGERS) if (k.dtype, k.count) == (a.dtype, 2 * a.count))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.shuffle_vector(*args, lane_numbers(range(kind.count)))

    return kind(a, b), lower


@intrinsic
def sum_of_pair(typing: Any, x: Any) -> Any:
    """One vector of two."""
    kind = HALVES[x]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, second = (
            builder.shuffle_vector(args[0], args[0], lane_numbers(range(start, start + kind.count)))
            for start in (0, kind.count)
        )
        return builder.fadd(first, second)

    return kind(x), lower
