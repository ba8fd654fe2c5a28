"""A sweep of an experiment: told on the terminal, and nothing less than all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.sweep.driver import Event, sweep
from experiments.sweep.jobs import Job


def run_all(
    jobs: Sequence[Job],
    work: str,
    folder: Path,
    console: Console,
    *,
    engine: str,
    workers: int,
    address: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Results of all jobs by name; an error that says which failed if any did."""

    def on_event(event: Event) -> None:
        if event.kind != "started":
            console.print(str(event), markup=False, highlight=False)

    found = sweep(
        jobs, work, folder, engine=engine, workers=workers, address=address, on_event=on_event
    )
    if found.failures:
        raise ValueError(
            f"{len(found.failures)} of {len(jobs)} jobs failed ({', '.join(found.failures)}): "
            f"{folder} holds the reasons, --resume tries them again"
        )
    return found.results
