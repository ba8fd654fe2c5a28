"""A folder for one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.05


@contextmanager
def locked(
    folder: Path, patience_s: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[int]:
    """One process at a time; the system lets go of the lock whatever happens to its owner.

    Args:
        folder: made if it is not there. Its owner may rename or remove it.
        patience_s: how long another process may go on using it before that is an error.
        on_wait: told once that, and what for, there is a wait.

    Yields:
        The descriptor that holds the lock. Processes that inherit it hold the lock too: it is free
        when the last of them is gone.
    """
    descriptor = _lock(folder, patience_s, on_wait)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_at(descriptor: int, folder: Path) -> bool:
    """Whether the folder of that name is the one that is open, not another or none."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _lock(folder: Path, patience_s: float, on_wait: Callable[[str], None] | None) -> int:
    deadline = time.monotonic() + patience_s
    while (descriptor := _try_to_lock(folder)) is None:
        if time.monotonic() >= deadline:
            raise ValueError(f"{folder} is in use by another process")
        if on_wait is not None:
            on_wait(f"{folder} is in use by another process: waiting up to {patience_s:g} s")
            on_wait = None
        time.sleep(_POLL_S)
    return descriptor


def _try_to_lock(folder: Path) -> int | None:
    """None if another process has the lock, or had it and has moved the folder meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_at(descriptor, folder):
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None
