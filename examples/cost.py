"""What does exactness cost on this machine? Time of a sample with its gradient, against k.

    python examples/cost.py [--output outputs/cost.png]

A quick look; the benchmark with all rivals and shapes is benchmarks/run.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
from figures import BLUE, GREY, ORANGE, save
from torch import Tensor

import ksubset
from ksubset import estimators, oracle

ROWS, N, SIZES, REPEATS = 32, 1000, (1, 3, 10, 30, 100, 300), 7

torch.manual_seed(0)
torch.set_num_threads(1)
gumbel = estimators.StraightThroughGumbel()
RIVALS: dict[str, tuple[Callable[[Tensor, int], Tensor], str]] = {
    "ksubset.simple": (ksubset.simple, BLUE),
    "straight-through Gumbel top-k": (gumbel.sample, ORANGE),
    "the paper's algorithm, autodiff": (oracle.log_partition_autodiff, GREY),
}


def milliseconds(draw: Callable[[Tensor, int], Tensor], k: int) -> float:
    """Forward and backward, the median of some repeats after one to warm up."""
    logits = torch.randn(ROWS, N, requires_grad=True)
    times = []
    for _ in range(REPEATS if draw is not oracle.log_partition_autodiff else 1):
        start = time.perf_counter()
        found = draw(logits, k)
        torch.autograd.grad(found, logits, torch.ones_like(found))
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


for draw, _ in RIVALS.values():
    milliseconds(draw, 2)
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name, (draw, colour) in RIVALS.items():
    sizes = [k for k in SIZES if k <= 100 or draw is not oracle.log_partition_autodiff]
    axis.loglog(sizes, [milliseconds(draw, k) for k in sizes], "o-", color=colour, label=name)
axis.set(
    title=f"{ROWS} rows of {N} logits, one thread", xlabel="k", ylabel="forward and backward, ms"
)
axis.legend(frameon=False)
axis.grid(color="0.9")
save(figure, "cost")
