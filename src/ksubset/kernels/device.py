"""Which compiled kernels serve a tensor, if any: by device, type and size.

Compiled kernels stand in for ``method="auto"`` only; a method asked for by name is the plain torch
one. Their packages are imported when first needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


def device_kernels(logits: Tensor, method: str) -> Any:
    """A module with ``tilt``, ``infer``, ``covariance_product`` and ``sample`` on rows, or None."""
    if method != "auto":
        return None
    if logits.is_cuda:
        rows = _triton_rows() if logits.dtype == torch.float32 else None
        return rows if rows is not None and logits.shape[-1] <= rows.MAX_ITEMS else None
    return _numba_rows() if logits.device.type == "cpu" else None


@cache
def _triton_rows() -> Any:
    try:
        from ksubset.kernels.cuda import rows
    except ImportError:  # torch without Triton
        return None
    return rows


@cache
def _numba_rows() -> Any:
    from ksubset.kernels import cpu

    return cpu
