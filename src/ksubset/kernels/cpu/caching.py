"""Where compiled kernels are kept: a file for each kernel and each kind of its arguments.

Numba's own cache raises where nothing can be written or an entry is damaged, leaves entries alone
that it could not have written itself, and lets processes that compile at once overwrite each
other's: an index numbers the files of both types of a kernel. Here a file's name is a digest of
everything its content depends on, the sources of all kernels among it. A file is written under
another name first and begins with a checksum. Whatever fails costs time, never a result.

Files are pickles: to load one is to run it. The package's own folder is trusted like the code in
it, whoever owns it; any other folder must belong to this user or to root.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import llvmlite
import numba

_HERE = Path(__file__).parent
_PACKAGE = _HERE / "__pycache__"
_LOG = logging.getLogger("ksubset")


def _fingerprint() -> str:
    """Of all sources; empty where there are none to be read, as in an archive."""
    sources = [file.read_bytes() for file in sorted(_HERE.rglob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest() if sources else ""


FINGERPRINT = _fingerprint()


def _folders() -> list[Path]:
    """In the order of preference, which is Numba's: for reading and for writing."""
    named = numba.config.CACHE_DIR
    folders = [Path(named) / "ksubset"] if named else []
    folders.append(_PACKAGE)
    try:
        from numba.misc.appdirs import AppDirs
    except ImportError:
        return folders
    users = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    # Without a home the path begins with "~" and would lie in the current folder.
    return [*folders, users / "ksubset"] if users.is_absolute() else folders


def _check(folder: Path) -> None:
    if folder == _PACKAGE or not hasattr(os, "geteuid"):
        return
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"others can write to {folder}")


def _read(file: Path) -> bytes:
    _check(file.parent)
    content = file.read_bytes()
    size = hashlib.sha256().digest_size
    if hashlib.sha256(content[size:]).digest() != content[:size]:
        raise ValueError("the file is damaged")
    return content[size:]


def _write(file: Path, data: bytes) -> None:
    # Readable for all and writable for nobody else, whatever the umask allows.
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check(file.parent)
    temporary = file.with_name(f"{file.name}.{uuid4().hex}.tmp")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o644)) as out:
            out.write(hashlib.sha256(data).digest())
            out.write(data)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


class KernelCache:
    """What a dispatcher of Numba asks before it compiles, and tells when it has."""

    cache_path: str | None = None
    """Where the kernel is kept; None before it is compiled, and if it could not be kept."""
    _warned: ClassVar[bool] = False

    def __init__(self, kernel: str) -> None:
        """The name tells kernels apart, and versions of them."""
        self._kernel = kernel

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled kernel, or None."""
        for folder in _folders():
            try:
                from numba.core.compiler import CompileResult

                context.refresh()
                data = _read(folder / self._file(signature, context.codegen()))
                compiled = CompileResult._rebuild(context, *pickle.loads(data))
            except OSError:  # not there, or not for us
                continue
            except Exception as error:
                _LOG.warning(
                    "ksubset: what %s keeps of %s cannot be used and is compiled again: %s",
                    folder, self._kernel, error,
                )  # fmt: skip
                continue
            self.cache_path = str(folder)
            return compiled
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep it in the first folder that takes it."""
        reasons = []
        try:
            from numba.core.serialize import dumps

            if compiled.library.has_dynamic_globals:
                raise ValueError("the code holds addresses of this process")
            name, data = self._file(signature, compiled.codegen), dumps(compiled._reduce())
            for folder in _folders():
                try:
                    _write(folder / name, data)
                except OSError as error:
                    reasons.append(f"{folder}: {error.strerror or error}")
                    continue
                self.cache_path = str(folder)
                return
        except Exception as error:  # Numba's internals are not what they were
            reasons.append(f"{type(error).__name__}: {error}")
        if not KernelCache._warned:
            KernelCache._warned = True
            _LOG.warning(
                "ksubset: compiled kernels cannot be kept, and every process compiles them again "
                "(%s); set NUMBA_CACHE_DIR to a folder with room that this user can write to",
                "; ".join(reasons),
            )

    def flush(self) -> None:
        """Numba's interface; an entry is replaced when it is written again."""

    def _file(self, signature: Any, codegen: Any) -> str:
        if not FINGERPRINT:
            raise FileNotFoundError("the sources of the kernels, which tell their versions apart")
        python = sys.implementation.cache_tag, getattr(sys, "abiflags", "")
        versions = numba.__version__, llvmlite.__version__, python
        what = self._kernel, signature, codegen.magic_tuple(), versions
        return f"{self._kernel}-{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}.nbc"
