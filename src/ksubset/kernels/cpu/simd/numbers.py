"""Floating point numbers: comparisons, sums and extremes, rounding, roots."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ksubset.kernels.cpu.simd.lanes import F32, Lanes, as_lanes, lane_numbers, lanes_of


@intrinsic
def choose(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """yes where a > b, else no; NaN compares as false."""
    kind = next(x for x in (a, b, yes, no) if isinstance(x, Lanes))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b, yes, no = (
            as_lanes(context, builder, value, given, kind)
            for value, given in zip(args, sig.args, strict=True)
        )
        return builder.select(builder.fcmp_ordered(">", a, b), yes, no)

    return kind(a, b, yes, no), lower


def _any(comparison: str, description: str) -> Any:
    """Whether a compares so with b, a number, in any lane."""

    def typed(typing: Any, a: Any, b: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            b = as_lanes(context, builder, args[1], sig.args[1], a)
            compare = builder.fcmp_unordered if comparison == "!=" else builder.fcmp_ordered
            found = builder.bitcast(compare(comparison, args[0], b), ir.IntType(a.count))
            return builder.icmp_unsigned("!=", found, ir.Constant(ir.IntType(a.count), 0))

        return types.boolean(a, b), lower

    typed.__doc__ = description
    return intrinsic(typed)


any_above = _any(">", "Whether a > b, a number, in any lane.")
any_unequal = _any("!=", "Whether a != b, a number, in any lane; NaN is unequal.")


def _elementwise(name: str) -> Any:
    """An LLVM function of one vector."""

    def typed(typing: Any, x: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vector = args[0].type
            function = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(vector, [vector]),
                f"llvm.{name}.v{x.count}f{x.dtype.bitwidth}",
            )
            return builder.call(function, args)

        return x(x), lower

    typed.__doc__ = f"{name} of every lane."
    return intrinsic(typed)


absolute = _elementwise("fabs")
nearest = _elementwise("nearbyint")
root = _elementwise("sqrt")


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the lanes, in float64, always in the same order."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, count = args[0], x.count
        if x == F32:
            value = builder.fpext(value, ir.VectorType(ir.DoubleType(), count))
        while count > 1:
            count //= 2
            low, high = (lane_numbers(range(start, start + count)) for start in (0, count))
            value = builder.fadd(
                builder.shuffle_vector(value, value, low),
                builder.shuffle_vector(value, value, high),
            )
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float64(x), lower


def _reduction(name: str, comparison: str) -> Any:
    """The extreme lane, as a scalar of the vector's type."""

    def typed(typing: Any, x: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lane = lambda i: builder.extract_element(args[0], ir.Constant(ir.IntType(32), i))  # noqa: E731
            value = lane(0)
            for i in range(1, x.count):
                other = lane(i)
                value = builder.select(builder.fcmp_ordered(comparison, value, other), value, other)
            return value

        return x.dtype(x), lower

    typed.__doc__ = f"The {name} of the lanes."
    return intrinsic(typed)


largest = _reduction("largest", ">")
smallest = _reduction("smallest", "<")


@intrinsic
def rounded(typing: Any, like: Any, value: Any) -> Any:
    """A float64 as an array of the type of ``like`` would hold it."""
    kind = lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        narrow = context.cast(builder, args[1], sig.args[1], kind.dtype)
        return context.cast(builder, narrow, kind.dtype, types.float64)

    return types.float64(like, value), lower
