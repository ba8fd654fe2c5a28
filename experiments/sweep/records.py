"""What a sweep leaves on disk: NAME.json for a finished job, NAME.error.txt for what went wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.datasets.files import write_atomically
from experiments.identity import difference
from experiments.sweep.jobs import Failure, Job, Success

_UNFINISHED = re.compile(r"\..+\.(json|error\.txt)-\w+")


@dataclass(frozen=True)
class Records:
    """The files of a sweep; one process at a time writes them."""

    folder: Path
    work: str

    def clean(self) -> None:
        """Remove what was being written when a driver was killed."""
        for path in self.folder.iterdir():
            if _UNFINISHED.fullmatch(path.name):
                path.unlink()

    def find(
        self, job: Job, overwrite: bool, on_damage: Callable[[str], None]
    ) -> dict[str, Any] | None:
        """The result of a job that is finished; an error if it was another job of that name.

        Args:
            job: which.
            overwrite: another job of that name counts for nothing.
            on_damage: told about a record that cannot be read, which counts for nothing either.
        """
        path = self._record(job.name)
        try:
            record = _read(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            on_damage(f"{path} is damaged ({error}): the job is run again")
            return None
        differs = difference({"work": record["work"]}, {"work": self.work})
        differs = differs or difference(record["settings"], job.settings)
        if differs is None:
            return record["result"]
        if overwrite:
            return None
        raise ValueError(
            f"{path} was made with {differs}: another folder, or overwrite=True, which replaces it"
        )

    def finished(self, job: Job, success: Success, attempts: int) -> None:
        """Write the record."""
        record = {
            "work": self.work, "settings": job.settings, "result": success.result,
            "seconds": success.seconds, "attempts": attempts,
        }  # fmt: skip
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        write_atomically(self._record(job.name), text.encode())

    def failed(self, job: Job, failures: list[Failure]) -> None:
        """Write down all that went wrong with a job in this sweep."""
        text = "\n".join(
            f"Attempt {number}: {failure.reason}\n{failure.traceback}"
            for number, failure in enumerate(failures, 1)
        )
        write_atomically(self._errors(job.name), text.encode(errors="backslashreplace"))

    def forget_errors(self, job: Job) -> None:
        """Those of an earlier sweep."""
        self._errors(job.name).unlink(missing_ok=True)

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _errors(self, name: str) -> Path:
        return self.folder / f"{name}.error.txt"


def _read(path: Path) -> dict[str, Any]:
    """A whole record, or a ValueError."""
    record = json.loads(path.read_text(encoding="utf-8"))
    kinds = {"work": str, "settings": dict, "result": dict}
    for name, kind in kinds.items():
        if not isinstance(record, dict) or not isinstance(record.get(name), kind):
            raise ValueError(f"it holds no {name}")
    return record
