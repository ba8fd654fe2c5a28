"""What a driver asks of the place where jobs run; and the simplest place, this process."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from experiments.sweep.jobs import Job, Reply, execute, parse


class Engine(Protocol):
    """Runs jobs, one attempt each."""

    def has_room(self) -> bool:
        """Whether one more would run at once."""

    def submit(self, job: Job) -> None:
        """Begin an attempt."""

    def wait(self) -> list[tuple[Job, Reply]]:
        """The attempts that have ended, at least one; there must be one under way."""


class Serial:
    """In this process, one after the other: for debugging, and where a process is dear to start."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._jobs: deque[Job] = deque()

    def has_room(self) -> bool:
        """One at a time."""
        return not self._jobs

    def submit(self, job: Job) -> None:
        """It runs while it is waited for."""
        self._jobs.append(job)

    def wait(self) -> list[tuple[Job, Reply]]:
        """Run it."""
        job = self._jobs.popleft()
        return [(job, parse(execute(self._work, dict(job.settings))))]
