"""How long a run has taken, over all the parts it was run in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

from experiments.datasets.files import write_atomically


class Duration(NamedTuple):
    """Seconds of a run: of all its parts, and of those before this one."""

    total: float
    before: float

    def __str__(self) -> str:
        text = f"{self.total:.0f} seconds"
        if self.before:
            text += f", {self.total - self.before:.0f} of them since it was resumed"
        return text


class Clock:
    """Counts from now on, and on from what was saved before.

    Args:
        path: of the file; saved with every checkpoint, so that the time counts of all that is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.perf_counter()
        self._before = 0.0
        if path.is_file():
            try:
                self._before = float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path} is damaged: {error!r}") from None

    def read(self) -> Duration:
        """Until now."""
        return Duration(self._before + time.perf_counter() - self._start, self._before)

    def save(self) -> None:
        """For the part that comes after this one, should this one be cut short."""
        write_atomically(self._path, json.dumps({"seconds": self.read().total}).encode())
