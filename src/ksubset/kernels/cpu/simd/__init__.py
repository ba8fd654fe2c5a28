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

from ksubset.kernels.cpu.simd.bits import (
    append,
    as_numbers,
    as_words,
    finer_shares,
    flag,
    halves,
    no_flags,
    shares,
    where,
)
from ksubset.kernels.cpu.simd.exponential import exp, exp_negative
from ksubset.kernels.cpu.simd.lanes import BYTES, fill, pair, sum_of_pair, width
from ksubset.kernels.cpu.simd.memory import (
    clear,
    copy,
    load,
    load_pair,
    load_seeds,
    store,
    transpose,
)
from ksubset.kernels.cpu.simd.numbers import (
    absolute,
    any_above,
    any_unequal,
    choose,
    largest,
    nearest,
    root,
    rounded,
    smallest,
    total,
)

__all__ = [
    "BYTES",
    "absolute",
    "any_above",
    "any_unequal",
    "append",
    "as_numbers",
    "as_words",
    "choose",
    "clear",
    "copy",
    "exp",
    "exp_negative",
    "fill",
    "finer_shares",
    "flag",
    "halves",
    "largest",
    "load",
    "load_pair",
    "load_seeds",
    "nearest",
    "no_flags",
    "pair",
    "root",
    "rounded",
    "shares",
    "smallest",
    "store",
    "sum_of_pair",
    "total",
    "transpose",
    "where",
    "width",
]
