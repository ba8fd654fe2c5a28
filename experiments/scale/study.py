"""The study: all methods on both losses at all sizes, unbiased ones at equal evaluations, costs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as TerminalTable

from experiments.command import command_line
from experiments.report import Page, Picture, Table
from experiments.runs import RunFolder, environment, run_folder
from experiments.scale import figures, tables
from experiments.scale.measure import Result, measure
from experiments.scale.problems import Truth, networks, quadratic
from experiments.scale.settings import Settings
from experiments.synthetic import markdown
from experiments.synthetic.methods import Method, beyond, growing, published, tuned, unbiased
from experiments.synthetic.problems import Problems

_STRENGTH = 2.5  # lambda of simple_f, simple_b and I-MLE, as published
_EQUAL = 100  # items, up to which unbiased methods are compared at equal evaluations


@dataclass
class Results:
    """What was measured."""

    methods: list[Result] = field(default_factory=list)
    growth: list[Result] = field(default_factory=list)  # with k = n / 2 and n / 10
    unbiased: list[Result] = field(default_factory=list)
    cost: list[Result] = field(default_factory=list)  # of a loss that costs next to nothing
    truth: dict[str, float] = field(default_factory=dict)  # squared error of the true gradients


def run(settings: Settings, output: Path, overwrite: bool) -> None:
    """Measure, then write everything at once."""
    console = Console()
    start = time.perf_counter()
    with run_folder(output, overwrite) as folder:
        results = _measure_all(settings, console)
        seconds = time.perf_counter() - start
        _write(folder, settings, results, seconds)
    for table in tables.all_tables(results.methods, results.growth, results.unbiased, results.cost):
        _show(console, table)
    console.print(f"{seconds:.0f} s. Written: {output / 'report.html'}", highlight=False)


def linear(n: int, k: int, count: int, seed: int) -> tuple[Problems, Truth]:
    """A sum over the items chosen, whose gradient nearly every method finds: only times are of
    interest."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, n, generator=generator)
    prices = torch.randn(n, generator=generator)
    truth = Truth(torch.ones(count, n, dtype=torch.float64), torch.zeros(count).double())
    return Problems("linear", logits, k, lambda z: z @ prices), truth


def _measure_all(settings: Settings, console: Console) -> Results:
    methods = published(_STRENGTH) + beyond() + tuned()
    count, rounds, seed = settings.problems, settings.rounds, settings.seed
    results = Results()
    total = 0
    for n, k in settings.sizes():
        total += 3 * len(methods) + (2 * len(unbiased(k)) if n <= _EQUAL else 0)
        total += 2 * len(growing()) * len(_other_shares(n, k))
    columns = (
        TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total * rounds)

        def measured(
            methods: list[Method], problems: Problems, truth: Truth, seed: int
        ) -> list[Result]:
            return measure(
                methods,
                problems,
                truth,
                settings.rows,
                rounds,
                seed,
                lambda: progress.advance(task),
            )

        for n, k in settings.sizes():
            for problems, truth in _losses(settings, n, k):
                noise = truth.squared_error / truth.squared_length()
                results.truth[f"{problems.name}, n = {n}"] = noise.mean().item()
                progress.update(task, description=f"n = {n}: {problems.name}")
                results.methods += measured(methods, problems, truth, seed + 2)
                if n <= _EQUAL:
                    results.unbiased += measured(unbiased(k), problems, truth, seed + 3)
            progress.update(task, description=f"n = {n}: times")
            results.cost += measured(methods, *linear(n, k, count, seed), seed + 4)
            for other in _other_shares(n, k):
                progress.update(task, description=f"n = {n}, k = {other}")
                for problems, truth in _losses(settings, n, other):
                    results.growth += measured(growing(), problems, truth, seed + 2)
    return results


def _other_shares(n: int, k: int) -> list[int]:
    """The k at which growth with n is followed, besides the size's own."""
    return [other for other in (n // 2, n // 10) if other != k]


def _losses(settings: Settings, n: int, k: int) -> Iterator[tuple[Problems, Truth]]:
    yield quadratic(n, k, settings.problems, settings.seed)
    yield networks(n, k, settings.problems, settings.seed + 1, settings.truth)


def _show(console: Console, table: Table) -> None:
    shown = TerminalTable(title=table.title)
    for i, heading in enumerate(table.headings):
        shown.add_column(heading, justify="right" if i else "left")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


def _write(folder: RunFolder, settings: Settings, results: Results, seconds: float) -> None:
    content: dict[str, Any] = {
        "settings": dataclasses.asdict(settings),
        "environment": environment(),
        "seconds": seconds,
        "truth": results.truth,
        "results": {
            "methods": [dataclasses.asdict(r) for r in results.methods],
            "growth": [dataclasses.asdict(r) for r in results.growth],
            "unbiased": [dataclasses.asdict(r) for r in results.unbiased],
            "cost": [{"n": r.n, "k": r.k, "method": dataclasses.asdict(r.method),
                      "microseconds": r.microseconds, "time": r.time} for r in results.cost],
        },
    }  # fmt: skip
    folder.json("results.json", content)
    shown = tables.all_tables(results.methods, results.growth, results.unbiased, results.cost)
    folder.text("tables.md", "\n".join(map(markdown.table, shown)))
    picture = Picture(folder.figure("frontier", figures.frontier(results.methods)), _CAPTION, _ALT)
    page = Page(
        title="Gradient estimators for k-subsets of 10 to 1,000 items",
        summary=f"Errors and times of gradients. The whole study took {seconds:.0f} seconds.",
        pictures=[picture],
        tables=shown,
        settings=dataclasses.asdict(settings),
        environment=environment(),
        command=command_line("python -m experiments.scale", settings),
    )
    folder.text("report.html", page.html())


_CAPTION = (
    "Mean squared error against time. A marker is one gradient. A line is the mean of several, "
    "which flattens at the squared bias; it is drawn for SIMPLE, for swap and for every method "
    "that has the least error for some time. An estimate of zero would have an error of 1 "
    "(grey line)."
)
_ALT = "Mean squared error against time for every method, a panel for every loss and size"
