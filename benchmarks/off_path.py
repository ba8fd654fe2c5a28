"""Calls off the main path against the plain call: eager, forward and backward unless it says so.

    python benchmarks/off_path.py --device cuda
    python benchmarks/off_path.py --shape 64x128,5 --repeats 3

Prints a table and writes outputs/off-path-cuda.json. Every time comes with its ratio to the plain
call, or to ``torch.topk``, in the same repeat. Bounds are for 1024 × 1024, k = 10 on an H200.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine
import report
import torch
from contest import Problem, Shape
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from timing import Call, Summary, Task, interleave, summarise
from torch import Tensor

import ksubset
from ksubset.estimators import ReinMax

PLAIN = "plain"
TOPK = "torch.topk, forward"
WHAT = "both"  # what is timed of a call, as a task names it


@dataclass(frozen=True)
class Row:
    """A call, what it is compared with and, if it has them, its bounds."""

    call: Call
    reference: str = PLAIN
    most: float | None = None  # times the reference
    most_ms: float | None = None


def gradient(
    function: Callable[[Tensor], Tensor], logits: Tensor, weights: Tensor
) -> Callable[[], Tensor]:
    """Forward and backward."""

    def call() -> Tensor:
        value = function(logits)
        each = weights if value.dim() == weights.dim() else weights[:, 0]
        return torch.autograd.grad(value, logits, each)[0]

    return call


def _in(problem: Problem, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    logits = problem.logits.detach().to(dtype).requires_grad_()
    return logits, problem.weights.to(dtype)


def calls(problem: Problem, compiled: bool = True) -> dict[str, Row]:
    """All rows of the table; without the compiled one, nothing needs a compiler."""
    (_, n, k), logits, weights = problem.shape, problem.logits, problem.weights
    both = logits, weights
    z = ksubset.sample(logits, k)
    # At most a tenth of the items is forbidden, and k of them are left.
    mask = (weights < 1.2816).index_fill(1, torch.arange(k, device=z.device), True)
    sizes = (torch.arange(len(z), device=z.device) - len(z) // 2) % 3 - 1 + k
    sizes = sizes.clamp(1, n - 1)
    half, double = _in(problem, torch.bfloat16), _in(problem, torch.float64)

    def in_float64() -> tuple[Tensor, Tensor]:
        drawn = ksubset.simple(double[0], k)
        mu = ksubset.marginals(double[0], k)
        return torch.autograd.grad(drawn, double[0], double[1])[0], mu

    rows = {
        PLAIN: Row(gradient(lambda x: ksubset.simple(x, k), *both)),
        "mask": Row(gradient(lambda x: ksubset.simple(x, k, mask=mask), *both), most=1.3),
        "a k for every row": Row(gradient(lambda x: ksubset.simple(x, sizes), *both), most=1.3),
        "bfloat16": Row(gradient(lambda x: ksubset.simple(x, k), *half), most=1.3),
        "entropy": Row(gradient(lambda x: ksubset.entropy(x, k), *both), most=1.5),
        "log_prob": Row(gradient(lambda x: ksubset.log_prob(x, k, z), *both), most=2.0),
        "ReinMax": Row(gradient(lambda x: ReinMax().sample(x, k), *both), most=3.0),
        "kl_divergence": Row(
            gradient(lambda x: ksubset.kl_divergence(x, weights, k), *both)
        ),
        TOPK: Row(lambda: logits.topk(k), reference=TOPK),
        "mode, forward": Row(lambda: ksubset.mode(logits, k), reference=TOPK, most=1.2),
        "float64": Row(gradient(lambda x: ksubset.simple(x, k), *double)),
        "float64, and marginals": Row(in_float64, most_ms=5.0),
    }  # fmt: skip
    if compiled:
        function = torch.compile(lambda x: ksubset.simple(x, k), fullgraph=True)
        rows["torch.compile(fullgraph=True)"] = Row(gradient(function, *both), most=1.3)
    return rows


def measure(rows: dict[str, Row], repeats: int, budget: float, device: str) -> dict[str, Summary]:
    """Times and ratios, after calls that compile and make plans."""
    for row in rows.values():
        for _ in range(3):
            row.call()
    least = min(3, repeats)
    tasks = {
        name: Task({WHAT: row.call}, least=repeats if name == row.reference else least,
                   budget=budget)
        for name, row in rows.items()
    }  # fmt: skip
    for name in {row.reference for row in rows.values()}:
        tasks[name].least = repeats  # every ratio needs it
    times = interleave(tasks, repeats, device)
    return {
        name: summarise(times[name][WHAT], times[row.reference][WHAT]) for name, row in rows.items()
    }


def verdict(row: Row, found: Summary) -> str:
    """What was asked for, and whether it is so."""
    parts = []
    if row.most is not None and found.ratio is not None:
        parts.append(f"≤ {row.most:g} {'yes' if found.ratio <= row.most else 'NO'}")
    if row.most_ms is not None:
        parts.append(f"≤ {row.most_ms:g} ms {'yes' if found.ms <= row.most_ms else 'NO'}")
    return ", ".join(parts)


def table(shape: Shape, rows: dict[str, Row], found: dict[str, Summary]) -> Table:
    """For the terminal."""
    result = Table(title=escape(f"{shape}: eager, medians [quartiles]"))
    for heading in ("call", "time", "ratio", "to", "bound"):
        result.add_column(heading, no_wrap=True)
    for name, row in rows.items():
        summary = found[name]
        ratio = report.with_quartiles(summary)
        cells = name, report.duration(summary.ms), ratio, row.reference, verdict(row, summary)
        result.add_row(*map(escape, cells))
    return result


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", type=Shape.parse, default="1024x1024,10", metavar="SHAPE")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument(
        "--budget", type=float, default=1.0, metavar="S",
        help="seconds for a call; slower ones are repeated less often, but three times at least",
    )  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs"), metavar="FOLDER")
    settings = parser.parse_args()
    torch.manual_seed(settings.seed)
    rows = calls(
        Problem.draw(settings.shape, settings.device, settings.seed), not settings.no_compile
    )
    found = measure(rows, settings.repeats, settings.budget, settings.device)
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table(settings.shape, rows, found))
    described = machine.describe(settings.device)
    console.print(f"{machine.in_words(described)}.", highlight=False)
    content: dict[str, Any] = {
        "machine": described,
        "settings": {"repeats": settings.repeats, "budget": settings.budget, "seed": settings.seed},
        "shape": settings.shape._asdict(),
        "table": {
            name: {
                **asdict(found[name]), "reference": row.reference,
                "most": row.most, "most_ms": row.most_ms,
            }
            for name, row in rows.items()
        },
    }  # fmt: skip
    path = settings.output / f"off-path-{settings.device}.json"
    report.write_json(path, content)
    console.print(f"written: {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
