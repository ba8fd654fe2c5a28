"""Integers: flags, as wide as the numbers, and random bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ksubset.kernels.cpu.simd.lanes import (
    CONTRACT,
    HALF_SEEDS,
    PAIRS,
    WORDS,
    constant,
    lane_numbers,
    lanes_of,
)

_MOST_HALF = (1 << 31) - 1


@intrinsic
def halves(typing: Any, like: Any, bits: Any) -> Any:
    """64 random bits of every lane as a pair of numbers of 31."""
    kind = HALF_SEEDS[lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        one = ir.VectorType(ir.IntType(32), bits.count)
        high = builder.trunc(builder.lshr(args[1], constant(64, bits.count, 33)), one)
        low = builder.and_(builder.trunc(args[1], one), constant(32, bits.count, _MOST_HALF))
        return builder.shuffle_vector(high, low, lane_numbers(range(kind.count)))

    return kind(like, bits), lower


@intrinsic
def shares(typing: Any, like: Any, whole: Any) -> Any:
    """A number u in (0, 2^31), of which there are the digits before the point, and 2^31 - u."""
    kind = PAIRS[lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        other = builder.xor(args[1], constant(32, kind.count, _MOST_HALF))
        middle = ir.Constant(vector, [0.5] * kind.count)  # never 0
        results = [builder.fadd(builder.sitofp(x, vector), middle) for x in (args[1], other)]
        return context.make_tuple(builder, sig.return_type, results)

    return types.UniTuple(kind, 2)(like, whole), lower


@intrinsic
def finer_shares(typing: Any, like: Any, whole: Any, fraction: Any) -> Any:
    """The same with the digits behind the point: however small one of the two is, it has all the
    digits of its type (as far as 62 bits go)."""
    kind = PAIRS[lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        most = constant(32, kind.count, _MOST_HALF)
        results = []
        for parts in (args[1:], [builder.xor(part, most) for part in args[1:]]):
            high, low = (builder.sitofp(part, vector) for part in parts)
            # Half a unit of the last bit: never 0.
            high = builder.fadd(high, ir.Constant(vector, [2.0**-32] * kind.count))
            low = builder.fmul(low, ir.Constant(vector, [2.0**-31] * kind.count), flags=CONTRACT)
            results.append(builder.fadd(high, low, flags=CONTRACT))
        return context.make_tuple(builder, sig.return_type, results)

    return types.UniTuple(kind, 2)(like, whole, fraction), lower


@intrinsic
def no_flags(typing: Any, like: Any) -> Any:
    """Words without any bit set."""
    kind = WORDS[lanes_of(like)]
    return kind(like), lambda context, builder, sig, args: ir.Constant(
        context.get_value_type(kind), None
    )


@intrinsic
def flag(typing: Any, x: Any) -> Any:
    """Words in which bit number x is set, for whole numbers x."""
    kind = WORDS[x]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.fptosi(args[0], context.get_value_type(kind))
        return builder.shl(constant(kind.dtype.bitwidth, kind.count, 1), place)

    return kind(x), lower


@intrinsic
def append(typing: Any, flags: Any, a: Any, b: Any) -> Any:
    """The flags moved up by one bit, the lowest set where a > b."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flags, a, b = args
        minus_one = builder.sext(builder.fcmp_ordered(">", a, b), flags.type)
        return builder.sub(builder.add(flags, flags), minus_one)

    return flags(flags, a, b), lower


@intrinsic
def where(typing: Any, flags: Any, yes: Any, no: Any) -> Any:
    """yes where any bit is set, else no."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flags, yes, no = args
        return builder.select(
            builder.icmp_unsigned("!=", flags, ir.Constant(flags.type, None)), yes, no
        )

    return yes(flags, yes, no), lower


@intrinsic
def as_words(typing: Any, x: Any) -> Any:
    """The bits of numbers."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(WORDS[x]))

    return WORDS[x](x), lower


@intrinsic
def as_numbers(typing: Any, like: Any, words: Any) -> Any:
    """And back: what arrays of numbers hold words as."""
    kind = lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[1], context.get_value_type(kind))

    return kind(like, words), lower
