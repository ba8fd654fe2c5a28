"""How the kernels are compiled: once for every machine and version of their source.

Numba keeps compiled functions on disk, and looks whether the *file* of a function has changed
since. What a kernel calls lives in other files, so each kernel carries a fingerprint of them all
in its name: no change, not even of the same size and date, can bring back old machine code.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

# For functions that are only called by kernels and become part of them: nobody calls them from
# Python or C, and compiling what that would take is half of the work.
part = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# For parts so small, or called so often, that it counts how arrays are handed over.
inlined = njit(
    nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True, _nrt=False
)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


_FINGERPRINT = _fingerprint()


_KERNELS: list[Any] = []


def kernel(function: Callable[..., None]) -> Any:
    """Compile on the first call, without the interpreter's lock; keep the result on disk."""
    function.__qualname__ = f"{function.__qualname__}_{_FINGERPRINT}"
    compiled = njit(nogil=True, cache=True)(function)
    _KERNELS.append(compiled)
    return compiled


class _Announcement(event.Listener):
    """A line for those who wait: nobody expects half a minute of silence."""

    def on_start(self, event: Any) -> None:
        compiled = event.data["dispatcher"]
        if any(compiled is one for one in _KERNELS):
            logging.getLogger("ksubset").warning(
                "ksubset: compiling %s for this processor, once; python -m ksubset.kernels.cpu "
                "does all of it ahead",
                compiled.py_func.__name__,
            )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcement())


def cache_folder() -> str:
    """Where compiled kernels are kept."""
    return str(_KERNELS[0].stats.cache_path)
