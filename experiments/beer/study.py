"""The study: settings are tuned if asked for, every method is trained, a report is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.beer import words
from experiments.beer.figures import comparison
from experiments.beer.job import WORK, job
from experiments.beer.methods import AUTHORS, RATES, Method
from experiments.beer.results import claims, entries, in_cell, tables
from experiments.beer.settings import Settings
from experiments.beer.training import Recipe
from experiments.command import command_line
from experiments.datasets.beer import beer
from experiments.datasets.files import data_folder
from experiments.report import Page, Picture, Table
from experiments.runs import RunFolder, environment, resumable_folder
from experiments.sweep import Job, run_all

Run = Callable[[Sequence[Job]], dict[str, dict[str, Any]]]


def run(settings: Settings, output: Path, overwrite: bool) -> None:
    """Train, then write everything at once; an unfinished run is continued with --resume."""
    console = Console()
    data = data_folder(settings.data_dir, "beer").resolve()
    identity = settings.identity() | {"data_dir": str(data)}
    with resumable_folder(output, identity, overwrite, settings.resume) as folder:
        run_jobs = partial(
            run_all, work=WORK, folder=folder.path / "jobs", console=console,
            engine=settings.engine, workers=settings.at_a_time, address=settings.address,
        )  # fmt: skip
        tuned, grids = tune(settings, data, run_jobs) if settings.tune else ({}, [])
        cells = train(settings, data, tuned, run_jobs)
        _write(folder, settings, data, cells, grids)
    console.print(f"written: {output / 'report.html'}")


def _write(
    folder: RunFolder,
    settings: Settings,
    data: Path,
    cells: Sequence[dict[str, Any]],
    grids: Sequence[dict[str, Any]],
) -> None:
    found = entries(cells)
    trained = {(entry.aspect, entry.training_from, entry.reviews) for entry in found}
    training = "; ".join(
        f"{aspect}: {reviews:,} reviews of {', '.join(names)}"
        for aspect, names, reviews in sorted(trained)
    )
    links = {}
    for aspect, k in settings.table():
        text = words.page(aspect, k, in_cell(found, aspect, k), beer(data, aspect).annotated)
        folder.text(f"words-{aspect}-{k}.html", text)
        links[f"Reviews with the words chosen: {aspect}, k = {k}"] = f"words-{aspect}-{k}.html"
    page = Page(
        "Which words explain a rating?",
        "A network chooses k words of a beer review; another one sees only those and predicts the "
        "rating of an aspect. Both are trained through the choice. The words that people marked as "
        f"reasons are not shown to either. Trained on {training}.",
        claims=claims(found),
        links=links,
        pictures=[
            Picture(
                folder.figure("comparison", comparison(found)),
                "Means over splits with a standard deviation.",
                "test errors and precisions of all methods in every cell",
            )
        ],
        tables=[*tables(found), *_grid_tables(grids)],
        settings=settings.identity(),
        environment=environment(),
        command=command_line("python -m experiments.beer", settings),
    )
    folder.json("results.json", {"cells": cells, "grids": grids})
    folder.text("report.html", page.html())


def _grid_tables(grids: Sequence[dict[str, Any]]) -> list[Table]:
    result = []
    for aspect, k in dict.fromkeys((point["aspect"], point["k"]) for point in grids):
        points = sorted(
            (p for p in grids if (p["aspect"], p["k"]) == (aspect, k)),
            key=lambda p: (p["method"], p["validation"]),
        )
        rows = [
            [p["method"], p["setting"], *(f"{100 * p[n]:.2f}" for n in ("validation", "test"))]
            for p in points
        ]
        headings = ("method", "setting", "validation MSE", "test MSE")
        result.append(Table(f"Grids: {aspect}, k = {k}, one split", headings, rows))
    return result


def _check_same_data(results: Mapping[str, dict[str, Any]], jobs: Sequence[Job]) -> None:
    """Raise if files changed while a run was interrupted."""
    seen: dict[str, str] = {}
    for one in jobs:
        for name, digest in results[one.name]["sha256"].items():
            if seen.setdefault(name, digest) != digest:
                raise ValueError(
                    f"{name} was another file when {one.name} was trained than before: the run "
                    "cannot be continued, --overwrite starts anew"
                )


def _recipe(settings: Settings, k: int, method: Method, epochs: int) -> Recipe:
    return Recipe(
        k, epochs, settings.batch, method.rate, method.clip, method.samples,
        settings.number_format, settings.where,
    )  # fmt: skip


def tune(
    settings: Settings, data: Path, run_jobs: Run
) -> tuple[dict[tuple[str, int, str], Method], list[dict[str, Any]]]:
    """The best of every method in every cell, by validation on the first split, and all that was
    tried."""
    jobs, tried = [], []
    for aspect, k in settings.table():
        for method in settings.contest():
            for rate in RATES:
                variants = replace(method, rate=rate).variants()
                recipe = _recipe(settings, k, variants[0], settings.tune_epochs)
                seeds = [settings.seed] * len(variants)
                jobs.append(job("tune", aspect, variants, seeds, recipe, data))
                tried.append((aspect, k, variants))
    results = run_jobs(jobs)
    best: dict[tuple[str, int, str], tuple[float, Method]] = {}
    grids = []
    for one, (aspect, k, variants) in zip(jobs, tried, strict=True):
        for variant, member in zip(variants, results[one.name]["members"], strict=True):
            if member is None:  # it diverged
                continue
            loss = min(loss for loss in member["validation"] if loss is not None)
            grids.append(
                {"aspect": aspect, "k": k, "method": variant.name, "setting": variant.setting(),
                 "validation": loss, "test": member["test"], "precision": member["precision"]}
            )  # fmt: skip
            key = (aspect, k, variant.name)
            if key not in best or loss < best[key][0]:
                best[key] = (loss, variant)
    return {key: variant for key, (_, variant) in best.items()}, grids


def train(
    settings: Settings, data: Path, tuned: dict[tuple[str, int, str], Method], run_jobs: Run
) -> list[dict[str, Any]]:
    """Every method in every cell of the tables, on all splits."""
    jobs, entries = [], []
    # By methods: what is compared first is there first, should a run be cut short.
    for method in settings.contest():
        for aspect, k in settings.table():
            chosen = [tuned.get((aspect, k, method.name), method.at(aspect, k))]
            if method.name == "simple" and (aspect, k) in AUTHORS:
                rate, clip = AUTHORS[aspect, k]
                authors = replace(
                    method, name="simple-authors", label="SIMPLE, authors' learning rate",
                    rate=rate, clip=clip,
                )  # fmt: skip
                if (rate, clip) != (chosen[0].rate, chosen[0].clip):
                    chosen.append(authors)
            for one in chosen:
                seeds = settings.seeds
                recipe = _recipe(settings, k, one, settings.epochs)
                jobs.append(job("final", aspect, [one] * len(seeds), seeds, recipe, data))
                entries.append(
                    {"aspect": aspect, "k": k, "method": one.name, "label": one.label,
                     "setting": one.setting()}
                )  # fmt: skip
    results = run_jobs(jobs)
    _check_same_data(results, jobs)
    return [entry | results[one.name] for one, entry in zip(jobs, entries, strict=True)]
