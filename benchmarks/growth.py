"""How cost grows with k at fixed n, and with n at fixed k, beside the paper's O(nk).

    python benchmarks/growth.py [--device cuda]

Marginals, covariance product (the gradient) and sample; fitted exponents, JSON and a figure into
outputs/. The paper's dynamic programme in log space is measured on the CPU at a few sizes.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import agreement
import machine
import matplotlib.pyplot as plt
import numpy as np
import timing
import torch
from contest import LOG_SPACE_DP, Problem, Shape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report import duration, write_figure, write_json
from rich.console import Console
from rich.table import Table
from timing import CALLS_PER_GRAPH, Call, NotCapturableError, Task
from torch import Tensor

import ksubset
from ksubset import oracle

WHAT = ("marginals", "covariance product", "sample")
STYLES = {
    "marginals": ("o-", "#08519c"),
    "covariance product": ("s-", "#74a892"),
    "sample": ("^-", "#8c6bb1"),
    LOG_SPACE_DP: ("D--", "#636363"),
}
FIXED_N, FIXED_K = 16_384, 100
SIZES = {
    "k": (10, 32, 100, 316, 1000, 3162),
    "n": (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000),
}
ROWS = {"cpu": {"k": 1, "n": 1}, "cuda": {"k": 128, "n": 8}}
# Rows enough that arithmetic and not the n steps' launches is what grows with k.
DP_SHAPES = {
    "k": [Shape(32, 1024, k) for k in (10, 100, 1000)],
    "n": [Shape(32, n, FIXED_K) for n in (500, 1500, 5000)],
}
# Below, what a call costs at any size hides how it grows.
FIT_FROM_N = 10_000


@dataclass(frozen=True)
class Point:
    """One operation at one size, milliseconds."""

    along: str
    what: str
    shape: Shape
    ms: float
    ms_low: float
    ms_high: float
    timed_by: str

    def size(self) -> int:
        """What varies."""
        return self.shape.k if self.along == "k" else self.shape.n

    def height(self) -> float:
        """In the figure: nanoseconds per item against k, milliseconds per row against n."""
        per_row = self.ms / self.shape.rows
        return 1e6 * per_row / self.shape.n if self.along == "k" else per_row


def operations(problem: Problem) -> dict[str, Call]:
    """The three operations at one size."""
    logits, v, k = problem.logits.detach(), problem.weights, problem.shape.k
    return {
        "marginals": lambda: ksubset.marginals(logits, k),
        "covariance product": lambda: ksubset.covariance_product(logits, k, v),
        "sample": lambda: ksubset.sample(logits, k),
    }


def sweep(along: str, settings: argparse.Namespace) -> list[Point]:
    """All operations at all sizes, checked and interleaved."""
    device, tasks = settings.device, {}
    owners: dict[str, tuple[str, Shape, str]] = {}
    for size in SIZES[along]:
        rows = ROWS[device][along]
        shape = Shape(rows, FIXED_N, size) if along == "k" else Shape(rows, size, FIXED_K)
        torch.manual_seed(settings.seed)
        problem = Problem.draw(shape, device, settings.seed)
        _check(problem)
        for what, call in operations(problem).items():
            call()
            within, timed_by = 1, "clock" if device == "cpu" else "events, eager"
            if device == "cuda":
                # What cannot be captured is timed as a user calls it.
                with contextlib.suppress(NotCapturableError):
                    call = timing.capture(call)
                    within, timed_by = CALLS_PER_GRAPH, "events, CUDA graph"
            name = f"{what}, {shape}"
            tasks[name] = Task({what: call}, calls_within=within, budget=settings.budget)
            owners[name] = what, shape, timed_by
    times = timing.interleave(tasks, settings.repeats, device)
    points = []
    for name, (what, shape, timed_by) in owners.items():
        found = timing.summarise(times[name][what], {})
        points.append(Point(along, what, shape, found.ms, found.ms_low, found.ms_high, timed_by))
    return points


def _check(problem: Problem) -> None:
    """Against float64 and the plain spectral method: the oracle's own table is O(nk)."""
    z = ksubset.simple(problem.logits, problem.shape.k)
    (gradient,) = torch.autograd.grad(z, problem.logits, problem.weights)
    truth = agreement.Truth.of(problem, most_items=1000)
    agreement.check(problem, truth, z.detach(), gradient)


def log_space_dp(logits: Tensor, k: int) -> Tensor:
    """Marginals as the gradient of the paper's algorithm 1."""
    leaf = logits.detach().requires_grad_()
    return torch.autograd.grad(oracle.log_partition_autodiff(leaf, k).sum(), leaf)[0]


def sweep_dp(along: str, seed: int) -> list[Point]:
    """One call a size, on the CPU: what it shows is a power, not a percentage."""
    threads = torch.get_num_threads()
    machine.set_threads(1)
    log_space_dp(torch.randn(32, 100), 10)
    points = []
    for shape in DP_SHAPES[along]:
        logits = Problem.draw(shape, "cpu", seed).logits
        ms = timing.measure(partial(log_space_dp, logits, shape.k), 1, "cpu")
        points.append(Point(along, LOG_SPACE_DP, shape, ms, ms, ms, "clock, one call"))
    machine.set_threads(threads)
    return points


def exponent(points: Sequence[Point]) -> float:
    """The slope in log-log scales, of sizes large enough to show it."""
    chosen = [p for p in points if p.what == LOG_SPACE_DP or p.shape.n >= FIT_FROM_N]
    sizes, times = [p.size() for p in chosen], [p.ms for p in chosen]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def curves(points: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    """Points by what varies and what is measured."""
    keys = dict.fromkeys((p.along, p.what) for p in points)
    return {key: [p for p in points if (p.along, p.what) == key] for key in keys}


def ratio(points: Sequence[Point], high: int, low: int) -> float:
    """Of the times at two sizes on one curve."""
    times = {p.size(): p.ms for p in points}
    return times[high] / times[low]


def draw(points: Sequence[Point], title: str) -> Figure:
    """Two panels: against k and against n."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained")
    for (along, what), curve in curves(points).items():
        panel: Axes = left if along == "k" else right
        style, colour = STYLES[what]
        rows, n, _ = curve[0].shape
        where = f"{rows} × {n:,}" if along == "k" else f"{rows} row{'s' * (rows > 1)}"
        label = f"{what}, {where}: ${along}^{{{exponent(curve):.2f}}}$"
        panel.plot(
            [p.size() for p in curve], [p.height() for p in curve], style,
            color=colour, label=label,
        )  # fmt: skip
    left.set(title=f"n = {FIXED_N:,}", xlabel="k", ylabel="time per item, ns")
    right.set(title=f"k = {FIXED_K}", xlabel="n", ylabel="time per row, ms")
    for panel in (left, right):
        panel.set(xscale="log", yscale="log")
        panel.grid(color="#e5e5e5", linewidth=0.8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9, handlelength=3)
    figure.suptitle(title, fontsize=10)
    return figure


def show(console: Console, points: Sequence[Point]) -> dict[str, float]:
    """Exponents, and the two checks; what was printed, by name."""
    found = curves(points)
    table = Table(title="growth of cost")
    for heading in ("operation", "grows with", "exponent", "sizes", "times", "timed by"):
        table.add_column(heading)
    for (along, what), curve in found.items():
        table.add_row(
            what, along, f"{exponent(curve):+.2f}", f"{curve[0].shape} … {curve[-1].shape}",
            f"{duration(curve[0].ms)} … {duration(curve[-1].ms)}",
            " or ".join(dict.fromkeys(p.timed_by for p in curve)),
        )  # fmt: skip
    wide = console if console.is_terminal else Console(file=console.file, width=150)
    wide.print(table)
    checks = {}
    for what in WHAT[:2]:
        name = f"{what}: time(k = 1000) / time(k = 10) at n = {FIXED_N}"
        checks[name] = ratio(found["k", what], 1000, 10)
    for what in WHAT:
        name = f"{what}: time(n = 10^6) / time(n = 10^5) at k = {FIXED_K}"
        checks[name] = ratio(found["n", what], 1_000_000, 100_000)
    for name, value in checks.items():
        console.print(f"{name}: {value:.2f}", highlight=False, soft_wrap=True)
    return checks


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--budget", type=float, default=0.3, metavar="S", help="for one size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs"), metavar="FOLDER")
    settings = parser.parse_args()
    path = settings.output / f"growth-{settings.device}"
    if settings.device == "cpu":
        machine.set_threads(1)
    device = machine.describe(settings.device)
    stream = torch.cuda.Stream() if settings.device == "cuda" else None
    points: list[Point] = []
    with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        for along in SIZES:
            points += sweep(along, settings) + sweep_dp(along, settings.seed)
    console = Console()
    checks = show(console, points)
    content: dict[str, Any] = {
        "machine": device,
        "settings": {
            "repeats": settings.repeats, "budget": settings.budget, "seed": settings.seed,
            "dtype": "float32", "calls_per_graph": CALLS_PER_GRAPH,
        },
        "points": [{**asdict(p), "shape": p.shape._asdict()} for p in points],
        "exponents": [
            {"what": what, "along": along, "exponent": exponent(curve)}
            for (along, what), curve in curves(points).items()
        ],
        "checks": checks,
    }  # fmt: skip
    write_json(path.with_suffix(".json"), content)
    title = f"{machine.in_words(device)}; {LOG_SPACE_DP}: on the CPU"
    write_figure(path.with_suffix(".png"), draw(points, title))
    console.print(f"written: {path}.json, {path}.png", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
