"""How the kernels are compiled: once for every machine and version of their source.

Numba keeps compiled functions on disk, and looks whether the *file* of a function has changed
since. What a kernel calls lives in other files, so each kernel carries a fingerprint of them all
in its name: no change, not even of the same size and date, can bring back old machine code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

# For functions that are only called by kernels and become part of them: nobody calls them from
# Python or C, and compiling what that would take is half of the work.
part = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


_FINGERPRINT = _fingerprint()


def kernel(function: Callable[..., None]) -> Any:
    """Compile on the first call, without the interpreter's lock; keep the result on disk."""
    function.__qualname__ = f"{function.__qualname__}_{_FINGERPRINT}"
    return njit(nogil=True, cache=True)(function)
