"""Sweeps: whatever is killed, nothing is lost and nothing that is finished is run again."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_jobs import HANG_S

from experiments.locks import locked
from experiments.sweep import Event, Job, Outcome, sweep
from experiments.sweep import records as records_module

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(
    jobs: list[Job], function: str, folder: Path, **options: Any
) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    outcome = sweep(jobs, f"sweep_jobs:{function}", folder, on_event=events.append, **options)
    return outcome, events


def squares(number: int) -> list[Job]:
    return [Job(f"square-{x}", {"x": x}) for x in range(number)]


def names(events: list[Event], kind: str) -> list[str]:
    return [event.job for event in events if event.kind == kind]


def until(condition: Callable[[], Any], what: str = "nothing happens") -> Any:
    deadline = time.monotonic() + HANG_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def states(pid: int) -> set[str]:
    """Of the threads of a process, as the system abbreviates them."""
    try:
        found = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {text.rpartition(")")[2].split()[0] for text in found}


def is_alive(pid: int) -> bool:
    return bool(states(pid) - {"Z", "X"})


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_run_skip_and_go_on(tmp_path: Path, workers: int) -> None:
    outcome, events = run(squares(5), "square", tmp_path, workers=workers)
    assert {name: r["square"] for name, r in outcome.results.items()} == {
        f"square-{x}": x**2 for x in range(5)
    }
    pids = {result["pid"] for result in outcome.results.values()}
    assert len(pids) <= max(1, workers)
    assert (os.getpid() in pids) is (workers == 0)
    assert not any(map(is_alive, pids - {os.getpid()}))
    assert len(names(events, "finished")) == 5
    assert str(events[-1]) == "ended, 5 of 5 jobs are finished"
    record = json.loads((tmp_path / "square-3.json").read_text())
    assert record.pop("seconds") >= 0
    assert record == {
        "work": "sweep_jobs:square", "settings": {"x": 3}, "attempts": 1,
        "result": outcome.results["square-3"],
    }  # fmt: skip

    (tmp_path / "square-1.json").write_text('{"settings": {"x"')
    (tmp_path / "square-2.json").write_text('{"settings": {"x": 2}}')
    (tmp_path / ".square-4.json-abcd1234").write_text("{")  # what a kill leaves
    (tmp_path / "notes.txt").write_text("dear")
    again, events = run(squares(6), "square", tmp_path, workers=workers)
    assert names(events, "skipped") == ["square-0", "square-3", "square-4"]
    assert names(events, "damaged") == ["square-1", "square-2"]
    assert sorted(names(events, "started")) == ["square-1", "square-2", "square-5"]
    assert list(again.results) == [f"square-{x}" for x in range(6)]
    assert {path.name for path in tmp_path.iterdir()} == {
        "notes.txt", *(f"square-{x}.json" for x in range(6))
    }  # fmt: skip
    assert run(squares(6), "square", tmp_path, workers=workers)[0] == again


def test_other_settings(tmp_path: Path) -> None:
    run([Job("a", {"x": 1}), Job("b", {"x": 1})], "square", tmp_path, workers=0)
    jobs = [Job("new", {"x": 0}), Job("a", {"x": 1.0}), Job("b", {"x": 1})]
    with pytest.raises(ValueError, match=r"a\.json was made with x = 1, not 1\.0"):
        run(jobs, "square", tmp_path, workers=0)
    assert not (tmp_path / "new.json").exists()
    with pytest.raises(ValueError, match="was made with x = 1, not nothing"):
        run([Job("a", {})], "square", tmp_path, workers=0)
    with pytest.raises(ValueError, match="work = 'sweep_jobs:square', not 'sweep_jobs:echo'"):
        run([Job("a", {"x": 1})], "echo", tmp_path, workers=0)
    _, events = run(jobs, "square", tmp_path, workers=0, overwrite=True)
    assert names(events, "started") == ["new", "a"]
    assert names(events, "skipped") == ["b"]


def test_no_jobs_and_many(tmp_path: Path) -> None:
    assert run([], "square", tmp_path)[0] == Outcome({}, {})
    outcome, _ = run(squares(200), "square", tmp_path, workers=2)
    assert len({result["pid"] for result in outcome.results.values()}) == 2
    assert len(list(tmp_path.glob("*.json"))) == 200


def test_what_functions_get_and_give(tmp_path: Path) -> None:
    settings = {"ключ": ["✓", "\udc80"], "tuple": (1, 2), "big": 10**30, "long": "x" * 10**6}
    as_json = {**settings, "tuple": [1, 2]}
    for workers in (0, 1):
        outcome, _ = run([Job("a", settings)], "echo", tmp_path / str(workers), workers=workers)
        assert outcome.results["a"] == as_json
        again, _ = run([Job("a", settings)], "echo", tmp_path / str(workers), workers=workers)
        assert again == outcome


def test_threads_are_shared(tmp_path: Path) -> None:
    jobs = [Job(f"{i}", {"i": i}) for i in range(2)]
    for workers in (1, 64):
        outcome, _ = run(jobs, "surroundings", tmp_path / str(workers), workers=workers)
        fair = max(1, len(os.sched_getaffinity(0)) // workers)
        for result in outcome.results.values():
            assert result == {"variable": str(fair), "torch": fair}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", r"RuntimeError: the first line and the second: \\udc80 ✗"),
        ("NaN", "ValueError: the result is not JSON: Out of range float"),
        ("not JSON", "TypeError: the result is not JSON: Object of type set"),
        ("not a dict", "TypeError: the result must be a dict, got list"),
        ("exits", "SystemExit: 3"),
        ("is gone", "the worker process ended with exit status 0 in the middle of the job"),
        ("is killed", "the worker process was killed by SIGKILL"),
        ("closes everything", "the worker process (ended|was killed)"),
        ("leaves a child", "the worker process was killed by SIGKILL"),
        ("interrupts", "the worker process ended with exit status 130"),
    ],
)
def test_failures(tmp_path: Path, how: str, reason: str) -> None:
    bad = Job("bad", {"how": how, "pids": str(tmp_path / "pids")})
    jobs = [bad, *(Job(f"good-{i}", {"how": "prints"}) for i in range(2))]
    outcome, events = run(jobs, "misbehave", tmp_path / "sweep", retries=1)
    assert list(outcome.results) == ["good-0", "good-1"]
    assert list(outcome.failures) == ["bad"]
    failed = [event.text for event in events if event.kind == "failed"]
    assert len(failed) == 2
    for number, text in enumerate(failed, 1):
        assert re.match(f"attempt {number} of 2: {reason}", text.replace("\udc80", r"\udc80"))
        assert "\n" not in text
    assert "failed: bad; see" in events[-1].text
    errors = tmp_path / "sweep" / "bad.error.txt"
    assert errors.read_text().count("Attempt") == 2
    assert ("Traceback (most recent call last)" in errors.read_text()) is ("process" not in reason)
    assert not (tmp_path / "sweep" / "bad.json").exists()
    if how == "leaves a child":
        until(lambda: not any(map(is_alive, map(int, (tmp_path / "pids").read_text().split()))))

    again, events = run(jobs, "misbehave", tmp_path / "sweep", retries=0)
    assert names(events, "started") == ["bad"]
    assert again.results == outcome.results
    assert list(again.failures) == ["bad"]
    assert errors.read_text().count("Attempt") == 1


def test_failures_in_this_process(tmp_path: Path) -> None:
    jobs = [Job("a", {"how": "exits"}), Job("b", {"how": "NaN"}), Job("c", {"how": "prints"})]
    outcome, _ = run(jobs, "misbehave", tmp_path, workers=0, retries=0)
    assert (list(outcome.failures), list(outcome.results)) == (["a", "b"], ["c"])
    with pytest.raises(KeyboardInterrupt):
        run([Job("d", {"how": "interrupts"})], "misbehave", tmp_path, workers=0)


class Log:
    """What the jobs of a sweep have written down."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"

    def lines(self) -> list[list[str]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split() for line in text.splitlines()]

    def count(self, what: str) -> dict[str, int]:
        found = [name for verb, name, _ in self.lines() if verb == what]
        return {name: found.count(name) for name in found}

    def pids(self) -> set[int]:
        return {int(pid) for _, _, pid in self.lines()}


def gated(folder: Path, free: int, held: int, fatal: int = 0) -> list[dict[str, Any]]:
    """Settings of jobs that end at once, of some that wait, of some that kill their process."""
    log, gate = str(folder / "log"), str(folder / "gate")
    settings: list[dict[str, Any]] = [{"name": f"free-{i}", "log": log} for i in range(free)]
    settings += [{"name": f"held-{i}", "log": log, "gate": gate} for i in range(held)]
    settings += [
        {"name": f"fatal-{i}", "log": log, "gate": gate, "fatal": str(folder / f"fatal-{i}")}
        for i in range(fatal)
    ]
    return settings


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(settings: list[dict[str, Any]], **options: Any) -> subprocess.Popen[str]:
        given = {"settings": settings, "folder": str(tmp_path / "sweep"), "options": options}
        process = subprocess.Popen(
            [sys.executable, str(HERE / "sweep_jobs.py"), json.dumps(given)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def kill_driver_and_go_on(
    folder: Path, start: Callable[..., subprocess.Popen[str]], **options: Any
) -> None:
    """A driver is killed with some jobs finished and some under way; another one goes on, and is
    bereft of a worker."""
    log, settings = Log(folder), gated(folder, free=3, held=3, fatal=1)
    # The workers of the first driver may take their time to notice its end.
    options["patience_s"] = HANG_S
    driver = start(settings, **options)
    records = folder / "sweep"
    until(lambda: len(list(records.glob("*.json"))) == 3, "no records")
    until(lambda: log.count("begin").keys() >= {"held-0", "held-1"}, "no jobs under way")
    driver.kill()
    driver.communicate()
    recorded = {path.stem for path in records.glob("*.json")}
    assert recorded == {"free-0", "free-1", "free-2"}

    old = log.pids()
    driver = start(settings, **options)
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("started"):
            break
    if options["engine"] == "ray":  # it ends them soon, not before anything else
        until(lambda: not any(map(is_alive, old)), "workers of a killed driver are alive")
    assert not any(map(is_alive, old))
    (folder / "gate").touch()
    output = line + driver.communicate()[0]
    assert driver.returncode == 0
    everything = {s["name"] for s in settings}
    assert {path.stem for path in records.glob("*.json")} == everything
    assert log.count("end") == dict.fromkeys(everything, 1)
    assert all(log.count("begin")[name] == 1 for name in recorded)
    assert log.count("begin")["fatal-0"] == 2
    assert re.search("failed fatal-0 attempt 1 of 3: .*(killed by SIGKILL|WorkerCrashed)", output)
    for name in everything:
        record = json.loads((records / f"{name}.json").read_text())
        assert record["result"] == {"name": name}
        assert record["attempts"] == 1 + (name == "fatal-0")


def test_killed_driver_and_killed_worker(tmp_path: Path, start_driver: Any) -> None:
    kill_driver_and_go_on(tmp_path, start_driver, engine="processes", workers=2)


def test_interrupted_driver(tmp_path: Path, start_driver: Any) -> None:
    log = Log(tmp_path)
    driver = start_driver(gated(tmp_path, free=1, held=2), workers=2)
    until(lambda: len(log.count("begin")) == 3)
    driver.send_signal(signal.SIGINT)
    driver.communicate()
    assert driver.returncode == -signal.SIGINT
    assert not any(map(is_alive, log.pids()))
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["free-0.json"]
    with locked(tmp_path / "sweep"):
        pass


def test_two_drivers(tmp_path: Path, start_driver: Any) -> None:
    settings = gated(tmp_path, free=0, held=1)
    first = start_driver(settings)
    until(Log(tmp_path).pids)
    jobs = [Job(s["name"], s) for s in settings]
    events: list[Event] = []
    message = "sweep is in use by another process"
    with pytest.raises(ValueError, match=message):
        run(jobs, "gated", tmp_path / "sweep", patience_s=0)
    with pytest.raises(ValueError, match=message):
        sweep(jobs, "sweep_jobs:gated", tmp_path / "sweep", patience_s=0.1, on_event=events.append)
    assert names(events, "waiting") == [""]

    # One that waits gets its turn.
    def opens(event: Event) -> None:
        events.append(event)
        (tmp_path / "gate").touch()

    outcome = sweep(jobs, "sweep_jobs:gated", tmp_path / "sweep", patience_s=HANG_S, on_event=opens)
    assert list(outcome.results) == ["held-0"]
    assert names(events, "skipped") == ["held-0"]
    first.communicate()
    assert first.returncode == 0


def test_a_worker_that_keeps_the_lock(tmp_path: Path, start_driver: Any) -> None:
    """What is left of a killed driver keeps the next one out, for as long as it lives."""
    settings = gated(tmp_path, free=0, held=1)
    driver = start_driver(settings)
    until(Log(tmp_path).pids)
    (worker,) = Log(tmp_path).pids()
    os.kill(worker, signal.SIGSTOP)
    until(lambda: states(worker) == {"T"})
    driver.kill()
    driver.wait()
    jobs = [Job(s["name"], s) for s in settings]
    with pytest.raises(ValueError, match="is in use by another process"):
        run(jobs, "gated", tmp_path / "sweep", patience_s=0.2)
    assert is_alive(worker)
    (tmp_path / "late-gate").touch()
    settings[0]["gate"] = str(tmp_path / "late-gate")
    events: list[Event] = []

    def wakes(event: Event) -> None:
        events.append(event)
        if event.kind == "waiting":
            os.kill(worker, signal.SIGCONT)

    job = Job("held-0", settings[0])
    outcome = sweep(
        [job], "sweep_jobs:gated", tmp_path / "sweep", patience_s=HANG_S, on_event=wakes
    )
    assert events[0].kind == "waiting"
    assert outcome.results == {"held-0": {"name": "held-0"}}
    assert Log(tmp_path).count("end") == {"held-0": 1}


def test_killed_in_the_middle_of_a_record(tmp_path: Path) -> None:
    program = (
        "import os; from pathlib import Path; from experiments.sweep import Job, sweep\n"
        "os.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        f"sweep([Job('square-0', {{'x': 0}})], 'sweep_jobs:square', Path({str(tmp_path)!r}))"
    )
    path = os.pathsep.join(map(str, (ROOT, HERE)))
    killed = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert records_module._UNFINISHED.fullmatch(left.name)
    outcome, _ = run(squares(1), "square", tmp_path)
    assert list(outcome.results) == ["square-0"]
    assert [path.name for path in tmp_path.iterdir()] == ["square-0.json"]


@pytest.mark.parametrize(
    "name", ["", "a/b", "../a", ".a", "a b", "a\n", "é", "a" * 201, "-a", None]
)
def test_bad_names(name: Any) -> None:
    with pytest.raises(ValueError, match="name must"):
        Job(name, {})


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({"x": float("nan")}, ValueError), ({"x": {1}}, TypeError), ({1: 2}, TypeError)],
)
def test_bad_settings(settings: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="settings"):
        Job("a", settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "slurm"}, "engine must be one of processes, ray, got 'slurm'"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"engine": "ray", "workers": 0}, "workers must be at least 1, got 0"),
        ({"retries": -1}, "retries must be at least 0, got -1"),
        ({"num_gpus": 1}, 'are for engine "ray"'),
        ({"address": "auto"}, 'are for engine "ray"'),
        ({"work": "sweep_jobs"}, 'work must be "package.module:function"'),
        ({"work": "nowhere.at_all:f"}, 'work must be "package.module:function"'),
        ({"work": "__main__:f"}, 'work must be "package.module:function"'),
        ({"jobs": [Job("a", {}), Job("A", {})]}, "names must be unique, got a and A"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"jobs": squares(1), "work": "sweep_jobs:square", **options}
    with pytest.raises(ValueError, match=message):
        sweep(folder=tmp_path / "sweep", **given)
    assert not (tmp_path / "sweep").exists()


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'engine "ray" needs Ray .*: pip install "ksubset'):
        run(squares(1), "square", tmp_path, engine="ray")


# How long Ray's processes wait for each other.
_RAY_LIMITS_S = (
    "RAY_gcs_server_request_timeout_seconds", "RAY_gcs_rpc_server_connect_timeout_s",
    "RAY_worker_register_timeout_seconds", "RAY_DASHBOARD_STARTUP_TIMEOUT_S",
)  # fmt: skip


@pytest.fixture
def private_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that this test alone can talk to, and that leaves no token in the home folder."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    for limit in _RAY_LIMITS_S:
        monkeypatch.setenv(limit, f"{HANG_S:.0f}")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


@pytest.fixture
def ray_cluster(private_ray: None, tmp_path: Path) -> Iterator[str]:
    """The address of one node with two CPUs."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    log = tmp_path / "ray.log"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += ["--port=0", f"--ray-client-server-port={port}", "--num-cpus=2"]
    command += ["--include-dashboard=false", "--object-store-memory=100000000"]
    with log.open("w") as file:
        node = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        until(lambda: "--address='" in log.read_text() or node.poll() is not None)
        found = re.search("--address='(.*)'", log.read_text())
        assert found, log.read_text()
        yield found[1]
    finally:
        node.terminate()
        node.wait(HANG_S)


def test_killed_driver_and_killed_worker_on_a_cluster(
    ray_cluster: str, tmp_path: Path, start_driver: Any
) -> None:
    kill_driver_and_go_on(tmp_path, start_driver, engine="ray", address=ray_cluster)


@pytest.mark.usefixtures("private_ray")
def test_ray_on_this_machine(tmp_path: Path, start_driver: Any) -> None:
    (tmp_path / "gate").touch()
    driver = start_driver(gated(tmp_path, free=3, held=0, fatal=1), engine="ray", workers=2)
    output, _ = driver.communicate()
    assert driver.returncode == 0
    assert re.search("failed fatal-0 attempt 1 of 3: WorkerCrashedError", output)
    assert len(list((tmp_path / "sweep").glob("*.json"))) == 4
    assert Log(tmp_path).count("end") == {"free-0": 1, "free-1": 1, "free-2": 1, "fatal-0": 1}
    until(lambda: not any(map(is_alive, Log(tmp_path).pids())), "workers are left")
