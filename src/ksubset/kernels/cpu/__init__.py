"""Compiled kernels for CPUs: Numba, with vectors of our own (:mod:`.simd`).

The functions that :mod:`ksubset.kernels.device` asks for, on tensors. Rows are shared among as many
threads as torch uses.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels import tree
from ksubset.kernels.coins import Coins
from ksubset.kernels.cpu.entries import kernels
from ksubset.kernels.cpu.rows import GROUP, IMPOSSIBLE
from ksubset.kernels.cpu.short import room_for_coins
from ksubset.kernels.random import following
from ksubset.kernels.spectral import PRECISIONS

# Items that are a thread's share, and those for which it is worth waking other threads at all.
_SHARE, _ENOUGH = 1 << 14, 1 << 16
_KERNELS = {torch.float32: kernels(np.float32), torch.float64: kernels(np.float64)}


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork, so that every process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ksubset")


def _run(kernel: Callable[..., int | None], rows: int, n: int, *arguments: float) -> int:
    """The kernel on all rows, in whole groups; the sum of what it returns."""
    groups, threads = -(-rows // GROUP), 1
    if rows * n >= _ENOUGH:
        threads = min(torch.get_num_threads(), groups, rows * n // _SHARE)
    if threads == 1:
        return kernel(0, rows, rows, n, *arguments) or 0
    bounds = [min(rows, groups * i // threads * GROUP) for i in range(threads + 1)]
    shares = list(pairwise(bounds))
    pool, others = _pool(os.getpid(), threads - 1), []
    try:
        while len(shares) > 1:
            others.append(pool.submit(kernel, *shares[-1], rows, n, *arguments))
            shares.pop()
    except RuntimeError:  # an interpreter that ends has no more threads to give
        pass
    result = sum(kernel(*share, rows, n, *arguments) or 0 for share in shares)
    return result + sum(other.result() or 0 for other in others)


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = logits.contiguous(), k.contiguous()
    tilted = torch.empty_like(logits)
    kernel = _KERNELS[logits.dtype].tilt
    _run(kernel, *logits.shape, logits.data_ptr(), k.data_ptr(), tilted.data_ptr())
    return tilted


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits, k = logits.contiguous(), k.contiguous()
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    log_partition, entropy = (logits.new_empty(len(logits)) for _ in range(2))
    log_mass, shift = (logits.new_empty(len(logits), dtype=torch.float64) for _ in range(2))
    precision = PRECISIONS[logits.dtype]
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    addresses = [x.data_ptr() for x in (logits, k, *results)]
    kernel = _KERNELS[logits.dtype].infer
    _run(kernel, *logits.shape, precision.tail, precision.decay, *addresses)
    return results


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, k, v = tilted.contiguous(), k.contiguous(), v.contiguous()
    product = torch.empty_like(tilted)
    precision = PRECISIONS[tilted.dtype]
    _run(
        _KERNELS[tilted.dtype].covariance_product, *tilted.shape, precision.tail, precision.decay,
        0, 0, tilted.data_ptr(), 0, k.data_ptr(), v.data_ptr(), product.data_ptr(),
    )  # fmt: skip
    return product


def swap_product(tilted: Tensor, k: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, k, z, v = tilted.contiguous(), k.contiguous(), z.contiguous(), v.contiguous()
    product = torch.empty_like(tilted)
    precision = PRECISIONS[tilted.dtype]
    _run(
        _KERNELS[tilted.dtype].swap_product, *tilted.shape, z.shape[0], precision.tail,
        precision.decay, 0, 0, tilted.data_ptr(), 0, k.data_ptr(), z.data_ptr(), v.data_ptr(),
        product.data_ptr(),
    )  # fmt: skip
    return product


def sample(logits: Tensor, k: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = logits.contiguous(), k.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    tilted = torch.empty_like(logits)
    samples = seeds.shape[0]  # len() of a tensor is slow
    drawn = logits.new_empty((samples, rows, n))
    outcome = _run(
        _KERNELS[logits.dtype].sample, rows, n, samples, 0, samples * rows, logits.data_ptr(),
        k.data_ptr(), seeds.data_ptr(), tilted.data_ptr(), 0, drawn.data_ptr(),
    )  # fmt: skip
    if outcome % IMPOSSIBLE:
        # Out of tries, once in 10^30 rows: the product tree is exact as well.
        for s, row in (drawn[..., 0] == -1).nonzero().tolist():
            coins = Coins.from_tilted(tilted[row : row + 1], k[row : row + 1])
            drawn[s, row] = tree.sample(coins, ~seeds[s, row].reshape(1, 1))[0, 0]
    return drawn, tilted


class Prepared(NamedTuple):
    """For logits of one shape and type, with one k or (None) each row's own. Kept of short rows are
    the coins as they lay side by side, of others the tilted logits."""

    sample: Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
    """(logits, k, seed) -> samples in a shape, for this seed and those that follow it, and what is
    kept for the products."""
    covariance_product: Callable[[Callable[[], Tensor], Tensor | None, Tensor, Tensor], Tensor]
    """(logits, k, kept, v) -> Cov v."""
    swap_product: Callable[[Callable[[], Tensor], Tensor | None, Tensor, Tensor, Tensor], Tensor]
    """(logits, k, kept, z, v) -> sum_s L(z_s) v_s, z and v in the shape of the samples."""


def prepare(
    logits: Tensor,
    same: Tensor | None,
    shape: tuple[int, ...],
    check: Callable[[Tensor, Tensor | None], None] | None = None,
) -> Prepared:
    """For logits like these, with these counts for all calls or (None) those of each. If a row
    admits no sample, the check is called."""
    (rows, n), dtype = logits.shape, logits.dtype
    samples = math.prod(shape) // max(rows * n, 1)
    many = room_for_coins(rows, n, logits.itemsize)
    compiled, precision = _KERNELS[dtype], PRECISIONS[dtype]

    def counts(k: Tensor | None) -> Tensor:
        return cast("Tensor", same) if k is None else k.contiguous()

    def sample_and_keep(logits: Tensor, own: Tensor | None, seed: Tensor) -> tuple[Tensor, Tensor]:
        logits, k = logits.contiguous(), counts(own)
        drawn = logits.new_empty(shape)
        kept = logits.new_empty(many) if many else torch.empty_like(logits)
        at = kept.data_ptr()
        outcome = _run(
            compiled.sample, rows, n, samples, many, 1, logits.data_ptr(), k.data_ptr(),
            seed.data_ptr(), 0 if many else at, at if many else 0, drawn.data_ptr(),
        )  # fmt: skip
        if outcome >= IMPOSSIBLE and check:
            check(logits, own)
        if outcome % IMPOSSIBLE:
            drawn, kept = sample(logits, k, following(seed, (samples, rows)))
            drawn = drawn.reshape(shape)
        return drawn, kept

    def product_after(
        logits: Callable[[], Tensor], own: Tensor | None, kept: Tensor, v: Tensor
    ) -> Tensor:
        k = counts(own)
        if kept.dim() == 2:
            return covariance_product(kept, k, v)
        theta, v = logits().contiguous(), v.contiguous()
        product = torch.empty_like(theta)
        _run(
            compiled.covariance_product, rows, n, precision.tail, precision.decay, many,
            theta.data_ptr(), 0, kept.data_ptr(), k.data_ptr(), v.data_ptr(), product.data_ptr(),
        )  # fmt: skip
        return product

    def swaps_after(
        logits: Callable[[], Tensor], own: Tensor | None, kept: Tensor, z: Tensor, v: Tensor
    ) -> Tensor:
        k = counts(own)
        if kept.dim() == 2:
            each = (samples, rows, n)
            return swap_product(kept, k, z.reshape(each), v.reshape(each))
        theta, z, v = logits().contiguous(), z.contiguous(), v.contiguous()
        product = torch.empty_like(theta)
        _run(
            compiled.swap_product, rows, n, samples, precision.tail, precision.decay, many,
            theta.data_ptr(), 0, kept.data_ptr(), k.data_ptr(), z.data_ptr(), v.data_ptr(),
            product.data_ptr(),
        )  # fmt: skip
        return product

    return Prepared(sample_and_keep, product_after, swaps_after)
