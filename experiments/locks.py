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
        folder: one that exists.
        patience_s: how long another process may go on using it before that is an error.
        on_wait: told once that, and what for, there is a wait.

    Yields:
        The descriptor that holds the lock. Processes that inherit it hold the lock too: it is free
        when the last of them is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder, patience_s, on_wait)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(
    descriptor: int, folder: Path, patience_s: float, on_wait: Callable[[str], None] | None
) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise ValueError(f"{folder} is in use by another process") from None
        if on_wait is not None:
            on_wait(f"{folder} is in use by another process: waiting up to {patience_s:g} s")
            on_wait = None
        time.sleep(_POLL_S)
