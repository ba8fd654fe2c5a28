"""Launching a Triton kernel again without the work of the first time.

``kernel[grid](...)`` works out on every call which of the compiled variants its arguments ask for,
which takes longer than a small kernel runs. What that depends on is known here: the type of the
rows decides on all others, all tensors are aligned, and the numbers are part of a key.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_INTERPRETED = triton.knobs.runtime.interpret


@triton.jit
def count_of(counts, same, row):
    """k of the row: its own in memory, or if that is not negative the same for all rows.

    The latter needs no memory that another stream may not see written yet, or that a captured graph
    would read after it was given back.
    """
    return tl.load(counts + row, same < 0, same)


class Launcher:
    """A Triton kernel whose parameters are: the rows it works on, ``counts``, other tensors given
    to it, tensors made for it, ``same``, which must not be specialized, numbers, constants (named
    here)."""

    def __init__(self, kernel: Any, *constants: str, **options: Any) -> None:
        self._kernel = kernel
        self._constants = constants
        self._options = options  # of the compiler
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self,
        programs: int,
        rows: Tensor,
        k: Tensor | int,
        given: tuple[Tensor, ...],
        made: tuple[Tensor, ...],
        numbers: tuple[int, ...],
        constants: tuple[int, ...],
        warps: int,
        cooperative: bool = False,
    ) -> None:
        """Launch on the device of the rows, on its current stream."""
        device = rows.get_device()
        if device >= 0 and device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                self(programs, rows, k, given, made, numbers, constants, warps, cooperative)
            return
        same, counts = (k, ()) if isinstance(k, int) else (-1, (k.contiguous(),))
        given = (rows, *counts, *given)
        # Addresses: Triton asks tensors for theirs, and the driver whether it knows them.
        addresses = [x.data_ptr() for x in given]
        unaligned = 0
        for address in addresses:
            unaligned |= address % 16
        if unaligned:
            given = tuple(x.clone() for x in given)
            addresses = [x.data_ptr() for x in given]
        key = (device, rows.dtype, numbers, constants, warps, cooperative)
        compiled = self._compiled.get(key)
        if compiled is not None:
            if not counts:
                addresses.insert(1, 0)  # which nobody reads
            addresses += [x.data_ptr() for x in made]
            # Nobody has asked Triton for hooks around launches of ours.
            compiled.run(
                programs, 1, 1, torch._C._cuda_getCurrentRawStream(device), compiled.function,
                compiled.packed_metadata, None, None, None, *addresses, same, *numbers, *constants,
            )  # fmt: skip
            return
        options = {"launch_cooperative_grid": True} if cooperative else {}
        named = dict(zip(self._constants, constants, strict=True))
        if not counts:
            given = (given[0], rows.new_empty(1, dtype=torch.int64), *given[1:])
        # A lone warp reduces by exchanging lanes, and none of them is told the others' result: had
        # each fused a product of its own into its sum, the lanes would go on with numbers that
        # differ in their last digits, as if the row had several means. Several warps read the sum
        # from one place.
        options = {"enable_fp_fusion": warps > 1, **self._options, **options}
        compiled = self._kernel[(programs,)](
            *given, *made, same, *numbers, **named, num_warps=warps, **options
        )
        if not _INTERPRETED:
            self._compiled[key] = compiled
