"""What the tests of sweeps run in other processes: jobs, and a driver to be killed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# No test waits so long unless something hangs, on a machine that is busy with other things too.
HANG_S = 600.0


def square(settings: dict[str, Any]) -> dict[str, Any]:
    return {"square": settings["x"] ** 2, "pid": os.getpid()}


def echo(settings: dict[str, Any]) -> dict[str, Any]:
    return settings


def note(settings: dict[str, Any], what: str) -> None:
    """A line of the log, in one piece."""
    line = f"{what} {settings['name']} {os.getpid()}\n"
    descriptor = os.open(settings["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def gated(settings: dict[str, Any]) -> dict[str, Any]:
    """Begins, waits for a file to exist if one is named, ends. With `fatal` its process dies when
    the job is run for the first time."""
    note(settings, "begin")
    fatal = settings.get("fatal")
    if fatal and not Path(fatal).exists():
        Path(fatal).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + HANG_S
    while (gate := settings.get("gate")) and not Path(gate).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    note(settings, "end")
    return {"name": settings["name"]}


def surroundings(settings: dict[str, Any]) -> dict[str, Any]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)  # the next job should not see it
    return {"variable": os.environ["OMP_NUM_THREADS"], "torch": before}


def misbehave(settings: dict[str, Any]) -> Any:
    match settings["how"]:
        case "raises":
            raise RuntimeError("the first line\nand the second: \udc80 ✗")
        case "NaN":
            return {"loss": math.nan}
        case "not JSON":
            return {"what": {1, 2}}
        case "not a dict":
            return [1]
        case "exits":
            sys.exit(3)
        case "is gone":
            os._exit(0)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "closes everything":
            os.closerange(3, 100)
        case "leaves a child":
            child = os.fork()
            if not child:
                time.sleep(2 * HANG_S)
                os._exit(0)
            program = subprocess.Popen(["sleep", str(2 * HANG_S)])
            Path(settings["pids"]).write_text(f"{child} {program.pid}")
            os.kill(os.getpid(), signal.SIGKILL)
        case "interrupts":
            raise KeyboardInterrupt
        case "prints":
            print("x" * 100_000)  # more than a pipe holds
    return {}


def main() -> None:
    """A sweep of `gated`, its events on stdout."""
    from experiments.sweep import Job, sweep

    # Whoever runs the tests in the background ignores it, and so would everything started there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = json.loads(sys.argv[1])
    outcome = sweep(
        [Job(settings["name"], settings) for settings in given["settings"]], "sweep_jobs:gated",
        Path(given["folder"]), **given["options"],
        on_event=lambda event: print(event.kind, event.job, event.text, flush=True),
    )  # fmt: skip
    assert not outcome.failures, outcome.failures


if __name__ == "__main__":
    main()
