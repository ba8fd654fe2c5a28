"""Exponentials."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from ksubset.kernels.cpu.simd.lanes import CONTRACT, constant
from ksubset.kernels.cpu.simd.numbers import absolute, choose


@intrinsic
def _times_two_to_the(typing: Any, x: Any, count: Any) -> Any:
    """2^n x, for whole numbers n in the lowest bits of a number: added to the exponent of x."""
    bits, mantissa = (32, 23) if x.dtype == types.float32 else (64, 52)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = ir.VectorType(ir.IntType(bits), x.count)
        value, exponent = (builder.bitcast(argument, whole) for argument in args)
        exponent = builder.shl(exponent, constant(bits, x.count, mantissa))
        return builder.bitcast(builder.add(value, exponent), args[0].type)

    return x(x, count), lower


@intrinsic
def _exp_series(typing: Any, x: Any) -> Any:
    """exp of small x, by Taylor's series up to rounding for |x| <= log(2) / 2."""
    degree = 7 if x.dtype == types.float32 else 13

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        multiply_add = lambda a, b, c: builder.fadd(  # noqa: E731
            builder.fmul(a, b, flags=CONTRACT), c, flags=CONTRACT
        )
        terms = [
            ir.Constant(args[0].type, [1 / math.factorial(power)] * x.count)
            for power in range(degree + 1)
        ]
        # Neighbours are put together, by x, by x^2 ...: fewer steps that wait for each other.
        power = args[0]
        while len(terms) > 1:
            last = terms[len(terms) & ~1 :]
            terms = [
                multiply_add(power, high, low)
                for low, high in zip(terms[::2], terms[1::2], strict=False)
            ] + last
            power = builder.fmul(power, power)
        return terms[0]

    return x(x), lower


def exp(x: Any) -> Any:
    """exp(x) within the range of exponents."""
    raise NotImplementedError  # compiled code has the overload below


@overload(exp)
def _exp(x):
    # log 2 in two parts, the first with so few digits that its multiples are exact; and a number
    # so large that to add it rounds to a whole number, kept in the lowest bits.
    high, low, large = (
        (0.693359375, -2.12194440e-4, 1.5 * 2.0**23)
        if x.dtype == types.float32
        else (6.93145751953125e-1, 1.42860682030941723212e-6, 1.5 * 2.0**52)
    )

    def exp(x):
        count = x * 1.4426950408889634 + large
        power = count - large
        return _times_two_to_the(_exp_series((x - power * high) - power * low), count)

    return exp


def exp_negative(x: Any) -> Any:
    """exp(-|x|), exactly 0 where that would be subnormal (and for infinite x)."""
    raise NotImplementedError  # compiled code has the overload below


@overload(exp_negative)
def _exp_negative(x):
    least = -87.0 if x.dtype == types.float32 else -708.0

    def exp_negative(x):
        y = 0.0 - absolute(x)
        value = exp(choose(y, least, y, 0.0))
        # Neither branch of a comparison with NaN is taken: NaN stays NaN.
        return choose(y, least, value, choose(0.0, y, 0.0, y))

    return exp_negative
