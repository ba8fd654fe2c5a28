"""How the kernels are compiled, and what is said meanwhile; :mod:`.caching` keeps the results."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any

from numba import config, njit
from numba.core import event

from ksubset.kernels.cpu.caching import FINGERPRINT, KernelCache
from ksubset.kernels.cpu.linking import KernelCompiler, PartCompiler

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

# For functions that are only called by kernels and become part of them: nobody calls them from
# Python or C. Those that only work on arrays of their callers count no references to them.
_PART = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
part = njit(**_PART, _nrt=False, pipeline_class=PartCompiler)
# For parts that make arrays, or return one.
allocating = njit(**_PART, _nrt=True, pipeline_class=PartCompiler)
# For parts so small, or called so often, that it counts how arrays are handed over.
inlined = njit(**_PART, _nrt=False, forceinline=True, pipeline_class=PartCompiler)


_KERNELS: list[Any] = []


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on the first call, without the interpreter's lock; keep the result on disk."""
    # Numba names machine code by a function's name and the types of its arguments, which are the
    # same for kernels that differ in what they close over; and it numbers functions in each
    # process anew. Code that several processes compiled and one loads needs names of its own.
    taken = [repr(cell.cell_contents) for cell in function.__closure__ or ()]
    identity = hashlib.sha256(repr((FINGERPRINT, taken)).encode()).hexdigest()[:16]
    function.__qualname__ = f"{function.__qualname__}_{identity}"
    compiled = njit(nogil=True, pipeline_class=KernelCompiler)(function)
    compiled._cache = KernelCache(f"{function.__name__}_{identity}")
    _KERNELS.append(compiled)
    return compiled


def folders() -> set[str | None]:
    """Where the kernels that were called are kept; None for one that could not be."""
    return {kernel.stats.cache_path for kernel in _KERNELS if kernel.overloads}


class _Announcement(event.Listener):
    """A line for those who wait."""

    def on_start(self, event: Any) -> None:
        compiled = event.data["dispatcher"]
        if any(compiled is one for one in _KERNELS):
            logging.getLogger("ksubset").warning(
                "ksubset: compiling %s for this processor, a few seconds, once; "
                "python -m ksubset.kernels.cpu does all of it ahead",
                compiled.py_func.__name__,
            )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcement())
