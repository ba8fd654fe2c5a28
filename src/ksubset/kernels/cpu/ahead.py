"""All kernels compiled before somebody waits for them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from ksubset.kernels import cpu
from ksubset.kernels.cpu.compile import cache_folder


def compile_for(dtype: torch.dtype) -> None:
    """By calling each kernel once; the result is kept on disk."""
    logits, k = torch.zeros(1, 3, dtype=dtype), torch.ones(1, dtype=torch.int64)
    _, tilted = cpu.sample(logits, k, torch.zeros(1, 1, dtype=torch.int64))
    cpu.covariance_product(tilted, k, logits)
    cpu.infer(logits, k)
    cpu.tilt(logits, k)


def compile_all() -> str:
    """For both types, in a process each: the compiler takes one core. Returns where they are."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(compile_for, (torch.float32, torch.float64)))
    return cache_folder()
