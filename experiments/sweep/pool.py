"""Worker processes on this machine, one job at a time each.

Started as new programs, not forked: threads and CUDA do not survive a fork. Each is the head of a
session, so that Ctrl-C reaches the driver only, which ends them in order, and so that a worker goes
with everything its job has started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import wait

from experiments import interrupts
from experiments.sweep import threads
from experiments.sweep.jobs import Failure, Job, Reply, parse
from experiments.sweep.worker import STOP

_START = (
    "import json, sys; arguments = json.loads(sys.argv[1]); sys.path[:] = arguments.pop('path'); "
    "from experiments.sweep.worker import main; main(**arguments)"
)
_GRACE_S = 3.0


@contextmanager
def pool(work: str, workers: int, lock: int) -> Iterator[Pool]:
    """An engine whose workers are gone at the end.

    Args:
        work: the function's reference.
        workers: how many at most; they are started as jobs come.
        lock: a descriptor for them to hold for as long as they live.
    """
    engine = Pool(work, workers, lock)
    try:
        yield engine
    finally:
        engine.close()


class Pool:
    """The engine."""

    def __init__(self, work: str, workers: int, lock: int) -> None:
        self._work = work
        self._most = workers
        self._lock = lock
        self._workers: list[_Worker] = []

    def has_room(self) -> bool:
        """Whether a worker is idle, or may be started."""
        return len(self._busy()) < self._most

    def submit(self, job: Job) -> None:
        """To an idle worker, or to a new one."""
        idle = [worker for worker in self._workers if worker.job is None]
        for worker in idle:
            if worker.connection.poll():  # it has nothing to say but that it is gone
                self._remove(worker)
            else:
                break
        else:
            with interrupts.held_back():  # until the worker is ready for them, and known here
                worker = _Worker(self._work, threads.fair_share(self._most), self._lock)
                self._workers.append(worker)
        worker.begin(job)

    def wait(self) -> list[tuple[Job, Reply]]:
        """What workers say, and who has died."""
        busy = self._busy()
        ready = wait([worker.connection for worker in busy])
        return [self._collect(worker) for worker in busy if worker.connection in ready]

    def close(self) -> None:
        """End all workers, and whatever they do."""
        try:
            _stop(self._workers)
        finally:
            for worker in self._workers:
                worker.kill()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _collect(self, worker: _Worker) -> tuple[Job, Reply]:
        job, worker.job = worker.job, None
        assert job is not None
        try:
            reply = parse(worker.connection.recv_bytes())
        except (EOFError, OSError):
            return job, Failure(_ending(self._remove(worker)))
        if isinstance(reply, Failure):
            # What a failure leaves behind (a CUDA context in error, memory) is not for the next.
            _stop([worker])
            self._remove(worker)
        return job, reply

    def _remove(self, worker: _Worker) -> int:
        self._workers.remove(worker)
        return worker.kill()


class _Worker:
    def __init__(self, work: str, share: int, lock: int) -> None:
        self.job: Job | None = None
        self.connection, theirs = Pipe()
        with theirs:
            arguments = {
                "path": sys.path, "connection": theirs.fileno(), "lock": lock, "work": work,
                "threads": share,
            }  # fmt: skip
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(arguments)],
                pass_fds=(theirs.fileno(), lock),
                env={**os.environ, **threads.variables(share)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def begin(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # it is gone, as will be seen by who waits for it
            self.connection.send_bytes(json.dumps(job.settings).encode())

    def kill(self) -> int:
        """With everything that is left of its group; how it had ended, if it had."""
        self.connection.close()
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def _stop(workers: Iterable[_Worker]) -> None:
    """Let workers end by themselves, for a while."""
    deadline = time.monotonic() + _GRACE_S
    for worker in workers:
        with suppress(OSError):
            if worker.job is not None:
                os.killpg(worker.process.pid, signal.SIGINT)
            worker.connection.send_bytes(STOP)
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(max(0.0, deadline - time.monotonic()))


def _ending(status: int) -> str:
    if status >= 0:
        return f"the worker process ended with exit status {status} in the middle of the job"
    known = {each.value: each.name for each in signal.Signals}
    name = known.get(-status, f"signal {-status}")
    hint = " (out of memory?)" if -status == signal.SIGKILL else ""
    return f"the worker process was killed by {name}{hint}"
