"""How the kernels are compiled, and what is said meanwhile; :mod:`.caching` keeps the results."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from numba import config, njit
from numba.core import event, sigutils

from ksubset.kernels.cpu.caching import FINGERPRINT, KernelCache
from ksubset.kernels.cpu.linking import KernelCompiler, PartCompiler

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

_KERNELS: list[Any] = []


def _compile_part(self: Any, signature: Any) -> Any:
    """A dispatcher's ``compile``, less the timers: a part's, those of the parts that call it and
    the kernel's would all be told of every call of LLVM."""
    arguments, result = sigutils.normalize_signature(signature)
    with self._compiling_counter:
        if tuple(arguments) not in self.overloads:
            self.add_overload(self._compiler.compile(arguments, result))
        return self.overloads[tuple(arguments)].entry_point


def _part(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function that only kernels call, and that becomes part of them: not to be called from
    Python or C."""
    decorate = njit(
        nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=PartCompiler,
        **options,
    )  # fmt: skip

    def decorated(function: Callable[..., Any]) -> Any:
        compiled = decorate(function)
        compiled.compile = MethodType(_compile_part, compiled)
        return compiled

    return decorated


# Only works on arrays of its callers, and counts no references to them.
part = _part(_nrt=False)
# Makes arrays, or returns one.
allocating = _part(_nrt=True)
# So small, or called so often, that it counts how arrays are handed over.
inlined = _part(_nrt=False, forceinline=True)


def _compile_kernel(compile_it: Callable[[Any], Any], signature: Any) -> Any:
    """Without Python's search for garbage, which goes through all there is again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return compile_it(signature)
    finally:
        if collects:
            gc.enable()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on the first call, without the interpreter's lock; keep the result on disk."""
    # Numba names machine code by a function's name and the types of its arguments, which are the
    # same for kernels that differ in what they close over; and it numbers functions in each
    # process anew. Code that several processes compiled and one loads needs names of its own.
    taken = [repr(cell.cell_contents) for cell in function.__closure__ or ()]
    identity = hashlib.sha256(repr((FINGERPRINT, taken)).encode()).hexdigest()[:16]
    function.__qualname__ = f"{function.__qualname__}_{identity}"
    compiled = njit(nogil=True, pipeline_class=KernelCompiler)(function)
    compiled.compile = partial(_compile_kernel, compiled.compile)
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
