"""All kernels compiled before somebody waits for them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from ksubset.kernels import cpu
from ksubset.kernels.cpu.compile import folders


def compile_for(dtype: torch.dtype) -> set[str | None]:
    """By calling each kernel once. Returns where they are kept; None is among it if one is not."""
    logits, k = torch.zeros(1, 3, dtype=dtype), torch.ones(1, dtype=torch.int64)
    drawn, tilted = cpu.sample(logits, k, torch.zeros(1, 1, dtype=torch.int64))
    cpu.covariance_product(tilted, k, logits)
    cpu.swap_product(tilted, k, drawn, drawn)
    cpu.infer(logits, k)
    cpu.tilt(logits, k)
    return folders()


def compile_all() -> set[str | None]:
    """For both types, in a process each: the compiler takes one core."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        return set().union(*pool.map(compile_for, (torch.float32, torch.float64)))
