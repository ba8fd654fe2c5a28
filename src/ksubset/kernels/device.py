"""Which compiled kernels serve a tensor, if any: by device, type and size.

Compiled kernels stand in for ``method="auto"`` only; a method asked for by name is the plain torch
one. Their packages are imported when first needed.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor


def device_kernels(logits: Tensor, method: str) -> Any:
    """A module with ``tilt``, ``infer``, ``covariance_product`` and ``sample`` on rows, or None."""
    if method != "auto":
        return None
    if logits.is_cuda:
        return _triton(logits.shape[-1], logits.dtype)
    return _numba() if logits.device.type == "cpu" else None


def are_compiled(logits: Tensor, method: str) -> bool:
    """Whether :func:`device_kernels` has some for such a tensor."""
    return method == "auto" and _available(logits.device.type, logits.dtype)


def _available(device: str, dtype: torch.dtype) -> bool:
    # A constant to torch.compile, which need not look into imports.
    if device == "cuda":
        return _triton(1, dtype) is not None
    return device == "cpu" and _numba() is not None


# What torch.compiler.assume_constant_result does, without the import of torch's compiler that comes
# with it: that takes longer than all of ksubset, and most programs compile nothing.
_available._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _triton(n: int, dtype: torch.dtype) -> Any:
    try:
        from ksubset.kernels.cuda import long, rows, short
    except ImportError:  # torch without Triton
        return None
    if n <= short.MAX_ITEMS and dtype == torch.float32:
        return short
    if n <= rows.MAX_ITEMS:
        return rows
    return long if dtype == torch.float32 else None


@cache
def _numba() -> Any:
    try:
        from ksubset.kernels import cpu
    except Exception as error:  # no Numba, a broken one, or its compiler is switched off
        if _interrupted(error):
            raise
        logging.getLogger("ksubset").warning(
            "ksubset: no compiled kernels on CPUs, torch operations take their place: %s", error
        )
        return None
    return cpu


def _interrupted(error: BaseException | None) -> bool:
    """Whether the user stopped an import: modules in C make an ImportError of that."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
