"""What the very first call costs, in a fresh process: with nothing compiled, and the next time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the fresh process must not have ksubset imported for it
    from contest import Shape

Seconds = dict[str, float]


def measure(shape: Shape, device: str) -> dict[str, Seconds]:
    """Seconds of the import and of the first and second forward and backward pass, the compilers'
    caches empty and then as the first process left them. Torch's own start is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            name: str(Path(folder) / name.lower())
            for name in ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        return {
            cache: _in_fresh_process(shape, device, {**os.environ, **caches})
            for cache in ("empty", "warm")
        }


def _in_fresh_process(shape: Shape, device: str, environment: dict[str, str]) -> Seconds:
    command = [sys.executable, __file__, device, *map(str, shape)]
    finished = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: Seconds = json.loads(finished.stdout.splitlines()[-1])
    return result


def in_words(seconds: dict[str, Seconds], shape: Shape) -> str:
    """One line."""
    return (
        f"First call in a fresh process, forward and backward at {shape}: "
        f"{seconds['empty']['first']:.2f} s with an empty compile cache, "
        f"{seconds['warm']['first']:.2f} s with a warm one; second call "
        f"{1e3 * seconds['warm']['second']:.1f} ms; importing ksubset after torch takes "
        f"{seconds['warm']['import']:.2f} s."
    )


def _main() -> None:
    import torch

    # Compiling takes one thread; more would only wait for each other on a busy machine.
    torch.set_num_threads(1)
    device = sys.argv[1]
    rows, n, k = map(int, sys.argv[2:])
    logits = torch.randn(rows, n, device=device, requires_grad=True)
    weights = torch.randn(rows, n, device=device)
    (logits * weights).sum().backward()  # torch's first backward pass is not ours

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    seconds: Seconds = {}
    start = now()
    import ksubset

    seconds["import"] = now() - start
    for which in ("first", "second"):
        start = now()
        torch.autograd.grad(ksubset.simple(logits, k), logits, weights)
        seconds[which] = now() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    _main()
