"""The study: every method on every problem, and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as TerminalTable

from experiments.command import command_line
from experiments.l2x.job import WORK
from experiments.l2x.problems import BEST, FEATURES
from experiments.l2x.settings import Method, Settings
from experiments.report import Claim, Page, Picture, Table
from experiments.runs import RunFolder, environment, resumable_folder
from experiments.sweep import Job, run_all

# Results of all seeds by problem and method.
Results = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
HEADINGS = ("problem", "method", "median rank", "best possible", "features found", "test loss")
NOTE = (
    "Mean over 10,000 test examples of the median rank of the features that matter, by their "
    "marginals; the share of them that is chosen; the cross-entropy of predictions from the chosen "
    "features; each with its values for all seeds. Predictor told: trained, as is usual, on "
    "choices made for its own inputs, from which it can learn what the choice itself says."
)
_WITHIN = 1.1


def run(settings: Settings, output: Path, overwrite: bool) -> None:
    """Train, then write everything at once; an unfinished run is continued with --resume."""
    console = Console()
    with resumable_folder(output, settings.identity(), overwrite, settings.resume) as folder:
        jobs = {
            (problem, method.name, seed): _job(settings, problem, method, seed)
            for problem in settings.all_problems()
            for method in settings.contest()
            for seed in settings.all_seeds
        }
        found = run_all(
            list(jobs.values()), WORK, folder.path / "jobs", console, engine=settings.engine,
            workers=settings.workers, address=settings.address,
        )  # fmt: skip
        results: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for (problem, method, _), job in jobs.items():
            results.setdefault((problem, method), []).append(found[job.name])
        _write(folder, settings, results, console)
    console.print(f"written: {output / 'report.html'}")


def _job(settings: Settings, problem: str, method: Method, seed: int) -> Job:
    return Job(
        f"{problem}-{method.name}-{seed}",
        {
            "problem": problem, "estimator": method.estimator, "options": dict(method.options),
            "honest": method.honest, "samples": method.samples, "seed": seed,
            "examples": settings.examples, "epochs": settings.epochs, "batch": settings.batch,
            "rate": settings.rate,
        },
    )  # fmt: skip


def _all(results: Sequence[Mapping[str, Any]], name: str, digits: int) -> str:
    values = [result[name] for result in results]
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({', '.join(f'{value:.{digits}f}' for value in values)})"


def table(settings: Settings, results: Results) -> Table:
    """All problems and methods."""
    rows = [
        [
            problem, method.label, _all(found, "median_rank", 2), f"{BEST[problem]:g}",
            _all(found, "recovery", 2), _all(found, "loss", 3),
        ]
        for problem in settings.all_problems()
        for method in settings.contest()
        for found in [results[problem, method.name]]
    ]  # fmt: skip
    return Table("Do the features that matter come first?", HEADINGS, rows, NOTE)


def claims(settings: Settings, results: Results) -> list[Claim]:
    """What is asked of SIMPLE."""
    found = []
    for problem in settings.all_problems():
        if (problem, "simple") not in results:
            continue
        ours = [result["median_rank"] for result in results[problem, "simple"]]
        mean, bar = float(np.mean(ours)), _WITHIN * BEST[problem]
        text = f"{mean:.3f} on average, {max(ours):.3f} at worst, best possible {BEST[problem]:g}"
        found.append(
            Claim(
                f"{problem}: the median rank is within 10 % of the best for every seed.",
                text, max(ours) <= bar,
            )
        )  # fmt: skip
        rivals = {
            method.label: float(np.mean([r["median_rank"] for r in results[problem, method.name]]))
            for method in settings.contest()
            if method.estimator == "l2x"
        }
        if rivals:
            held = round(mean, 2) <= round(min(rivals.values()), 2)
            text = f"SIMPLE {mean:.3f}; " + "; ".join(f"{n} {v:.3f}" for n, v in rivals.items())
            found.append(Claim(f"{problem}: no worse than L2X, to two digits.", text, held))
    return found


def figure(settings: Settings, results: Results) -> Figure:
    """Marginals of all features, averaged over examples: of the switch for both of its sides."""
    problems = settings.all_problems()
    methods = settings.contest()
    shape = (len(methods), len(problems))
    size = (3.2 * len(problems) + 1.5, 1.7 * len(methods) + 0.7)
    drawn, panels = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for row, method in zip(panels, methods, strict=True):
        for panel, problem in zip(row, problems, strict=True):
            means = np.mean([r["marginals"] for r in results[problem, method.name]], axis=0)
            image = panel.imshow(means, vmin=0, vmax=1, cmap="Blues", aspect="auto")
            panel.set_xticks(range(FEATURES), range(1, FEATURES + 1), fontsize=7)
            panel.set_yticks([0, 1], ["x₁₀ > 0", "x₁₀ < 0"], fontsize=7)
            if panel in panels[0]:
                panel.set_title(problem, fontsize=10)
        row[0].set_ylabel(method.label.replace(", ", ",\n"), fontsize=8)
    drawn.colorbar(image, ax=panels, label="mean marginal", fraction=0.03)
    return drawn


def _write(folder: RunFolder, settings: Settings, results: Results, console: Console) -> None:
    one = table(settings, results)
    page = Page(
        "Do explanations find the features that matter?",
        "Ten features, of which a few decide the outcome. A network chooses as many as matter, "
        "another one sees only those and predicts; afterwards features are ranked by the exact "
        "probability to be chosen.",
        claims=claims(settings, results),
        claims_title="What is asked, and what was measured",
        pictures=[
            Picture(
                folder.figure("marginals", figure(settings, results)),
                "Marginals of the ten features, averaged over test examples and seeds, above where "
                "the last feature is positive, below where it is negative (only the switch depends "
                "on it).",
                "mean marginals of all features by method and problem",
            )
        ],
        tables=[one],
        settings=settings.identity(),
        environment=environment(),
        command=command_line("python -m experiments.l2x", settings),
    )
    folder.json(
        "results.json",
        {f"{problem}/{method}": found for (problem, method), found in results.items()},
    )
    folder.text("report.html", page.html())
    shown = TerminalTable(*one.headings, title=one.title)
    for row in one.rows:
        shown.add_row(*row)
    console.print(shown)
