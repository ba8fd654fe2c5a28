"""Compiled kernels for CPUs: Numba, with vectors of our own (:mod:`.simd`).

The functions that :mod:`ksubset.kernels.device` asks for, on tensors. Rows are shared among as many
threads as torch uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ksubset.kernels import tree
from ksubset.kernels.coins import Coins
from ksubset.kernels.cpu import rows
from ksubset.kernels.spectral import PRECISIONS

# Items for which it is worth waking another thread.
_SHARE = 1 << 14


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork, so that every process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ksubset")


def _run(kernel: Callable[..., None], like: Tensor, *args: Any) -> None:
    """The kernel on all rows, in whole groups."""
    count = like.shape[0]
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in args]
    groups = -(-count // rows.GROUP)
    threads = max(1, min(torch.get_num_threads(), groups, like.numel() // _SHARE))
    if threads == 1:
        kernel(0, count, *arrays)
        return
    bounds = [min(count, groups * i // threads * rows.GROUP) for i in range(threads + 1)]
    pool = _pool(os.getpid(), threads - 1)
    others = [pool.submit(kernel, bounds[i], bounds[i + 1], *arrays) for i in range(1, threads)]
    kernel(bounds[0], bounds[1], *arrays)
    for other in others:
        other.result()


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [x.detach().contiguous() for x in tensors]


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = _contiguous(logits, k)
    tilted = torch.empty_like(logits)
    _run(rows.tilt, logits, logits, k, tilted)
    return tilted


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits, k = _contiguous(logits, k)
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    log_partition, log_mass, entropy = (logits.new_empty(len(logits)) for _ in range(3))
    shift = logits.new_empty(len(logits), dtype=torch.float64)
    precision = PRECISIONS[logits.dtype]
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    _run(rows.infer, logits, logits, k, precision.tail, precision.decay, *results)
    return results


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, k, v = _contiguous(tilted, k, v)
    product = torch.empty_like(tilted)
    precision = PRECISIONS[tilted.dtype]
    _run(rows.covariance_product, tilted, tilted, k, v, precision.tail, precision.decay, product)
    return product


def sample(logits: Tensor, k: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = _contiguous(logits, k, seeds)
    tilted = torch.empty_like(logits)
    drawn = logits.new_empty(seeds.shape[0], *logits.shape)
    failed = torch.zeros(seeds.shape, dtype=torch.bool)
    _run(rows.sample, drawn[0] if len(drawn) else drawn, logits, k, seeds, tilted, drawn, failed)
    if bool(failed.any()):
        # Out of tries, once in 10^30 rows: the product tree is exact as well.
        for s, row in failed.nonzero().tolist():
            coins = Coins.from_tilted(tilted[row : row + 1], k[row : row + 1])
            drawn[s, row] = tree.sample(coins, ~seeds[s, row].reshape(1, 1))[0, 0]
    return drawn, tilted
