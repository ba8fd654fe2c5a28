"""The study: all methods on both losses, the best settings, and k = 1."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as TerminalTable

from experiments.command import command_line
from experiments.report import Claim, Page, Picture, Table
from experiments.runs import RunFolder, environment, run_folder
from experiments.synthetic import figures, markdown
from experiments.synthetic.claims import dominating, judge, judge_one_item
from experiments.synthetic.cost import timed
from experiments.synthetic.measure import Measured, average, measure
from experiments.synthetic.methods import PAPER, Method, beyond, grids, one_item, published
from experiments.synthetic.problems import Problems, network, quadratic
from experiments.synthetic.settings import Settings

# Draws to choose among settings by; the chosen ones are measured like all others.
_GRID_SHARE = 10
_TIMED_DRAWS, _ROUNDS = 200, 9  # draws for each problem, in every round of timing
HEADINGS = (
    "method", "setting", "samples", "bias", "variance", "error", "± std", "bias²", "variance",
    "MSE", "bias / σ", "time / SIMPLE",
)  # fmt: skip


@dataclass
class Results:
    """What was measured."""

    published: list[Measured] = field(default_factory=list)  # on the paper's loss
    network: list[Measured] = field(default_factory=list)
    best: dict[str, list[Measured]] = field(default_factory=dict)  # by loss
    one_item: list[Measured] = field(default_factory=list)


def run(settings: Settings, output: Path, overwrite: bool) -> None:
    """Measure, then write everything at once."""
    console = Console()
    start = time.perf_counter()
    with run_folder(output, overwrite) as folder:
        results = _measure_all(settings, console)
        claims = judge(results.published)
        of_one_item = judge_one_item(results.one_item)
        seconds = time.perf_counter() - start
        _write(folder, settings, results, claims + of_one_item, seconds)
    show(console, settings, results.published, settings.k, claims)
    show(console, settings, results.one_item, 1, of_one_item)
    console.print(f"{seconds:.0f} s. Written: {output / 'report.html'}", highlight=False)


def _measure_all(settings: Settings, console: Console) -> Results:
    n, k, count = settings.n, settings.k, settings.problems
    methods = published(settings.strength) + beyond()
    losses = [
        quadratic(n, k, count, settings.absolute, settings.seed),
        network(n, k, count, settings.seed + 1),
    ]
    single = quadratic(n, 1, count, settings.absolute, settings.seed)
    candidates = grids() if settings.grid else {}
    steps = 2 * len(methods) + len(one_item())
    steps += 2 * (sum(map(len, candidates.values())) + len(candidates))
    results = Results()
    columns = (
        TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=steps)

        def measured(
            method: Method, problems: Problems, exact: torch.Tensor, draws: int
        ) -> Measured:
            progress.update(task, description=method.label)
            found = measure(method, problems, exact, draws, settings.seed + 2)
            progress.advance(task)
            return found

        for problems, place in zip(losses, (results.published, results.network), strict=True):
            exact = problems.exact()
            found = [measured(c, problems, exact, settings.draws) for c in methods]
            place += _with_times(found, problems, settings)
            best = [
                measured(
                    _best(settings, grid, problems, exact, measured), problems, exact,
                    settings.draws,
                )
                for grid in candidates.values()
            ]  # fmt: skip
            results.best[problems.name] = _with_times(best, problems, settings)
        exact = single.exact()
        found = [measured(c, single, exact, settings.draws) for c in one_item()]
        results.one_item = _with_times(found, single, settings)
    return results


def _with_times(results: list[Measured], problems: Problems, settings: Settings) -> list[Measured]:
    if not results:
        return []
    return timed(results, problems, min(settings.draws, _TIMED_DRAWS), _ROUNDS, settings.seed + 2)


def _grid_draws(settings: Settings) -> int:
    return max(100, settings.draws // _GRID_SHARE)


def _best(
    settings: Settings,
    grid: list[Method],
    problems: Problems,
    exact: torch.Tensor,
    measured: Callable[..., Measured],
) -> Method:
    """The setting of the smallest error, from fewer draws."""
    found = [measured(c, problems, exact, _grid_draws(settings)) for c in grid]
    return min(found, key=lambda r: average(r.error)).method


def cells(result: Measured) -> list[str]:
    """One line of a table."""
    method = result.method
    return [
        method.label, method.setting() or "–", str(method.samples),
        *(f"{average(v):.4f}" for v in (result.bias, result.variance, result.error)),
        f"{average(result.error_std):.3f}",
        f"{average(result.squared_bias):+.4f}",
        *(f"{average(v):.3g}" for v in (result.euclidean_variance, result.squared_error)),
        _deviations(max(result.bias_deviations)),
        f"{result.time:.1f}",
    ]  # fmt: skip


def _deviations(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else "> 1000"


def show(
    console: Console, settings: Settings, results: list[Measured], k: int, claims: list[Claim]
) -> None:
    """A figure of the paper in numbers, the paper's estimators first, and the verdicts on it."""
    table = TerminalTable(
        title=f"n = {settings.n}, k = {k}, E‖z − b‖²: {settings.draws:,} gradients of "
        f"{settings.problems} problems"
    )
    shown = (0, 3, 4, 5, 9, 11)  # settings are in the report
    for i in shown:
        table.add_column(HEADINGS[i], justify="right" if i else "left")
    for result in results:
        line = cells(result)
        last_of_paper = result.method.label == PAPER[-1]
        table.add_row(*(line[i] for i in shown), end_section=last_of_paper)
    console.print(table)
    for claim in claims:
        mark = "[green]held    [/]" if claim.held else "[red]not held[/]"
        console.print(f"{mark}  {claim.said}\n          {claim.found}", highlight=False)


def _write(
    folder: RunFolder,
    settings: Settings,
    results: Results,
    claims: list[Claim],
    seconds: float,
) -> None:
    content: dict[str, Any] = {
        "settings": dataclasses.asdict(settings),
        "environment": environment(),
        "seconds": seconds,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "results": {
            "quadratic": [dataclasses.asdict(r) for r in results.published],
            "network": [dataclasses.asdict(r) for r in results.network],
            "best": {
                name: [dataclasses.asdict(r) for r in found] for name, found in results.best.items()
            },
            "one item": [dataclasses.asdict(r) for r in results.one_item],
        },
    }
    folder.json("results.json", content)
    page = _page(folder, settings, results, claims, seconds)
    folder.text("report.html", page.html())
    shown = [markdown.claims(claims), *map(markdown.table, page.tables)]
    folder.text("tables.md", "\n".join(shown))


def _at_the_marginals(results: list[Measured]) -> str:
    bias = {r.method.label: average(r.bias) for r in results}
    return (
        f"The gradient at the marginals has a bias of {bias['at the marginals']:.4f} there, SIMPLE "
        f"one of {bias['SIMPLE']:.4f}."
    )


def _page(
    folder: RunFolder,
    settings: Settings,
    results: Results,
    claims: list[Claim],
    seconds: float,
) -> Page:
    held = sum(claim.held for claim in claims)
    page = Page(
        title="Gradient estimators for k-subsets: bias, variance and error",
        summary=(
            f"The study of section 5.1 of “SIMPLE: A Gradient Estimator for k-Subset Sampling” "
            f"(ICLR 2023), and more: {settings.problems} problems with n = {settings.n} and "
            f"k = {settings.k}, {settings.draws:,} gradient samples for every method, the exact "
            f"gradient by enumeration. {held} of {len(claims)} claims held. "
            f"The whole study took {seconds:.0f} seconds."
        ),
        claims=claims,
        settings=dataclasses.asdict(settings),
        environment=environment(),
        command=command_line("python -m experiments.synthetic", settings),
    )
    figure = figures.metrics(
        results.published,
        f"E‖z − b‖², n = {settings.n}, k = {settings.k}: means over problems, ± std",
    )
    page.pictures.append(
        Picture(
            folder.figure("quadratic", figure),
            "SIMPLE (blue), the other estimators of the paper's figure 1 (orange), the swap "
            "estimators (purple) and further baselines (green). Shorter is better. On a quadratic "
            "loss the gradient at the marginals is a strong baseline that needs no sample, and "
            "swap, ReinMax and MuProp are unbiased. Numbers beside the bars are means over "
            "problems.",
            "Bars of bias, variance and error for every method, quadratic loss",
        )
    )
    figure = figures.metrics(
        results.network,
        f"a random network, n = {settings.n}, k = {settings.k}: means over problems, ± std",
    )
    page.pictures.append(
        Picture(
            folder.figure("network", figure),
            "The same for a loss that is far from quadratic: tanh of random features, added up at "
            f"random. {_at_the_marginals(results.network)}",
            "Bars of bias, variance and error for every method, network loss",
        )
    )
    figure = figures.bias_and_variance(
        results.one_item, f"n = {settings.n}, k = 1, E‖z − b‖²: the paper's figure 3"
    )
    page.pictures.append(
        Picture(
            folder.figure("one-item", figure),
            "One item: SIMPLE, ReinMax (which swap is for k = 1), and straight-through "
            "Gumbel-softmax at several temperatures. With both less bias and less variance than "
            "SIMPLE: " + (", ".join(dominating(results.one_item)) or "none of them") + ".",
            "Bias against variance for k = 1",
        )
    )
    note = (
        "Bias, variance and error in cosines as in the published code: 1 − cos(mean, exact), the "
        "variance of cos(gradient, mean), mean and std of 1 − cos(gradient, exact). Then "
        "Euclidean, relative to the squared length of the exact gradient: squared bias (unbiased "
        "itself, so that it may be negative), variance, mean squared error. Bias / σ: the largest "
        "entry of the bias over all problems, in standard deviations of the mean over draws; below "
        "about 4.5 there is no sign of any. Time of one gradient, loss included, relative to "
        "SIMPLE's: one thread, the same batch, methods in turns, medians of the ratios. All are "
        "means over problems. λ = 0+ is the limit of a small λ; crn: common "
        "random numbers."
    )
    page.tables.append(
        Table(
            "Quadratic loss",
            HEADINGS,
            [cells(r) for r in results.published],
            note,
        )
    )
    page.tables.append(
        Table("Network loss, the same settings", HEADINGS, [cells(r) for r in results.network])
    )
    for name, found in results.best.items():
        if found:
            page.tables.append(
                Table(
                    f"{name.capitalize()} loss, best settings", HEADINGS, [cells(r) for r in found],
                    f"Chosen by the mean error of {_grid_draws(settings):,} draws over a "
                    "grid of λ, temperature, noise and hardness, then measured like the others.",
                )
            )  # fmt: skip
    page.tables.append(
        Table("k = 1, quadratic loss", HEADINGS, [cells(r) for r in results.one_item])
    )
    return page
