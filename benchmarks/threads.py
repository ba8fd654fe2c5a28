"""What a second thread saves: ``simple`` and its gradient in a loop with torch operators between.

Threads of those operators spin for a while afterwards, and keep a core busy.

``python benchmarks/threads.py`` on a machine that does nothing else.
"""

from __future__ import annotations

import time
from statistics import median

import torch

import ksubset

SHAPES = (1024, 1024, 10), (8192, 64, 8)
TURNS, CALLS = 20, 5


def seconds(shape: tuple[int, int, int], threads: int) -> list[float]:
    """Of each call, the first of which is not counted."""
    torch.set_num_threads(threads)
    rows, n, k = shape
    logits = torch.randn(rows, n, requires_grad=True)
    weights, activations = torch.randn(rows, n), torch.randn(1024, 1024)
    taken = []
    for _ in range(CALLS + 1):
        activations = activations * 0.999 + 0.001
        start = time.perf_counter()
        torch.autograd.grad(ksubset.simple(logits, k), logits, weights)
        taken.append(time.perf_counter() - start)
    return taken[1:]


def _main() -> None:
    for shape in SHAPES:
        one, two = [], []
        for _ in range(TURNS):
            one += seconds(shape, 1)
            two += seconds(shape, 2)
        rows, n, k = shape
        print(
            f"{rows} × {n}, {k}: {1e3 * median(one):.2f} ms on one thread, "
            f"{1e3 * median(two):.2f} on two: {median(two) / median(one):.2f}"
        )


if __name__ == "__main__":
    _main()
