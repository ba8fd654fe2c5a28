"""Between vectors and arrays."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.simd.lanes import (
    HALVES,
    PAIRS,
    SEEDS,
    Lanes,
    fill,
    lane_numbers,
    lanes_of,
    width,
)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _loading(kind: Lanes) -> Any:
    """How such a vector is read from an array, at an index."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], args[0], args[1], vector)
        return builder.load(place, align=kind.dtype.bitwidth // 8)

    return lower


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + width]."""
    kind = lanes_of(array)
    return kind(array, types.intp), _loading(kind)


@intrinsic
def load_pair(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + 2 width]."""
    kind = PAIRS[lanes_of(array)]
    return kind(array, types.intp), _loading(kind)


@intrinsic
def load_seeds(typing: Any, array: Any, index: Any, like: Any) -> Any:
    """One 64-bit integer for every lane of a vector of the elements of ``like``."""
    kind = SEEDS[lanes_of(like)]
    return kind(array, types.intp, like), _loading(kind)


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index : index + width] = value; a pair is as long as two vectors."""
    kind = value
    if HALVES.get(value, value) != lanes_of(array):
        return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        place = _address(context, builder, sig.args[0], args[0], args[1], vector)
        builder.store(args[2], place, align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, kind), lower


@intrinsic
def transpose(
    typing: Any, source: Any, start: Any, stride: Any, target: Any, to: Any, step: Any
) -> Any:
    """target[to + j step + i] = source[start + i stride + j] for i, j below the width."""
    kind = lanes_of(source)

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
                        builder.shuffle_vector(a, b, lane_numbers(order)) for order in (low, high)
                    )
            size *= 2
        for j, row in enumerate(rows):
            index = builder.add(to, builder.mul(step, place(j)))
            pointer = _address(context, builder, sig.args[3], target, index, vector)
            builder.store(row, pointer, align=align)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), lower


@part
def copy(source, target, n):
    """target[:n] = source[:n], by whole vectors as far as they go (a slice goes item by item)."""
    whole = n - n % width(target)
    for i in range(0, whole, width(target)):
        store(target, i, load(source, i))
    for i in range(whole, n):
        target[i] = source[i]


@part
def clear(target, n):
    """target[:n] = 0."""
    whole = n - n % width(target)
    for i in range(0, whole, width(target)):
        store(target, i, fill(target, 0.0))
    for i in range(whole, n):
        target[i] = 0
