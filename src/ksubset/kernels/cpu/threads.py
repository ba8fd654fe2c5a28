"""A kernel's rows shared among as many threads as torch uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

from ksubset.kernels.cpu.groups import GROUP

# Items that are a thread's share, and those for which it is worth waking other threads at all.
_SHARE, _ENOUGH = 1 << 14, 1 << 16


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork, so that every process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ksubset")


def share(kernel: Callable[..., int | None], rows: int, n: int, *arguments: float) -> int:
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
