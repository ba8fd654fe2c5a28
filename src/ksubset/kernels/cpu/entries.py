"""The kernels as they are called: with addresses in place of arrays.

Numba looks at every array it is given, which for small problems takes longer than the work itself.
Addresses are plain numbers; what they point to is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from ksubset.kernels.cpu import rows as over_rows
from ksubset.kernels.cpu.compile import kernel, part


@intrinsic
def _pointer(typing, address):
    def lower(context, builder, sig, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), lower


@part
def _integers(address, shape):
    return carray(_pointer(address), shape, np.int64)


@part
def _wide(address, shape):
    return carray(_pointer(address), shape, np.float64)


@part
def _floats(address, shape, dtype):
    return carray(_pointer(address), shape, dtype)


class Kernels(NamedTuple):
    """For one floating point type. The first arguments are the rows to work on, first to last, and
    the shape of the batch."""

    tilt: Callable[..., None]
    infer: Callable[..., None]
    covariance_product: Callable[..., None]
    swap_product: Callable[..., None]
    sample: Callable[..., int]


def kernels(dtype: Any) -> Kernels:
    """Compiled when first called.

    The type is all that the kernels may take from here: Numba knows a kernel in its cache by what
    it takes, and a function is another one in every process.
    """

    @kernel
    def tilt(first, last, rows, n, logits, k, tilted):
        shape = (rows, n)
        over_rows.tilt(
            first,
            last,
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _floats(tilted, shape, dtype),
        )

    @kernel
    def infer(
        first, last, rows, n, tail, decay,
        logits, k, log_partition, marginals, tilted, log_mass, shift, entropy,
    ):  # fmt: skip
        shape = (rows, n)
        over_rows.infer(
            first,
            last,
            _floats(logits, shape, dtype),
            _integers(k, rows),
            tail,
            decay,
            _floats(log_partition, rows, dtype),
            _floats(marginals, shape, dtype),
            _floats(tilted, shape, dtype),
            _wide(log_mass, rows),
            _wide(shift, rows),
            _floats(entropy, rows, dtype),
        )

    @kernel
    def covariance_product(
        first, last, rows, n, tail, decay, many, logits, tilted, kept, k, vectors, product
    ):
        shape = (rows, n)
        over_rows.covariance_product(
            first,
            last,
            _floats(logits, shape, dtype),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _integers(k, rows),
            _floats(vectors, shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
        )

    @kernel
    def swap_product(
        first, last, rows, n, samples, tail, decay, many,
        logits, tilted, kept, k, drawn, vectors, product,
    ):  # fmt: skip
        shape, drawn_shape = (rows, n), (samples * rows, n)
        over_rows.swap_product(
            first,
            last,
            _floats(logits, shape, dtype),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _integers(k, rows),
            _floats(drawn, drawn_shape, dtype),
            _floats(vectors, drawn_shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
        )

    @kernel
    def sample(first, last, rows, n, samples, many, several, logits, k, seeds, tilted, kept, drawn):
        shape = (rows, n)
        return over_rows.sample(
            first,
            last,
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _integers(seeds, several),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _floats(drawn, (samples * rows, n), dtype),
        )

    return Kernels(tilt, infer, covariance_product, swap_product, sample)
