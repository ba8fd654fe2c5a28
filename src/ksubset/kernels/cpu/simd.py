"""Vector types for Numba: eight float32 or four float64 side by side in a register.

Numba's compiler vectorises simple loops by itself, but not products of complex numbers, nor the
short loops a row of twenty items consists of. With a type that *is* a vector of the machine (LLVM
splits it into as many registers as it takes) kernels say what runs in parallel:

    total = fill(row, 0)
    for i in range(0, len(row), width(row)):
        total = total + load(row, i)

Arithmetic is that of the elements, scalars are broadcast; rows are padded to whole vectors by
their owner. Beside the floating point numbers there are unsigned integers, as many in a vector:
*words* as wide as the numbers, for flags, and 64-bit *seeds*.

A long chain of operations, such as an exponential, keeps a machine waiting for its own results.
*Pairs* are two vectors that go through it together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

_CONTRACT = ("contract",)  # multiply-adds may be fused; nothing may be reordered


class Lanes(types.Type):
    """Several numbers of one type."""

    def __init__(self, dtype: types.Number, count: int) -> None:
        self.dtype = dtype
        self.count = count
        super().__init__(name=f"{dtype}x{count}")


BYTES = 32  # of a vector
F32 = Lanes(types.float32, BYTES // 4)
F64 = Lanes(types.float64, BYTES // 8)
_PAIRS = {kind: Lanes(kind.dtype, 2 * kind.count) for kind in (F32, F64)}
_HALVES = {pair: kind for kind, pair in _PAIRS.items()}
_FLOATS = (*_PAIRS, *_HALVES)
_WORDS = {F32: Lanes(types.uint32, 8), F64: Lanes(types.uint64, 4)}
_SEEDS = {kind: Lanes(types.uint64, kind.count) for kind in _FLOATS}
_HALF_SEEDS = {kind: Lanes(types.uint32, 2 * kind.count) for kind in _PAIRS}
_MOST_HALF = (1 << 31) - 1
_INTEGERS = tuple(dict.fromkeys((*_WORDS.values(), *_SEEDS.values(), *_HALF_SEEDS.values())))


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        if kind in _INTEGERS:
            element = ir.IntType(kind.dtype.bitwidth)
        else:
            element = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


def _splat(builder: Any, value: Any, kind: Lanes, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, undefined, zeros)


def _as_lanes(context: Any, builder: Any, value: Any, given: Any, kind: Lanes) -> Any:
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
        for kind in _INTEGERS if whole else _FLOATS:
            cases.append(signature(kind, kind, kind))
            for scalar in _WHOLE_SCALARS if whole else _SCALARS:
                cases += [signature(kind, kind, scalar), signature(kind, scalar, kind)]
    template = type(f"_{function.__name__}", (ConcreteTemplate,), {"cases": cases})
    infer_global(function)(template)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = sig.return_type in _INTEGERS
        a, b = (
            _as_lanes(context, builder, value, given, sig.return_type)
            for value, given in zip(args, sig.args, strict=True)
        )
        flags = () if whole else _CONTRACT
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


def _lanes_of(given: Any) -> Lanes:
    if isinstance(given, Lanes):
        return given
    dtype = given.dtype if isinstance(given, types.Array) else given
    return F32 if dtype == types.float32 else F64


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def width(array: Any) -> int:
    """How many elements of an array one vector holds."""
    raise NotImplementedError  # compiled code has the overload below


@overload(width)
def _width(array):
    count = _lanes_of(array).count
    return lambda array: count


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + width]."""
    kind = _lanes_of(array)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], *args, vector)
        return builder.load(place, align=kind.dtype.bitwidth // 8)

    return kind(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index : index + width] = value; a pair is as long as two vectors."""
    kind = value
    if _HALVES.get(value, value) != _lanes_of(array):
        return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], args[0], args[1], vector)
        builder.store(args[2], place, align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, kind), lower


@intrinsic
def load_pair(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + 2 width]."""
    kind = _PAIRS[_lanes_of(array)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], *args, vector)
        return builder.load(place, align=kind.dtype.bitwidth // 8)

    return kind(array, types.intp), lower


def _lane_numbers(numbers: Any) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), list(numbers))


@intrinsic
def pair(typing: Any, a: Any, b: Any) -> Any:
    """Two vectors."""
    kind = next(k for k in (*_FLOATS, *_INTEGERS) if (k.dtype, k.count) == (a.dtype, 2 * a.count))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.shuffle_vector(*args, _lane_numbers(range(kind.count)))

    return kind(a, b), lower


@intrinsic
def sum_of_pair(typing: Any, x: Any) -> Any:
    """One vector of two."""
    kind = _HALVES[x]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, second = (
            builder.shuffle_vector(
                args[0], args[0], _lane_numbers(range(start, start + kind.count))
            )
            for start in (0, kind.count)
        )
        return builder.fadd(first, second)

    return kind(x), lower


@intrinsic
def fill(typing: Any, like: Any, value: Any) -> Any:
    """The value in every lane of a vector of the elements of ``like``, an array or a vector."""
    kind = _lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _as_lanes(context, builder, args[1], sig.args[1], kind)

    return kind(like, value), lower


@intrinsic
def choose(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """yes where a > b, else no; NaN compares as false."""
    kind = next(x for x in (a, b, yes, no) if isinstance(x, Lanes))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b, yes, no = (
            _as_lanes(context, builder, value, given, kind)
            for value, given in zip(args, sig.args, strict=True)
        )
        return builder.select(builder.fcmp_ordered(">", a, b), yes, no)

    return kind(a, b, yes, no), lower


@intrinsic
def any_above(typing: Any, a: Any, b: Any) -> Any:
    """Whether a > b, a number, in any lane."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        b = _as_lanes(context, builder, args[1], sig.args[1], a)
        above = builder.bitcast(builder.fcmp_ordered(">", args[0], b), ir.IntType(a.count))
        return builder.icmp_unsigned("!=", above, ir.Constant(ir.IntType(a.count), 0))

    return types.boolean(a, b), lower


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
def _times_two_to_the(typing: Any, x: Any, count: Any) -> Any:
    """2^n x, for whole numbers n in the lowest bits of a number: added to the exponent of x."""
    bits, mantissa = (32, 23) if x.dtype == types.float32 else (64, 52)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = ir.VectorType(ir.IntType(bits), x.count)
        value, exponent = (builder.bitcast(argument, whole) for argument in args)
        exponent = builder.shl(exponent, _constant(bits, x.count, mantissa))
        return builder.bitcast(builder.add(value, exponent), args[0].type)

    return x(x, count), lower


def _constant(bits: int, count: int, value: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(bits), count), [value] * count)


@intrinsic
def load_seeds(typing: Any, array: Any, index: Any, like: Any) -> Any:
    """One 64-bit integer for every lane of a vector of the elements of ``like``."""
    kind = _SEEDS[_lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], args[0], args[1], vector)
        return builder.load(place, align=8)

    return kind(array, types.intp, like), lower


@intrinsic
def halves(typing: Any, like: Any, bits: Any) -> Any:
    """64 random bits of every lane as a pair of numbers of 31."""
    kind = _HALF_SEEDS[_lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        one = ir.VectorType(ir.IntType(32), bits.count)
        high = builder.trunc(builder.lshr(args[1], _constant(64, bits.count, 33)), one)
        low = builder.and_(builder.trunc(args[1], one), _constant(32, bits.count, _MOST_HALF))
        return builder.shuffle_vector(high, low, _lane_numbers(range(kind.count)))

    return kind(like, bits), lower


@intrinsic
def shares(typing: Any, like: Any, whole: Any) -> Any:
    """A number u in (0, 2^31), of which there are the digits before the point, and 2^31 - u."""
    kind = _PAIRS[_lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        other = builder.xor(args[1], _constant(32, kind.count, _MOST_HALF))
        middle = ir.Constant(vector, [0.5] * kind.count)  # never 0
        results = [builder.fadd(builder.sitofp(x, vector), middle) for x in (args[1], other)]
        return context.make_tuple(builder, sig.return_type, results)

    return types.UniTuple(kind, 2)(like, whole), lower


@intrinsic
def finer_shares(typing: Any, like: Any, whole: Any, fraction: Any) -> Any:
    """The same with the digits behind the point: however small one of the two is, it has all the
    digits of its type (as far as 62 bits go)."""
    kind = _PAIRS[_lanes_of(like)]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        most = _constant(32, kind.count, _MOST_HALF)
        results = []
        for parts in (args[1:], [builder.xor(part, most) for part in args[1:]]):
            high, low = (builder.sitofp(part, vector) for part in parts)
            # Half a unit of the last bit: never 0.
            high = builder.fadd(high, ir.Constant(vector, [2.0**-32] * kind.count))
            low = builder.fmul(low, ir.Constant(vector, [2.0**-31] * kind.count), flags=_CONTRACT)
            results.append(builder.fadd(high, low, flags=_CONTRACT))
        return context.make_tuple(builder, sig.return_type, results)

    return types.UniTuple(kind, 2)(like, whole, fraction), lower


@intrinsic
def no_flags(typing: Any, like: Any) -> Any:
    """Words without any bit set."""
    kind = _WORDS[_lanes_of(like)]
    return kind(like), lambda context, builder, sig, args: ir.Constant(
        context.get_value_type(kind), None
    )


@intrinsic
def flag(typing: Any, x: Any) -> Any:
    """Words in which bit number x is set, for whole numbers x."""
    kind = _WORDS[x]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.fptosi(args[0], context.get_value_type(kind))
        return builder.shl(_constant(kind.dtype.bitwidth, kind.count, 1), place)

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
        return builder.bitcast(args[0], context.get_value_type(_WORDS[x]))

    return _WORDS[x](x), lower


@intrinsic
def as_numbers(typing: Any, like: Any, words: Any) -> Any:
    """And back: what arrays of numbers hold words as."""
    kind = _lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[1], context.get_value_type(kind))

    return kind(like, words), lower


@intrinsic
def transpose(
    typing: Any, source: Any, start: Any, stride: Any, target: Any, to: Any, step: Any
) -> Any:
    """target[to + j step + i] = source[start + i stride + j] for i, j below the width."""
    kind = _lanes_of(source)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, start, stride, target, to, step = args
        vector, align = context.get_value_type(kind), kind.dtype.bitwidth // 8
        place = lambda i: ir.Constant(start.type, i)  # noqa: E731
        rows = []
        for i in range(kind.count):
            index = builder.add(start, builder.mul(stride, place(i)))
            pointer = _address(context, builder, sig.args[0], source, index, vector)
            rows.append(builder.load(pointer, align=align))
        # Blocks of 1, 2, 4 ... change places across the diagonal.
        size = 1
        while size < kind.count:
            both = kind.count
            low = [j & ~size | (both if j & size else 0) for j in range(both)]
            high = [(j | size) + (both if j & size else 0) for j in range(both)]
            for i in range(both):
                if not i & size:
                    a, b = rows[i], rows[i | size]
                    rows[i], rows[i | size] = (
                        builder.shuffle_vector(a, b, _lane_numbers(order)) for order in (low, high)
                    )
            size *= 2
        for j, row in enumerate(rows):
            index = builder.add(to, builder.mul(step, place(j)))
            pointer = _address(context, builder, sig.args[3], target, index, vector)
            builder.store(row, pointer, align=align)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), lower


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the lanes, in float64, always in the same order."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, count = args[0], x.count
        if x == F32:
            value = builder.fpext(value, ir.VectorType(ir.DoubleType(), count))
        while count > 1:
            count //= 2
            low, high = (_lane_numbers(range(start, start + count)) for start in (0, count))
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
    kind = _lanes_of(like)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        narrow = context.cast(builder, args[1], sig.args[1], kind.dtype)
        return context.cast(builder, narrow, kind.dtype, types.float64)

    return types.float64(like, value), lower


@intrinsic
def _exp_series(typing: Any, x: Any) -> Any:
    """exp of small x, by Taylor's series up to rounding for |x| <= log(2) / 2."""
    degree = 7 if x.dtype == types.float32 else 13

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        multiply_add = lambda a, b, c: builder.fadd(  # noqa: E731
            builder.fmul(a, b, flags=_CONTRACT), c, flags=_CONTRACT
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


@njit(nogil=True)
def copy(source, target, n):
    """target[:n] = source[:n], by whole vectors as far as they go (a slice goes item by item)."""
    whole = n - n % width(target)
    for i in range(0, whole, width(target)):
        store(target, i, load(source, i))
    for i in range(whole, n):
        target[i] = source[i]


@njit(nogil=True)
def clear(target, n):
    """target[:n] = 0."""
    whole = n - n % width(target)
    for i in range(0, whole, width(target)):
        store(target, i, fill(target, 0.0))
    for i in range(whole, n):
        target[i] = 0
