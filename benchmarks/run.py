"""Forward and backward of ``ksubset.simple`` against what it replaces.

    python benchmarks/run.py --device cpu --threads 1
    python benchmarks/run.py --device cuda --graphs

Interleaved repeats, medians, ratios to straight-through Gumbel top-k with their spread. No time
is reported unless marginals and products agreed with the oracle in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import baselines
import torch
from torch import Tensor

import ksubset
from ksubset import oracle

SHAPES = [
    (2000, 20, 10), (64, 350, 10), (128, 1000, 10), (16, 10_000, 100),
    (1024, 1024, 10), (128, 4096, 64), (128, 16_384, 1000),
]  # fmt: skip
CUDA_SHAPES = [(8, 1_000_000, 10_000)]
REFERENCE = "straight-through Gumbel top-k"


def contestants(k: int, n: int, device: str) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """Those that can run at this size at all."""
    table: dict[str, Callable[[Tensor, int], Tensor]] = {
        "ksubset.simple": lambda x, size: ksubset.simple(x, size, validate_args=False),
        REFERENCE: baselines.straight_through_gumbel_top_k,
    }
    if k <= 100:
        table["SoftSub"] = baselines.softsub
        table["I-MLE (sum of gamma)"] = baselines.imle
    if n <= 1024 and device == "cpu":
        table["log-space DP, autodiff"] = baselines.log_space_dp
    table["torch.topk alone"] = lambda x, size: x.topk(size, -1).values
    table["copy of the logits"] = lambda x, size: x * 1.0
    return table


def check(logits: Tensor, k: int) -> None:
    """The answers, against the oracle, on one row."""
    row = logits[:1].detach()
    if row.shape[-1] > 20_000:
        return
    truth = oracle.LogSpaceDP(row[0], k)
    v = torch.randn_like(row)
    error = (ksubset.marginals(row, k)[0].cpu().double() - truth.marginals()).abs().max()
    assert error < 2e-6, f"marginals are off by {float(error):.1e}"
    product = truth.covariance_product(v[0])
    error = (ksubset.covariance_product(row, k, v)[0].cpu().double() - product).abs().max()
    bound = 2e-5 * product.abs().max() + 2e-6 * (v - v.mean()).abs().max().cpu()
    assert error < bound, f"the covariance product is off by {float(error):.1e}"
    assert (ksubset.sample(row, k).sum(-1) == k).all()


class Timer:
    """Milliseconds of a call, by the clock or by device events around graph replays."""

    def __init__(self, device: str, graphs: bool) -> None:
        self.device, self.graphs = device, graphs

    def prepare(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Warm up, and capture if asked to."""
        if not self.graphs:
            for _ in range(3):
                call()
            return call
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        return graph.replay

    def measure(self, call: Callable[[], Any]) -> float:
        """One sample: several calls on a GPU, one on a CPU."""
        if self.device == "cpu":
            start = time.perf_counter()
            call()
            return 1e3 * (time.perf_counter() - start)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(10):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 10


def run(rows: int, n: int, k: int, settings: argparse.Namespace) -> list[dict[str, Any]]:
    """All contestants at one shape."""
    timer = Timer(settings.device, settings.graphs)
    logits = torch.randn(rows, n, device=settings.device, requires_grad=True)
    weights = torch.randn(rows, n, device=settings.device)
    check(logits, k)
    calls: dict[str, Callable[[], Any]] = {}
    memory: dict[str, float] = {}
    for name, sampler in contestants(k, n, settings.device).items():

        def both(sampler: Callable[[Tensor, int], Tensor] = sampler) -> Any:
            z = sampler(logits, k)
            w = weights[..., : z.shape[-1]]
            return torch.autograd.grad(z, logits, w)

        calls[name] = timer.prepare(both)
        if settings.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            both()
            memory[name] = (torch.cuda.max_memory_allocated() - before) / (4 * rows * n)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(settings.repeats):
        for name, call in calls.items():
            times[name].append(timer.measure(call))
    result = []
    for name, values in times.items():
        ratios = sorted(a / b for a, b in zip(values, times[REFERENCE], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        ratio = statistics.median(ratios)
        row = {
            "shape": f"{rows} x {n}, {k}", "name": name, "ms": statistics.median(values),
            "ratio": ratio, "low": low, "high": high, "memory": memory.get(name, math.nan),
        }  # fmt: skip
        result.append(row)
        print(
            f"{row['shape']:>22}  {name:<30} {row['ms']:9.4f} ms  {ratio:6.2f} x "
            f"[{low:.2f}, {high:.2f}]  memory {row['memory']:.1f}",
            flush=True,
        )
    return result


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--graphs", action="store_true", help="time captured CUDA graphs")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmark.json"))
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    shapes = SHAPES[:4] if settings.device == "cpu" else SHAPES + CUDA_SHAPES
    if settings.graphs:
        # Longer rows are still drawn by plain torch, whose loops ask the device when they end.
        shapes = [shape for shape in shapes if shape[1] <= 8192]
    table = [row for shape in shapes for row in run(*shape, settings)]
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    partial = settings.output.with_suffix(".partial")
    partial.write_text(json.dumps({"settings": vars(settings), "table": table}, default=str))
    partial.replace(settings.output)


if __name__ == "__main__":
    main()
