"""Ctrl-C: a line and exit status 130, whenever it comes. Real processes, which send the signal to
themselves, or wait for it, at moments that an import marks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Every process runs this first: it acts when a module is about to be imported.
HOOK = """
import atexit, os, signal, sys, time, weakref

class Something:
    pass

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

def in_a_callback():
    something = Something()
    reference = weakref.ref(something, interrupt)
    del something  # what the callback raises, Python drops

def as_another_error():
    try:
        interrupt()
    except KeyboardInterrupt:
        raise ImportError("as modules in C make of whatever they meet")

def worker_waits():
    if sys.argv[0] == "-c":
        open(os.environ["MARK"], "w").close()
        while not signal.sigpending():
            time.sleep(0.01)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WHEN"] and self in sys.meta_path:
            sys.meta_path.remove(self)
            globals()[os.environ["WHAT"]]()

# Whoever runs the tests in the background ignores it, and so would everything started there.
signal.signal(signal.SIGINT, signal.default_int_handler)
if os.environ["WHEN"] == "exit":
    atexit.register(interrupt)
sys.meta_path.insert(0, Finder())
"""


def start(tmp_path: Path, module: str, *options: str, **moment: str) -> subprocess.Popen[str]:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", f"experiments.{module}", *options]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **moment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


SMALL = {
    "synthetic": ["--n", "6", "--k", "3", "--problems", "1", "--draws", "100"],
    "l2x": ["--problems", "xor", "--examples", "200", "--epochs", "1"],
}


@pytest.mark.parametrize("module", ["synthetic", "sparse", "l2x", "beer", "dvae", "dvae.timing"])
def test_during_the_first_imports(tmp_path: Path, module: str) -> None:
    process = start(tmp_path, module, "--help", WHEN="torch", WHAT="interrupt")
    output, errors = process.communicate()
    assert (process.returncode, output, errors) == (130, "", "Interrupted.\n")


@pytest.mark.parametrize(
    ("when", "what"),
    [
        ("typer", "interrupt"),
        ("torch", "in_a_callback"),
        ("matplotlib.pyplot", "as_another_error"),
        ("exit", "interrupt"),
    ],
)
def test_before_and_after_a_run(tmp_path: Path, when: str, what: str) -> None:
    process = start(tmp_path, "synthetic", "--help", WHEN=when, WHAT=what)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "Interrupted.\n")


@pytest.mark.parametrize("what", ["interrupt", "in_a_callback", "as_another_error"])
def test_during_imports_of_a_run(tmp_path: Path, what: str) -> None:
    options = [*SMALL["synthetic"], "--output", str(tmp_path / "runs" / "run")]
    process = start(tmp_path, "synthetic", *options, WHEN="numba", WHAT=what)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "Interrupted: nothing was written.\n")
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("when", ["json", "experiments.sweep.worker", "experiments.l2x.job"])
def test_while_workers_start(tmp_path: Path, when: str) -> None:
    os.mkfifo(mark := tmp_path / "mark")
    options = [*SMALL["l2x"], "--output", str(tmp_path / "runs" / "run"), "--workers", "1"]
    process = start(
        tmp_path, "l2x", *options, WHEN=when, WHAT="worker_waits", MARK=str(mark)
    )  # fmt: skip
    mark.read_text()  # until a worker is there
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    told = "Interrupted: --resume goes on with what is not finished.\n"
    assert (process.returncode, errors) == (130, told)
