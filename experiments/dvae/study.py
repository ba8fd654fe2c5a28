"""The study: settings are tuned if asked for, every method is trained, a report is written."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as TerminalTable
from safetensors.torch import save

from experiments.clock import Duration
from experiments.datasets.files import write_atomically
from experiments.datasets.images import Images, load
from experiments.dvae.jobs import jobs
from experiments.dvae.methods import OWN, Method, by_key
from experiments.dvae.model import DiscreteVAE
from experiments.dvae.objective import Share
from experiments.dvae.page import page
from experiments.dvae.results import Outcome, best, judge, outcomes, spread
from experiments.dvae.runner import Runner, Trained
from experiments.dvae.settings import Settings
from experiments.processes import barrier, process_group
from experiments.report import Claim
from experiments.runs import RunFolder, environment, partial_path, resumable_folder

_IMPORTANCE_SAMPLES = 64
_IMPORTANCE_BLOCK = 500


def run(settings: Settings, output: Path, overwrite: bool) -> None:
    """Train, then write everything at once; an unfinished run is continued with --resume."""
    console = Console()
    data = load(settings.data, settings.data_dir, settings.download)
    if settings.binarize:
        data = data.binarized()
    times = step_times(settings.step_times)
    with process_group(settings.torch_device) as (rank, world):
        share = Share(rank, world)
        share.of(settings.batch)
        if rank:
            barrier()
            runner = Runner(settings, share, partial_path(output), console)
            _train(settings, data, runner)
            return
        with resumable_folder(output, settings.identity(), overwrite, settings.resume) as folder:
            barrier()
            runner = Runner(settings, share, folder.path, console)
            trained, grids = _train(settings, data, runner)
            results = outcomes(trained)
            if settings.binarize:
                _bound(settings, data, trained, results)
            claims = judge(results)
            duration = runner.clock.read()
            if not settings.results_only:
                shown = _write_models(folder, trained)
                report = page(
                    folder, settings, data, results, claims, grids, shown, times, duration
                )
                folder.text("report.html", report.html())
            folder.json("results.json", _content(settings, results, claims, grids, duration))
    # They were for going on, and the run is in its place.
    shutil.rmtree(output / "checkpoints", ignore_errors=True)
    show(console, results, claims)
    written = output / ("results.json" if settings.results_only else "report.html")
    console.print(f"{duration}. Written: {written}", highlight=False)


def step_times(path: Path | None) -> dict[str, float]:
    """Microseconds of a training step by the keys of methods, as written by the timing command."""
    if path is None:
        return {}
    try:
        return {str(key): float(value) for key, value in json.loads(path.read_bytes()).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"step_times {path} is not a file of step times: {error}") from None


def _train(
    settings: Settings, data: Images, runner: Runner
) -> tuple[list[Trained], dict[str, list[Outcome]]]:
    contest = settings.contest()
    grids: dict[str, list[Outcome]] = {}
    if settings.tune:
        contest, grids = _tuned(settings, data, runner, contest)
    planned = jobs(contest, settings.all_seeds, settings.stack)
    weights = settings.binarize or not settings.results_only
    trained = runner.train(planned, data, settings.total_epochs, "training", weights)
    return trained, grids


def _tuned(
    settings: Settings, data: Images, runner: Runner, contest: Sequence[Method]
) -> tuple[list[Method], dict[str, list[Outcome]]]:
    """The best of every method's grid by the ELBO of images held out, and where it is another, the
    best by the loss with the method's own samples."""
    tunable = [method for method in contest if not method.name.endswith(OWN)]
    variants = [variant for method in tunable for variant in method.variants()]
    planned = jobs(variants, [settings.seed], settings.stack)
    held_out = data.held_out(settings.held_out)
    epochs = settings.total_tune_epochs
    tried = outcomes(runner.train(planned, held_out, epochs, "tuning", weights=False))
    keys = by_key(outcome.method for outcome in tried)
    grids = {key: [o for o in tried if o.method.key == key] for key in keys}
    winners = []
    for found in grids.values():
        first, second = best(found, lambda o: o.elbo), best(found, lambda o: o.own)
        winners.append(first)
        if second != first:
            winners.append(replace(second, name=second.name + OWN, label=f"{second.label} *"))
    return winners, grids


def _bound(
    settings: Settings, data: Images, trained: Sequence[Trained], results: Sequence[Outcome]
) -> None:
    """The importance-weighted bound of every model."""
    device = settings.torch_device
    by_method = {outcome.method: outcome for outcome in results}
    for done in trained:
        assert done.vae is not None
        for i, method in enumerate(done.job.methods):
            vae = done.vae.member(i).to(device)
            generator = torch.Generator(device).manual_seed(done.job.seeds[i])
            with torch.no_grad():
                bounds = [
                    vae.importance_bound(block.to(device), _IMPORTANCE_SAMPLES, generator)
                    for block in data.test.split(_IMPORTANCE_BLOCK)
                ]
            by_method[method].importance.append(float(torch.cat(bounds).mean()))


def _write_models(
    folder: RunFolder, trained: Sequence[Trained]
) -> dict[int, tuple[str, DiscreteVAE]]:
    """Weights files; for every k a model whose pictures are shown, with its name."""
    shown: dict[int, tuple[str, DiscreteVAE]] = {}
    for done in trained:
        assert done.vae is not None
        for i, (method, seed) in enumerate(zip(done.job.methods, done.job.seeds, strict=True)):
            vae = done.vae.member(i)
            content = save(vae.state_dict(), vae.configuration())
            path = folder.path / "models" / f"{method.key}-{seed}.safetensors"
            write_atomically(path, content)
            finite = all(bool(weight.isfinite().all()) for weight in vae.parameters())
            if finite and method.k not in shown:
                shown[method.k] = (method.label, vae)
    return shown


def _content(
    settings: Settings,
    results: Sequence[Outcome],
    claims: list[Claim],
    grids: Mapping[str, Sequence[Outcome]],
    duration: Duration,
) -> dict[str, Any]:
    """All numbers."""
    return {
        "settings": _plain(settings.identity()),
        "environment": environment(),
        "seconds": duration.total,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "results": [_plain(dataclasses.asdict(r)) for r in results],
        "grids": {key: [_plain(dataclasses.asdict(r)) for r in g] for key, g in grids.items()},
    }


def _plain(value: Any) -> Any:
    """For JSON: what diverged has no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def show(console: Console, results: Sequence[Outcome], claims: Sequence[Claim]) -> None:
    """The last losses, and the verdicts."""
    table = TerminalTable(title="Test loss in nats per image after the last epoch")
    for heading in ("k", "method", "setting", "−ELBO", "KL", "own samples"):
        table.add_column(heading, justify="left" if heading in ("method", "setting") else "right")
    for r in results:
        table.add_row(
            str(r.method.k), r.method.label, r.method.setting(), spread(r.elbo),
            spread(r.curve("divergence")), spread(r.own),
        )  # fmt: skip
    console.print(table)
    for claim in claims:
        mark = "[green]held    [/]" if claim.held else "[red]not held[/]"
        console.print(f"{mark}  {claim.said}\n          {claim.found}", highlight=False)
