"""Launching a Triton kernel again without the work of the first time.

``kernel[grid](...)`` works out on every call which of the compiled variants its arguments ask for,
which takes longer than a small kernel runs. What that depends on is known here: types never vary,
all tensors are aligned, and the numbers are part of a key.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

_INTERPRETED = triton.knobs.runtime.interpret


class Launcher:
    """A Triton kernel whose parameters are: tensors given to it, tensors made for it, numbers,
    constants (named here)."""

    def __init__(self, kernel: Any, *constants: str) -> None:
        self._kernel = kernel
        self._constants = constants
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self,
        programs: int,
        given: tuple[Tensor, ...],
        made: tuple[Tensor, ...],
        numbers: tuple[int, ...],
        constants: tuple[int, ...],
        warps: int,
        cooperative: bool = False,
    ) -> None:
        """Launch on the device of the tensors, on its current stream."""
        device = given[0].device.index
        given = tuple(x.clone() if x.data_ptr() % 16 else x for x in given)
        if device is not None and device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self(programs, given, made, numbers, constants, warps, cooperative)
            return
        key = (device, numbers, constants, warps, cooperative)
        compiled = self._compiled.get(key)
        if compiled is not None:
            # Nobody has asked Triton for hooks around launches of ours.
            compiled.run(
                programs, 1, 1, torch._C._cuda_getCurrentRawStream(device), compiled.function,
                compiled.packed_metadata, None, None, None, *given, *made, *numbers, *constants,
            )  # fmt: skip
            return
        options = {"launch_cooperative_grid": True} if cooperative else {}
        named = dict(zip(self._constants, constants, strict=True))
        # A lone warp reduces by exchanging lanes, and none of them is told the others' result: had
        # each fused a product of its own into its sum, the lanes would go on with numbers that
        # differ in their last digits, as if the row had several means. Several warps read the sum
        # from one place.
        compiled = self._kernel[(programs,)](
            *given, *made, *numbers, **named, num_warps=warps, enable_fp_fusion=warps > 1, **options
        )
        if not _INTERPRETED:
            self._compiled[key] = compiled
