"""python -m experiments.dvae.timing: what a training step costs with every method.

Interleaved, medians, one model at a time, as a CUDA graph on a GPU. The measure is straight-through
Gumbel top-k as a user writes it, in the same step with the same exact KL. With --profile the time
of a step is split by kernel, with the methods in stacks as in the study.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from experiments.command import one_line_errors
from experiments.datasets.images import load
from experiments.dvae.jobs import jobs
from experiments.dvae.methods import Method
from experiments.dvae.settings import Settings
from experiments.dvae.training import Recipe, Training, set_precision
from ksubset.estimators.base import Pathwise

_STEPS = 50
_PROFILED = 10  # steps
_ROWS = 30  # of the table of a profile
_PLAIN = "ST Gumbel top-k, as written"


class PlainStraightThrough(Pathwise):
    """Gumbel top-k forward, a softmax backward: five lines that many copy."""

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """See the base."""
        rows = logits.expand(*sample_shape, *logits.shape)
        keys = rows - torch.empty_like(rows).exponential_(generator=generator).log()
        soft = keys.softmax(-1) * k
        chosen = torch.zeros_like(soft).scatter_(-1, keys.topk(int(k), -1).indices, 1.0)
        return chosen + soft - soft.detach()


class _Plain(Training):
    """A training with that in place of the method's estimator."""

    def make_estimator(self) -> Pathwise:
        return PlainStraightThrough()


def check_device(name: str) -> None:
    """Raise unless there is such a device."""
    if name not in ("cpu", "cuda") or (name == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"device must be cpu, or cuda where there is one, got {name!r}")


@one_line_errors()
def main(
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    data_dir: Annotated[Path | None, typer.Option(help="The folder of MNIST's files.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    precision: Annotated[str, typer.Option(help="As for the study.")] = "float32",
    groups: Annotated[str, typer.Option(help="As for the study.")] = "20x20",
    k: Annotated[str, typer.Option(help="As for the study.")] = "10,1",
    methods: Annotated[str, typer.Option(help="As for the study.")] = "all",
    models: Annotated[int, typer.Option(help="In a stack.", min=1)] = 1,
    repeats: Annotated[int, typer.Option(help="Of 50 steps each.", min=1)] = 15,
    output: Annotated[Path | None, typer.Option(help="A file for --step-times.")] = None,
    profile: Annotated[
        bool, typer.Option(help="Instead, the kernels that stacks of the study spend time in.")
    ] = False,
) -> None:
    """Time training steps."""
    check_device(device)
    settings = Settings(
        data=data, data_dir=data_dir, device=device, precision=precision, groups=groups, k=k,
        methods=methods,
    )  # fmt: skip
    where = settings.torch_device
    set_precision(precision)
    images = load(data, data_dir).to(where, torch.float32)
    recipe = Recipe(epochs=1, device=where, precision=precision)
    if profile:
        for job in jobs(settings.contest(), range(models), settings.stack):
            Console(width=130).print(_profile(Training(job, images, recipe), where))
        return
    contest: dict[tuple[int, str], Training] = {}
    methods_of: dict[tuple[int, str], Method] = {}
    for method in settings.contest():
        plain = (method.k, _PLAIN)
        if plain not in contest:
            job = jobs([replace(method, name="plain", samples=1)], range(models), models)[0]
            contest[plain] = _Plain(job, images, recipe)
        job = jobs([method], range(models), models)[0]
        contest[method.k, method.key] = Training(job, images, recipe)
        methods_of[method.k, method.key] = method
    times = _times(contest, where, repeats)
    title = f"µs a training step, {models} model(s), {device}, {precision}, {data}, {groups}"
    table = Table(title=title)
    for heading in ("k", "method", "µs", "ratio", "quartiles", "s an epoch"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for key, values in times.items():
        ratios = [a / b for a, b in zip(values, times[key[0], _PLAIN], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        median = statistics.median(values)
        epoch = 1e-6 * median * (len(images.train) // recipe.batch)
        table.add_row(
            str(key[0]), methods_of[key].title if key in methods_of else key[1], f"{median:.0f}",
            f"{statistics.median(ratios):.2f}", f"{quartiles[0]:.2f} … {quartiles[2]:.2f}",
            f"{epoch:.2f}",
        )  # fmt: skip
    Console(width=110).print(table)
    if output is not None:
        found = {key: statistics.median(times[k, key]) for k, key in methods_of}
        output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _times(
    contest: Mapping[tuple[int, str], Training], device: torch.device, repeats: int
) -> dict[tuple[int, str], list[float]]:
    """Microseconds a step, round by round; a round before them warms up."""
    times: dict[tuple[int, str], list[float]] = {key: [] for key in contest}
    for _ in range(repeats + 1):
        for key, training in contest.items():
            training.begin_epoch()
            times[key].append(_seconds(training, device) * 1e6)
    return {key: values[1:] for key, values in times.items()}


def _seconds(training: Training, device: torch.device) -> float:
    """Of a step, over several."""
    steps = min(_STEPS, training.batches)
    _wait(device)
    start = time.perf_counter()
    for _ in range(steps):
        training.step()
    _wait(device)
    return (time.perf_counter() - start) / steps


def _profile(training: Training, device: torch.device) -> Table:
    """Where the time of a step goes: on a GPU by kernel, on a CPU by operation."""
    training.begin_epoch()
    _seconds(training, device)
    training.begin_epoch()
    step = _seconds(training, device)
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    training.begin_epoch()
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as recorded:
        for _ in range(_PROFILED):
            training.step()
        _wait(device)
    name = "self_device_time_total" if cuda else "self_cpu_time_total"
    rows = [(getattr(e, name), e.count, e.key) for e in recorded.key_averages()]
    busy = sum(row[0] for row in rows) / _PROFILED
    count = sum(row[1] for row in rows) / _PROFILED
    keys = ", ".join(dict.fromkeys(method.key for method in training.job.methods))
    table = Table(
        title=f"{len(training.job)} models of {keys}: {1e6 * step:.0f} µs a step, "
        f"{1e6 * step / len(training.job):.1f} a model; {count:.0f} calls, busy for {busy:.0f} µs"
    )
    table.add_column("µs a step", justify="right")
    table.add_column("calls", justify="right")
    table.add_column("what", no_wrap=True)
    for spent, calls, what in sorted(rows, reverse=True)[:_ROWS]:
        table.add_row(f"{spent / _PROFILED:.1f}", f"{calls / _PROFILED:.0f}", what)
    return table


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    typer.run(main)
