"""Forward and backward of ``ksubset.simple`` and ``swap`` against what they replace.

    python benchmarks/run.py                  # CPU: with one thread and with all
    python benchmarks/run.py --device cuda    # as a user calls it, and as captured CUDA graphs
    python benchmarks/run.py --shapes 1 128x1000,10

Writes JSON and a plot into outputs/. No time is reported unless the outputs at the same shape
agreed with the oracle in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agreement
import first_call
import machine
import memory
import report
import torch
from contest import BASELINES, OURS, SWAP, Problem, Shape, operations, samplers, select
from report import Record
from rich.console import Console
from timing import CALLS_PER_GRAPH, NotCapturableError, Task, capture, interleave, summarise


@dataclass(frozen=True)
class Way:
    """How calls are made."""

    title: str
    threads: int
    graphs: bool = False


def ways(device: str) -> list[Way]:
    """Both of a device's."""
    threads = torch.get_num_threads()
    if device == "cuda":
        return [
            Way("captured CUDA graphs (kernel time)", threads, graphs=True),
            Way("as a user calls it (eager)", threads),
        ]
    one = Way("one thread", 1)
    return [one] if threads == 1 else [one, Way(f"all {threads} threads", threads)]


@dataclass
class Results:
    """What a run finds."""

    records: list[Record] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    truths: dict[Shape, agreement.Truth] = field(default_factory=dict)
    memory: dict[tuple[Shape, str], dict[str, float]] = field(default_factory=dict)

    def truth(self, problem: Problem) -> agreement.Truth:
        """Computed once: the oracle is slow."""
        if problem.shape not in self.truths:
            self.truths[problem.shape] = agreement.Truth.of(problem)
        return self.truths[problem.shape]

    def content(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": report.plain(self.records), "checks": self.checks, "left_out": self.left_out,
        }  # fmt: skip


def run(shape: Shape, way: Way, settings: argparse.Namespace, results: Results) -> None:
    """All contestants at one shape, one way."""
    device = settings.device
    torch.manual_seed(settings.seed)
    problem = Problem.draw(shape, device, settings.seed)
    tasks: dict[str, Task] = {}
    for name, sampler in samplers(shape, way.graphs, settings.fast).items():
        calls = operations(sampler, problem)
        output = calls["both"]()
        task = Task(
            calls,
            # Those that ratios are made of take part in every repeat.
            least=settings.repeats if name in (OURS, SWAP, *BASELINES) else 2,
            budget=settings.budget,
        )
        if (shape, name) not in results.memory:
            results.memory[shape, name] = {
                what: memory.peak(call, device) / problem.bytes() for what, call in calls.items()
            }
        if way.graphs:
            try:
                graphs = {what: capture(call) for what, call in calls.items()}
            except NotCapturableError as error:
                why = {"way": way.title, "shape": shape._asdict(), "name": name, "why": str(error)}
                results.left_out.append(why)
                continue
            task.operations = graphs
            task.calls_within = CALLS_PER_GRAPH
            graphs["both"]()
            output = graphs["both"].result
        if name == OURS:
            truth = results.truth(problem)
            errors = agreement.check(problem, truth, *output)
            results.checks.append(
                {"way": way.title, "shape": shape._asdict(), "truth": truth.source, **errors}
            )
        tasks[name] = task
    times = interleave(tasks, settings.repeats, device)
    if torch.get_num_threads() != way.threads:
        raise RuntimeError(f"{shape}: the number of threads became {torch.get_num_threads()}")
    best = best_of({name: times[name]["both"] for name in BASELINES if name in times})
    for name, found in times.items():
        record = Record(
            way.title,
            shape,
            name,
            {what: summarise(values, times[best][what]) for what, values in found.items()},
            summarise(found["both"], times[OURS]["both"]),
            results.memory[shape, name],
            best,
        )
        results.records.append(record)


def best_of(times: dict[str, dict[int, float]]) -> str:
    """The fastest, by the median."""
    return min(times, key=lambda name: statistics.median(times[name].values()))


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--shapes", nargs="+", default=[], metavar="SHAPE", help='indices or "64x350,10"'
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--budget", type=float, default=0.6, metavar="S",
        help="seconds for a sampler at a shape; slower ones are repeated less often",
    )  # fmt: skip
    parser.add_argument(
        "--fast", action="store_true", help="only ours and the baselines that ratios are made of"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs"), metavar="FOLDER")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables here")
    settings = parser.parse_args()
    path = settings.output / f"benchmark-{settings.device}"
    console, progress = Console(), Console(stderr=True)
    shapes = select(settings.shapes, settings.device)
    agreement.must_catch()
    content: dict[str, Any] = {
        "machine": machine.describe(settings.device),
        "settings": {
            "repeats": settings.repeats, "budget": settings.budget, "seed": settings.seed,
            "dtype": "float32", "calls_per_graph": CALLS_PER_GRAPH,
        },
    }  # fmt: skip
    if not settings.fast:
        first = first_call.measure(shapes[0], settings.device)
        content["first_call"] = {"shape": shapes[0]._asdict(), **first}
    results = Results()
    for way in ways(settings.device):
        machine.set_threads(way.threads)
        # A capture needs a stream of its own; autograd one stream for forward and backward.
        stream = torch.cuda.Stream() if way.graphs else None
        for shape in shapes:
            progress.print(f"[dim]{way.title}: {shape}")
            with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                run(shape, way, settings, results)
            gc.collect()
            report.write_json(path.with_suffix(".json"), {**content, **results.content()})
        report.show(console, way.title, results.records, settings.repeats)
    report.show_ratios(console, results.records)
    in_words = machine.in_words(content["machine"])
    notes = [f"{in_words}."]
    if "first_call" in content:
        notes.append(first_call.in_words(content["first_call"], shapes[0]))
    if settings.device == "cuda":
        notes.append(
            f"Graphs hold {CALLS_PER_GRAPH} calls; forward, backward and both are captured each "
            "by itself."
        )
    for line in results.left_out:
        shape = Shape(**line["shape"])
        notes.append(f"Left out at {shape}, {line['way']}: {line['name']}: {line['why']}.")
    console.print(*notes, sep="\n", highlight=False, soft_wrap=True)
    report.write_figure(path.with_suffix(".png"), report.draw(results.records, in_words))
    if settings.markdown:
        report.write_text(
            settings.markdown, report.markdown(results.records, settings.repeats, notes)
        )
    console.print(f"written: {path}.json, {path}.png", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
