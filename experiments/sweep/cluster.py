"""Jobs as tasks of Ray, on this machine or on a cluster.

Nothing but settings and results travels, and the driver alone writes: no shared file system is
needed. Ray ends the tasks of a driver that is gone.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from experiments.sweep import threads
from experiments.sweep.jobs import Failure, Job, Reply, execute, one_line, parse

_OBJECT_STORE_BYTES = 128 * 2**20  # Ray would take a third of the memory; results are small
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextmanager
def cluster(
    work: str,
    address: str | None,
    workers: int,
    num_cpus: int,
    num_gpus: float,
    on_wait: Callable[[str], None],
) -> Iterator[Cluster]:
    """An engine that is connected to Ray, and at the end no more.

    Args:
        work: the function's reference.
        address: of a cluster; otherwise Ray is started here, for so many workers, and stopped.
        workers: how many jobs at a time, if Ray is started here.
        num_cpus: of a job.
        num_gpus: of a job.
        on_wait: told if no node could run a job yet.
    """
    ray = _ray()
    if ray.is_initialized():
        raise ValueError('engine "ray" connects by itself: call ray.shutdown() before')
    environment: dict[str, Any] = {"env_vars": threads.variables(num_cpus)}
    if address is None:
        environment["env_vars"]["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        options: dict[str, Any] = {
            "address": "local", "num_cpus": workers * num_cpus, "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }  # fmt: skip
    else:
        environment |= {"py_modules": _packages(work), "excludes": ["__pycache__"]}
        options = {"address": address}
    try:
        ray.init(**options, runtime_env=environment, logging_level=logging.ERROR)
        engine = Cluster(ray, work, num_cpus, num_gpus)
        if not engine.slots():
            message = f"no node of the cluster has {num_cpus} CPUs and {num_gpus:g} GPUs"
            if address is None:
                raise ValueError(message)
            on_wait(f"{message}: waiting for one")
        try:
            yield engine
        finally:
            engine.cancel()
    finally:
        ray.shutdown()


class Cluster:
    """The engine."""

    def __init__(self, ray: Any, work: str, num_cpus: int, num_gpus: float) -> None:
        self._ray = ray
        self._work = work
        self._needs = {"CPU": num_cpus, "GPU": num_gpus}
        # Attempts are counted by the driver, the same way for every engine.
        self._options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_retries": 0}
        self._execute = ray.remote(execute)
        self._jobs: dict[Any, Job] = {}

    def slots(self) -> int:
        """How many jobs the nodes that are alive run at once."""
        return sum(
            min(int(node["Resources"].get(k, 0) / need) for k, need in self._needs.items() if need)
            for node in self._ray.nodes()
            if node["Alive"]
        )

    def has_room(self) -> bool:
        """Nodes come and go. One job is always submitted, so that a cluster that grows on demand
        sees it."""
        return len(self._jobs) < max(1, self.slots())

    def submit(self, job: Job) -> None:
        """As a task of its name."""
        task = self._execute.options(name=job.name, **self._options)
        self._jobs[task.remote(self._work, dict(job.settings), self._needs["CPU"])] = job

    def wait(self) -> list[tuple[Job, Reply]]:
        """What tasks have returned, and which ones have died."""
        ready, _ = self._ray.wait(list(self._jobs))
        more, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)
        return [(self._jobs.pop(task), self._reply(task)) for task in {*ready, *more}]

    def cancel(self) -> None:
        """End what is still running."""
        for task in self._jobs:
            with suppress(self._ray.exceptions.RayError, OSError):
                self._ray.cancel(task, force=True)

    def _reply(self, task: Any) -> Reply:
        try:
            return parse(self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            return Failure(one_line(error, str(error)), "".join(traceback.format_exception(error)))


def _ray() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            f'engine "ray" needs Ray ({error}): pip install "ksubset[cluster]", or pip install ray'
        ) from None
    return ray


def _packages(work: str) -> list[str]:
    """The code that travels: of the experiments, the library and the function, unless it is
    installed, and so expected on every node."""
    found = []
    for name in {"experiments", "ksubset", work.partition(":")[0].partition(".")[0]}:
        spec = importlib.util.find_spec(name)
        if spec is not None:
            path = next(iter(spec.submodule_search_locations or ()), spec.origin)
            if path is not None and "site-packages" not in path:
                found.append(path)
    return sorted(found)
