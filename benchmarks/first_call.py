"""What the very first call costs, in a fresh process: with nothing compiled, and the next time.

``taskset -c 0 python benchmarks/first_call.py``: at 32 x 1000, k = 10, on one core; and what the
import takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the fresh process must not have ksubset imported for it
    from contest import Shape

Seconds = dict[str, float]


def measure(shape: Shape | tuple[int, int, int], device: str) -> dict[str, Seconds]:
    """Seconds of the import and of the first and second forward and backward pass, and of processor
    time for the first with the import, the compilers' caches empty and then as the first process
    left them. Torch's own start is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            name: str(Path(folder) / name.lower())
            for name in ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        return {
            cache: _in_fresh_process(shape, device, {**os.environ, **caches})
            for cache in ("empty", "warm")
        }


def _in_fresh_process(
    shape: Shape | tuple[int, int, int], device: str, environment: dict[str, str]
) -> Seconds:
    command = [sys.executable, __file__, device, *map(str, shape)]
    finished = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: Seconds = json.loads(finished.stdout.splitlines()[-1])
    return result


def in_words(seconds: dict[str, Seconds], shape: Shape | tuple[int, int, int]) -> str:
    """One line."""
    return (
        f"First call in a fresh process, forward and backward at {shape}: "
        f"{seconds['empty']['first']:.2f} s with an empty compile cache "
        f"({seconds['empty']['processor']:.2f} s of processor time), "
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
    # Torch's first backward pass is not ours: it imports sympy.
    torch.autograd.grad(logits * weights, logits, weights)

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def processor() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    seconds: Seconds = {}
    before, start = processor(), now()
    import ksubset

    seconds["import"] = now() - start
    for which in ("first", "second"):
        start = now()
        torch.autograd.grad(ksubset.simple(logits, k), logits, weights)
        seconds[which] = now() - start
        seconds.setdefault("processor", processor() - before)
    print(json.dumps(seconds))


def _import_costs(times: int = 15) -> tuple[float, float]:
    """Medians of processor seconds of ``import torch``, and of what ksubset adds, over fresh
    processes in turns."""

    def cost(program: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", program], check=True)
        after = os.times()
        user = after.children_user - before.children_user
        return user + after.children_system - before.children_system

    pairs = [(cost("import torch"), cost("import torch, ksubset")) for _ in range(times)]
    return median(torch for torch, _ in pairs), median(both - torch for torch, both in pairs)


def _report() -> None:
    shape = 32, 1000, 10
    print(in_words(measure(shape, "cpu"), shape))
    torch, more = _import_costs()
    print(f"import torch: {torch:.2f} s of processor time; import ksubset after it: {more:.2f} s.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _main()
    else:
        _report()
