"""Ctrl-C: a line and exit status 130, whenever it comes.

Python raises KeyboardInterrupt wherever it happens to be. While modules are imported, that is a
traceback of somebody else's code; and nothing is there yet to put in order, so the process may end
on the spot. A run that has something to put in order asks for the exception.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STATUS = 128 + signal.SIGINT
_AGAIN_S = 0.01


def end_at_once() -> None:
    """From now on; unless interrupts are ignored, as in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def raised() -> Iterator[None]:
    """An interrupt in here is a KeyboardInterrupt, outside as `end_at_once` has it.

    Python drops what callbacks of the garbage collector raise, and modules in C make an ImportError
    of whatever is raised while they are imported: neither is the end of an interrupt.
    """
    if signal.getsignal(signal.SIGINT) is not _end:
        yield
        return
    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def dropped(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_again, ())
        else:
            sys.__unraisablehook__(what)

    sys.unraisablehook = dropped
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = sys.__unraisablehook__


@contextmanager
def held_back() -> Iterator[None]:
    """Interrupts wait until the end; in programs started in here, until `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """In a program that was started while interrupts were held back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end(*_: Any) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(STATUS)


def _again() -> None:
    time.sleep(_AGAIN_S)  # until the callback is over
    _thread.interrupt_main()
