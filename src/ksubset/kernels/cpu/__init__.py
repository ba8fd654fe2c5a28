"""Compiled kernels for CPUs: Numba, with vectors of our own (:mod:`.simd`).

The functions that :mod:`ksubset.kernels.device` asks for, on tensors. Rows are shared among as many
threads as torch uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels import tree
from ksubset.kernels.coins import Coins
from ksubset.kernels.cpu.entries import kernels
from ksubset.kernels.cpu.rows import GROUP
from ksubset.kernels.spectral import PRECISIONS

# Items for which it is worth waking another thread.
_SHARE = 1 << 14
_KERNELS = {torch.float32: kernels(np.float32), torch.float64: kernels(np.float64)}


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork, so that every process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ksubset")


def _run(
    kernel: Callable[..., int | None],
    shape: torch.Size,
    numbers: tuple[float, ...],
    *tensors: Tensor,
) -> int:
    """The kernel on all rows, in whole groups; the sum of what it returns."""
    rows, n = shape
    arguments = (rows, n, *numbers, *[x.data_ptr() for x in tensors])
    groups = -(-rows // GROUP)
    threads = min(torch.get_num_threads(), groups, rows * n // _SHARE)
    if threads <= 1:
        return kernel(0, rows, *arguments) or 0
    bounds = [min(rows, groups * i // threads * GROUP) for i in range(threads + 1)]
    pool = _pool(os.getpid(), threads - 1)
    others = [pool.submit(kernel, bounds[i], bounds[i + 1], *arguments) for i in range(1, threads)]
    result = kernel(bounds[0], bounds[1], *arguments) or 0
    return result + sum(other.result() or 0 for other in others)


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = logits.contiguous(), k.contiguous()
    tilted = torch.empty_like(logits)
    _run(_KERNELS[logits.dtype].tilt, logits.shape, (), logits, k, tilted)
    return tilted


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits, k = logits.contiguous(), k.contiguous()
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    log_partition, log_mass, entropy = (logits.new_empty(len(logits)) for _ in range(3))
    shift = logits.new_empty(len(logits), dtype=torch.float64)
    precision = PRECISIONS[logits.dtype]
    numbers = (precision.tail, precision.decay)
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    _run(_KERNELS[logits.dtype].infer, logits.shape, numbers, logits, k, *results)
    return results


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, k, v = tilted.contiguous(), k.contiguous(), v.contiguous()
    product = torch.empty_like(tilted)
    precision = PRECISIONS[tilted.dtype]
    numbers = (precision.tail, precision.decay)
    kernel = _KERNELS[tilted.dtype].covariance_product
    _run(kernel, tilted.shape, numbers, tilted, k, v, product)
    return product


def sample(logits: Tensor, k: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = logits.contiguous(), k.contiguous(), seeds.contiguous()
    tilted = torch.empty_like(logits)
    samples = seeds.shape[0]  # len() of a tensor is slow
    drawn = logits.new_empty((samples, *logits.shape))
    kernel = _KERNELS[logits.dtype].sample
    if _run(kernel, logits.shape, (samples,), logits, k, seeds, tilted, drawn):
        # Out of tries, once in 10^30 rows: the product tree is exact as well.
        for s, row in (drawn[..., 0] == -1).nonzero().tolist():
            coins = Coins.from_tilted(tilted[row : row + 1], k[row : row + 1])
            drawn[s, row] = tree.sample(coins, ~seeds[s, row].reshape(1, 1))[0, 0]
    return drawn, tilted
