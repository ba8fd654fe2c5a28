"""python -m experiments.dvae.timing: what a training step costs with every method.

Interleaved, medians, one model at a time, as a CUDA graph on a GPU. The measure is straight-through
Gumbel top-k as a user writes it, in the same step with the same exact KL.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
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
from experiments.dvae.methods import METHODS, chosen, jobs
from experiments.dvae.training import Recipe, Training
from ksubset.estimators.base import Pathwise

_STEPS = 50


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


@one_line_errors()
def main(
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    data_dir: Annotated[Path | None, typer.Option(help="The folder of MNIST's files.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    methods: Annotated[str, typer.Option(help="As for the study.")] = "all",
    models: Annotated[int, typer.Option(help="In a stack.", min=1)] = 1,
    repeats: Annotated[int, typer.Option(help="Of so many steps each.", min=1)] = 15,
) -> None:
    """Time training steps."""
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"device must be cpu, or cuda where there is one, got {device!r}")
    where = torch.device(device)
    images = load(data, data_dir).to(where, torch.float32)
    recipe = Recipe(epochs=1, device=where)
    contest: dict[tuple[int, str], Training] = {}
    for k in (10, 1):
        simple = next(m for m in METHODS if m.k == k and m.name == "simple")
        job = jobs([replace(simple, name="plain")], range(models), models)[0]
        contest[k, "ST Gumbel top-k, as written"] = _Plain(job, images, recipe)
        for method in (m for m in chosen([10, 1], methods) if m.k == k):
            job = jobs([method], range(models), models)[0]
            contest[k, method.label] = Training(job, images, recipe)
    times: dict[tuple[int, str], list[float]] = {key: [] for key in contest}
    steps = min(_STEPS, len(images.train) // recipe.batch)
    for _ in range(repeats + 1):
        for key, training in contest.items():
            training.begin_epoch()
            _wait(where)
            start = time.perf_counter()
            for _ in range(steps):
                training.step()
            _wait(where)
            times[key].append(1e6 * (time.perf_counter() - start) / steps)
    table = Table(title=f"µs a training step, {models} model(s), {device}, {data}")
    for heading in ("k", "method", "µs", "ratio", "quartiles", "s an epoch"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for (k, label), values in times.items():
        plain = times[k, "ST Gumbel top-k, as written"]
        # The first round warms up.
        ratios = [a / b for a, b in zip(values[1:], plain[1:], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        median = statistics.median(values[1:])
        epoch = 1e-6 * median * (len(images.train) // recipe.batch)
        table.add_row(
            str(k), label, f"{median:.0f}", f"{statistics.median(ratios):.2f}",
            f"{quartiles[0]:.2f} … {quartiles[2]:.2f}", f"{epoch:.2f}",
        )  # fmt: skip
    Console(width=110).print(table)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    typer.run(main)
