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

from ksubset.kernels.cpu import groups
from ksubset.kernels.cpu import rows as one_by_one
from ksubset.kernels.cpu.compile import allocating, kernel


@intrinsic
def _pointer(typing, address):
    def lower(context, builder, sig, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), lower


@allocating
def _bytes(address, shape):
    return carray(_pointer(address), shape, np.uint8)


@allocating
def _integers(address, shape):
    return carray(_pointer(address), shape, np.int64)


@allocating
def _wide(address, shape):
    return carray(_pointer(address), shape, np.float64)


@allocating
def _left(address, rows):
    """Which rows are left to this kernel, from the kernel before; empty if there was none."""
    return _bytes(address, rows if address != 0 else 0)


@allocating
def _floats(address, shape, dtype):
    return carray(_pointer(address), shape, dtype)


class Kernels(NamedTuple):
    """For one floating point type: what a call needs is compiled, not all there is.

    The first arguments are the rows to work on, first to last, the shape of the batch and the
    address of a list (:mod:`.left`). Kernels of groups, and that of sparse samples, note there what
    they leave, and return how many rows that is. Others work on the rows noted, or on all.
    """

    tilt_groups: Callable[..., int]
    tilt: Callable[..., int]
    infer_groups: Callable[..., int]
    infer: Callable[..., int]
    covariance_product_groups: Callable[..., int]
    covariance_product: Callable[..., int]
    covariance_product_long: Callable[..., int]
    swap_product_groups: Callable[..., int]
    swap_product: Callable[..., int]
    swap_product_long: Callable[..., int]
    sample_groups: Callable[..., int]
    sample_sparse: Callable[..., int]
    sample: Callable[..., int]


def kernels(dtype: Any) -> Kernels:
    """Compiled when first called.

    The type is all that the kernels may take from here: Numba knows a kernel in its cache by what
    it takes, and a function is another one in every process.
    """

    @kernel
    def tilt_groups(first, last, rows, n, left, logits, k, tilted):
        shape = (rows, n)
        return groups.tilt(
            first,
            last,
            _bytes(left, rows),
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _floats(tilted, shape, dtype),
        )

    @kernel
    def tilt(first, last, rows, n, left, logits, k, tilted):
        shape = (rows, n)
        return one_by_one.tilt(
            first,
            last,
            _left(left, rows),
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _floats(tilted, shape, dtype),
        )

    @kernel
    def infer_groups(
        first, last, rows, n, left,
        logits, k, log_partition, marginals, tilted, log_mass, shift, entropy,
    ):  # fmt: skip
        shape = (rows, n)
        return groups.infer(
            first,
            last,
            _bytes(left, rows),
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _floats(log_partition, rows, dtype),
            _floats(marginals, shape, dtype),
            _floats(tilted, shape, dtype),
            _wide(log_mass, rows),
            _wide(shift, rows),
            _floats(entropy, rows, dtype),
        )

    @kernel
    def infer(
        first, last, rows, n, left, tail, decay,
        logits, k, log_partition, marginals, tilted, log_mass, shift, entropy,
    ):  # fmt: skip
        shape = (rows, n)
        return one_by_one.infer(
            first,
            last,
            _left(left, rows),
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
    def covariance_product_groups(first, last, rows, n, left, many, tilted, kept, k, v, product):
        shape = (rows, n)
        return groups.covariance_product(
            first,
            last,
            _bytes(left, rows),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _integers(k, rows),
            _floats(v, shape, dtype),
            _floats(product, shape, dtype),
        )

    @kernel
    def covariance_product(first, last, rows, n, left, tail, decay, tilted, k, v, product):
        shape = (rows, n)
        return one_by_one.covariance_product(
            first,
            last,
            _left(left, rows),
            _floats(tilted, shape, dtype),
            _integers(k, rows),
            _floats(v, shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
            one_by_one.narrow_sums,
        )

    @kernel
    def covariance_product_long(first, last, rows, n, left, tail, decay, tilted, k, v, product):
        shape = (rows, n)
        return one_by_one.covariance_product(
            first,
            last,
            _left(left, rows),
            _floats(tilted, shape, dtype),
            _integers(k, rows),
            _floats(v, shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
            one_by_one.wide_sums,
        )

    @kernel
    def swap_product_groups(
        first, last, rows, n, left, samples, many, tilted, kept, k, drawn, v, product
    ):
        shape, drawn_shape = (rows, n), (samples * rows, n)
        return groups.swap_product(
            first,
            last,
            _bytes(left, rows),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _integers(k, rows),
            _floats(drawn, drawn_shape, dtype),
            _floats(v, drawn_shape, dtype),
            _floats(product, shape, dtype),
        )

    @kernel
    def swap_product(
        first, last, rows, n, left, samples, tail, decay, tilted, k, drawn, v, product
    ):
        shape, drawn_shape = (rows, n), (samples * rows, n)
        return one_by_one.swap_product(
            first,
            last,
            _left(left, rows),
            _floats(tilted, shape, dtype),
            _integers(k, rows),
            _floats(drawn, drawn_shape, dtype),
            _floats(v, drawn_shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
            one_by_one.narrow_characteristic,
        )

    @kernel
    def swap_product_long(
        first, last, rows, n, left, samples, tail, decay, tilted, k, drawn, v, product
    ):
        shape, drawn_shape = (rows, n), (samples * rows, n)
        return one_by_one.swap_product(
            first,
            last,
            _left(left, rows),
            _floats(tilted, shape, dtype),
            _integers(k, rows),
            _floats(drawn, drawn_shape, dtype),
            _floats(v, drawn_shape, dtype),
            tail,
            decay,
            _floats(product, shape, dtype),
            one_by_one.wide_characteristic,
        )

    @kernel
    def sample_groups(
        first, last, rows, n, left, samples, many, several, logits, k, seeds, tilted, kept, drawn
    ):
        shape = (rows, n)
        return groups.sample(
            first,
            last,
            _bytes(left, rows),
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _integers(seeds, several),
            _floats(tilted, shape, dtype),
            _floats(kept, many, dtype),
            _floats(drawn, (samples * rows, n), dtype),
        )

    @kernel
    def sample_sparse(
        first, last, rows, n, left, samples, several, logits, k, seeds, tilted, drawn
    ):
        shape = (rows, n)
        return one_by_one.sample_sparse(
            first,
            last,
            _bytes(left, rows),
            _floats(logits, shape, dtype),
            _integers(k, rows),
            _integers(seeds, several),
            _floats(tilted, shape, dtype),
            _floats(drawn, (samples * rows, n), dtype),
        )

    @kernel
    def sample(first, last, rows, n, left, samples, several, k, seeds, tilted, drawn):
        return one_by_one.sample(
            first,
            last,
            _bytes(left, rows),
            _integers(k, rows),
            _integers(seeds, several),
            _floats(tilted, (rows, n), dtype),
            _floats(drawn, (samples * rows, n), dtype),
        )

    return Kernels(
        tilt_groups, tilt, infer_groups, infer,
        covariance_product_groups, covariance_product, covariance_product_long,
        swap_product_groups, swap_product, swap_product_long,
        sample_groups, sample_sparse, sample,
    )  # fmt: skip
