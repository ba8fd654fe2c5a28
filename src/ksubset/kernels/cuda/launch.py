"""Launching a Triton kernel again without the work of the first time.

``kernel[grid](...)`` works out on every call which of the compiled variants its arguments ask for,
which takes longer than a small kernel runs. What that depends on (types, alignment, whether an
integer is one or a multiple of sixteen) is a short key here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

_INTERPRETED = triton.knobs.runtime.interpret


def _trait(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.data_ptr() % 16 == 0, argument.dtype
    return argument == 1, argument % 16 == 0, -(1 << 31) <= argument < 1 << 31


class Launcher:
    """A Triton kernel whose constants come last among its parameters, in this order."""

    def __init__(self, kernel: Any, *constants: str) -> None:
        self._kernel = kernel
        self._constants = constants
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self,
        programs: int,
        arguments: tuple[Any, ...],
        constants: tuple[int, ...],
        warps: int,
        cooperative: bool = False,
    ) -> None:
        """Launch on the device and stream of the first argument."""
        device = arguments[0].device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._launch(programs, arguments, constants, warps, cooperative)
        else:
            self._launch(programs, arguments, constants, warps, cooperative)

    def _launch(
        self,
        programs: int,
        arguments: tuple[Any, ...],
        constants: tuple[int, ...],
        warps: int,
        cooperative: bool,
    ) -> None:
        key = (
            arguments[0].device.index,
            constants,
            warps,
            cooperative,
            *[_trait(argument) for argument in arguments],
        )
        compiled = self._compiled.get(key)
        if compiled is not None:
            compiled[(programs, 1, 1)](*arguments, *constants)
            return
        options = {"launch_cooperative_grid": True} if cooperative else {}
        named = dict(zip(self._constants, constants, strict=True))
        compiled = self._kernel[(programs,)](*arguments, **named, num_warps=warps, **options)
        if not _INTERPRETED:
            self._compiled[key] = compiled
