"""The driver: hands out jobs, writes down what comes of each, tries again what failed."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from experiments.locks import locked
from experiments.sweep.cluster import cluster
from experiments.sweep.engines import Engine, Serial
from experiments.sweep.jobs import Failure, Job, Success, check_reference, check_unique
from experiments.sweep.pool import pool
from experiments.sweep.records import Records

Kind = Literal["waiting", "skipped", "damaged", "started", "finished", "failed", "ended"]
_ENGINES = ("processes", "ray")
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Event:
    """Something that has happened to a job, or (job "") to the sweep; a line about it."""

    kind: Kind
    job: str
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.job, f"{self.kind}, {self.text}")))


@dataclass(frozen=True)
class Outcome:
    """Results of the jobs that are finished, last failures of those that are not, by name."""

    results: dict[str, dict[str, Any]]
    failures: dict[str, Failure]


def sweep(
    jobs: Iterable[Job],
    work: str,
    folder: Path,
    *,
    engine: str = "processes",
    workers: int = 1,
    address: str | None = None,
    num_cpus: int = 1,
    num_gpus: float = 0,
    retries: int = 2,
    overwrite: bool = False,
    patience_s: float = _PATIENCE_S,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Run all jobs that are not finished yet.

    A job is finished when its record, folder/NAME.json, is written: by this process, at once, whole
    or not at all. A job that was under way when this process was killed is run again by the next
    sweep of the same folder, and so is a failed one.

    Args:
        jobs: with different names.
        work: "package.module:function", which takes a job's settings and returns a dict for JSON.
        folder: where records go; one sweep at a time.
        engine: "processes" of this machine, or "ray".
        workers: how many jobs at a time; 0 is in this process. A cluster has its own number.
        address: of a Ray cluster; otherwise Ray is started here and stopped at the end.
        num_cpus: of a job, for Ray.
        num_gpus: of a job, for Ray; fractions share a device.
        retries: how often a job that failed, or whose worker died, is tried again.
        overwrite: replace records of these names that were made with other settings.
        patience_s: how long to wait for another sweep of the folder, or for what is left of one
            that was killed.
        on_event: told what happens; by default it is printed on stderr.
    """
    jobs = list(jobs)
    check_unique(jobs)
    check_reference(work)
    _check_numbers(engine, workers, address, num_cpus, num_gpus, retries)

    def tell(kind: Kind, job: str, text: str) -> None:
        event = Event(kind, job, text)
        print(event, file=sys.stderr, flush=True) if on_event is None else on_event(event)

    def on_wait(text: str) -> None:
        tell("waiting", "", text)

    def start(lock: int, number: int) -> AbstractContextManager[Engine]:
        if not workers:
            return nullcontext(Serial(work))
        if engine == "processes":
            return pool(work, workers, lock)
        return cluster(work, address, min(workers, number), num_cpus, num_gpus, on_wait)

    with locked(folder, patience_s, on_wait) as lock:
        driver = _Driver(jobs, Records(folder, work), retries, tell)
        pending = driver.pending(overwrite)
        if pending:
            with start(lock, len(pending)) as running:
                driver.drive(pending, running)
        return driver.end()


class _Driver:
    def __init__(
        self,
        jobs: list[Job],
        records: Records,
        retries: int,
        tell: Callable[[Kind, str, str], None],
    ) -> None:
        self.jobs = jobs
        self.records = records
        self.attempts = retries + 1
        self.tell = tell
        self.results: dict[str, dict[str, Any]] = {}
        self.failures: defaultdict[str, list[Failure]] = defaultdict(list)

    def pending(self, overwrite: bool) -> deque[Job]:
        """The jobs without a record; nothing has changed if a record is of another job."""
        self.records.clean()
        pending: deque[Job] = deque()
        for job in self.jobs:
            result = self.records.find(job, overwrite, partial(self.tell, "damaged", job.name))
            if result is None:
                pending.append(job)
            else:
                self.results[job.name] = result
                self.tell("skipped", job.name, "it is finished")
        for job in pending:
            self.records.forget_errors(job)
        return pending

    def drive(self, pending: deque[Job], engine: Engine) -> None:
        under_way = 0
        while pending or under_way:
            while pending and engine.has_room():
                job = pending.popleft()
                self.tell("started", job.name, self._attempt(job))
                engine.submit(job)
                under_way += 1
            for job, reply in engine.wait():
                under_way -= 1
                if isinstance(reply, Success):
                    self._finished(job, reply)
                elif self._failed(job, reply):
                    # After the others: what is short now, memory say, may not be later.
                    pending.append(job)

    def _attempt(self, job: Job) -> str:
        return f"attempt {len(self.failures[job.name]) + 1} of {self.attempts}"

    def _finished(self, job: Job, success: Success) -> None:
        self.records.finished(job, success, len(self.failures.pop(job.name, ())) + 1)
        self.results[job.name] = success.result
        self.tell("finished", job.name, f"{success.seconds:.3g} s")

    def _failed(self, job: Job, failure: Failure) -> bool:
        """Whether there is another attempt."""
        text = f"{self._attempt(job)}: {failure.reason}"
        failures = self.failures[job.name]
        failures.append(failure)
        self.records.failed(job, failures)
        self.tell("failed", job.name, text)
        return len(failures) < self.attempts

    def end(self) -> Outcome:
        names = [job.name for job in self.jobs]
        results = {name: self.results[name] for name in names if name in self.results}
        failures = {name: self.failures[name][-1] for name in names if name not in results}
        text = f"{len(results)} of {len(names)} jobs are finished"
        if failures:
            text += f"; failed: {', '.join(failures)}; see {self.records.folder}/NAME.error.txt"
        self.tell("ended", "", text)
        return Outcome(results, failures)


def _check_numbers(
    engine: str, workers: int, address: str | None, num_cpus: int, num_gpus: float, retries: int
) -> None:
    if engine not in _ENGINES:
        raise ValueError(f"engine must be one of {', '.join(_ENGINES)}, got {engine!r}")
    if engine != "ray" and (address is not None or num_cpus != 1 or num_gpus):
        raise ValueError('address, num_cpus and num_gpus are for engine "ray"')
    ray = int(engine == "ray")
    for name, value, least in (
        ("workers", workers, ray),
        ("num_cpus", num_cpus, 1),
        ("num_gpus", num_gpus, 0),
        ("retries", retries, 0),
    ):
        if name != "num_gpus" and not isinstance(value, int):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
