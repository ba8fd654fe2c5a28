"""Times the plain torch methods against each other, to set kernels/choice.py.

    python benchmarks/crossover.py

Interleaved repeats, medians, one thread; a column per method, in milliseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from ksubset import kernels

SHAPES = [
    (1, 4, 2), (1, 10, 5), (1, 32, 8), (1, 100, 10), (1, 1000, 10), (1, 10_000, 100),
    (100, 4, 2), (100, 10, 5), (100, 32, 8), (100, 100, 10), (100, 1000, 10), (100, 1000, 300),
    (2000, 4, 2), (2000, 10, 5), (2000, 20, 10), (2000, 32, 8), (2000, 64, 8), (2000, 200, 10),
    (16, 10_000, 10), (16, 10_000, 1000),
]  # fmt: skip
REPEATS = 7


def timings(tasks: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median milliseconds of each task, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(REPEATS):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    operations: dict[str, Callable[[Tensor, Tensor, str], object]] = {
        "infer": lambda logits, k, method: kernels.infer(logits, k, method),
        "covariance": lambda logits, k, method: kernels.covariance_product(
            kernels.tilt(logits, k, method), k, logits, method
        ),
        "sample": lambda logits, k, method: kernels.sample(
            logits, k, torch.randint(1 << 60, (1, len(logits))), method
        ),
    }
    for what, operation in operations.items():
        print(f"{what:>24} " + " ".join(f"{name:>10}" for name in kernels.METHODS))
        for rows, n, k in SHAPES:
            logits, size = torch.randn(rows, n), torch.full((rows,), k)
            tasks = {
                name: partial(operation, logits, size, name)
                for name in kernels.METHODS
                if not (name == "dp" and n > 1000)
            }
            result = timings(tasks)
            cells = " ".join(f"{result.get(name, float('nan')):10.2f}" for name in kernels.METHODS)
            print(f"{rows:>7} x {n:>6}, {k:>5} {cells}", flush=True)


if __name__ == "__main__":
    main()
