"""A kernel's rows shared among as many threads as torch uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

from ksubset.kernels.cpu import openmp
from ksubset.kernels.cpu.groups import GROUP

# Items that are a thread's share, and those for which it is worth waking other threads at all.
_SHARE, _ENOUGH = 1 << 14, 1 << 16
_SHARES_EACH = 4


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork, so that every process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ksubset")


def share(kernel: Callable[..., int], rows: int, n: int, *arguments: int) -> int:
    """The kernel on all rows, in whole groups; the sum of what it returns."""
    groups, threads = -(-rows // GROUP), 1
    if rows * n >= _ENOUGH:
        threads = min(torch.get_num_threads(), groups, rows * n // _SHARE)
    if threads == 1:
        return kernel(0, rows, rows, n, *arguments)
    # Some threads may come late, or be slow: the others take more of the shares.
    shares = min(groups, rows * n // _SHARE, _SHARES_EACH * threads)
    bounds = [min(rows, groups * i // shares * GROUP) for i in range(shares + 1)]
    result = openmp.share(kernel, bounds, (rows, n, *arguments))
    return _with_pool(kernel, threads, rows, n, *arguments) if result is None else result


def _with_pool(kernel: Callable[..., int], threads: int, rows: int, *arguments: int) -> int:
    """With threads of our own."""
    groups = -(-rows // GROUP)
    bounds = [min(rows, groups * i // threads * GROUP) for i in range(threads + 1)]
    shares = list(pairwise(bounds))
    pool, others = _pool(os.getpid(), threads - 1), []
    try:
        while len(shares) > 1:
            others.append(pool.submit(kernel, *shares[-1], rows, *arguments))
            shares.pop()
    except RuntimeError:  # an interpreter that ends has no more threads to give
        pass
    result = sum(kernel(*share, rows, *arguments) for share in shares)
    return result + sum(other.result() for other in others)
