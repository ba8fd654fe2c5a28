"""A job: the name and the settings of one call of a function; and the call, in any process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.identity import as_json

# ASCII: names of files are not the same everywhere beyond it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+,@-]*", re.ASCII)
_LONGEST_NAME = 200
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Job:
    """One call.

    Attributes:
        name: of its files too: letters, digits and ``._=+,@-``.
        settings: what the function gets, as JSON gives it back (tuples are lists).
    """

    name: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "name must be letters, digits and any of ._=+,@- (not first), the name of a file; "
                f"got {self.name!r}"
            )
        if len(self.name) > _LONGEST_NAME:
            raise ValueError(f"name must have at most {_LONGEST_NAME} characters, got {self.name}")
        if not all(isinstance(key, str) for key in self.settings):
            raise TypeError(f"names of settings must be strings, got {list(self.settings)}")
        try:
            settings = as_json(self.settings)
        except (TypeError, ValueError, RecursionError) as error:
            raise type(error)(f"settings of {self.name} are not JSON: {error}") from None
        object.__setattr__(self, "settings", settings)


def check_unique(jobs: Iterable[Job]) -> None:
    """Raise if two jobs would write the same file, on file systems that ignore case as well."""
    seen: dict[str, str] = {}
    for job in jobs:
        key = job.name.casefold()
        if key in seen:
            raise ValueError(f"names must be unique, got {seen[key]} and {job.name}")
        seen[key] = job.name


def check_reference(work: str) -> None:
    """Raise unless another process could import the module: its code is not run here."""
    module, _, function = work.partition(":")
    try:
        found = bool(function) and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        found = False
    if not found or module == "__main__":
        raise ValueError(
            f'work must be "package.module:function" in a module that can be imported, got {work!r}'
        )


@dataclass(frozen=True)
class Success:
    """What a call has returned, and how long it took."""

    result: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """Why there is no result: in a line, and as a traceback if there is one."""

    reason: str
    traceback: str = ""


Reply = Success | Failure


def execute(work: str, settings: dict[str, Any], threads: int | None = None) -> str:
    """Call the function and put what comes of it into JSON, which any process can read.

    Interrupts pass; everything else that is raised is a failure, `sys.exit` too.
    """
    try:
        function = _resolve(work)
        if threads is not None and "torch" in sys.modules:
            # For every job: the one before may have changed it.
            sys.modules["torch"].set_num_threads(threads)
        start = time.perf_counter()
        result = function(settings)
        seconds = time.perf_counter() - start
        if not isinstance(result, dict):
            raise TypeError(f"the result must be a dict, got {type(result).__name__}")
        try:
            return json.dumps({"result": result, "seconds": seconds}, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise type(error)(f"the result is not JSON: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        summary = traceback.TracebackException.from_exception(error)
        text = "".join(summary.format())
        return json.dumps({"reason": one_line(error, str(summary)), "traceback": text})


def _resolve(work: str) -> Callable[[dict[str, Any]], Any]:
    module, _, name = work.partition(":")
    return getattr(importlib.import_module(module), name)


def one_line(error: BaseException, message: str) -> str:
    """The type and as much of the message as fits a line."""
    line = " ".join(f"{type(error).__name__}: {message}".split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def parse(reply: str | bytes) -> Reply:
    """What `execute` has put into JSON."""
    content = json.loads(reply)
    return Success(**content) if "result" in content else Failure(**content)
