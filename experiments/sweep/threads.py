"""Cores are shared by workers: more threads than cores wait for each other."""

from __future__ import annotations

import os

_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def fair_share(workers: int) -> int:
    """Threads of each of so many workers on the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, cores // workers)


def variables(threads: int) -> dict[str, str]:
    """The environment in which libraries start no more threads than that."""
    return dict.fromkeys(_VARIABLES, str(threads))
