"""python -m experiments.dvae.gradients MODEL: why methods differ, in bias and variance of their
gradients at a trained model.

The truth is the score function's estimate, which has no bias, from very many samples; its own
variance, and that of the means compared with it, are known and taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from experiments.dvae.methods import chosen
from experiments.dvae.model import DiscreteVAE, reconstruction_loss
from experiments.dvae.timing import check_device
from ksubset.estimators import Estimator, create

_ROWS = 2048  # codes decoded at once
# As in training, where losses are averaged over so many: I-MLE is not linear in the gradient.
_BATCH = 100


def _gradients(
    vae: DiscreteVAE,
    estimator: Estimator,
    x: Tensor,
    logits: Tensor,
    samples: int,
    draws: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Estimates (some, images, groups, items) of the reconstruction's gradient."""
    some = max(1, _ROWS // (len(x) * samples))
    for start in range(0, draws, some):
        count = min(some, draws - start)
        leaf = logits.expand(count, *logits.shape).clone().requires_grad_()
        estimator.surrogate(
            lambda z: reconstruction_loss(vae.decode(z), x) / _BATCH, leaf, vae.k, samples,
            generator=generator, vectorized=True,
        ).backward()  # fmt: skip
        assert leaf.grad is not None
        yield leaf.grad.double()


def _moments(gradients: Iterator[Tensor]) -> tuple[Tensor, Tensor, int]:
    """Mean, variance of one estimate, and how many there were."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for part in gradients:
        count += len(part)
        total, squares = total + part.sum(0), squares + part.square().sum(0)
    mean = total / count
    return mean, (squares / count - mean.square()) * count / (count - 1), count


@one_line_errors()
def main(
    model: Annotated[Path, typer.Argument(help="A weights file of a run folder.")],
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    data_dir: Annotated[Path | None, typer.Option(help="The folder of MNIST's files.")] = None,
    images: Annotated[int, typer.Option(help="Test images.", min=1)] = 16,
    draws: Annotated[int, typer.Option(help="Gradients of every method.", min=2)] = 2000,
    truth: Annotated[int, typer.Option(help="Samples for the truth.", min=100)] = 200_000,
    methods: Annotated[str, typer.Option(help="As for the study.")] = "all",
    grids: Annotated[
        bool, typer.Option(help="At every setting of a grid, not the best one alone.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Compare gradients."""
    check_device(device)
    vae = DiscreteVAE.load(model, device).requires_grad_(False)
    x = load(data, data_dir).test[:images].to(device)
    if x.shape[-1] != vae.pixels:
        raise ValueError(f"{model} is of images with {vae.pixels} pixels, {data} has {x.shape[-1]}")
    logits = vae.logits(x)
    generator = torch.Generator(device).manual_seed(seed)
    unbiased = create("score", baseline="leave_one_out")
    group = 50
    exact, spread, count = _moments(
        _gradients(vae, unbiased, x, logits, group, truth // group, generator)
    )
    uncertain = (spread / count).sum()
    size = exact.square().sum() - uncertain
    table = Table(
        title=f"{model.name}, {len(x)} images; relative to the exact gradient, whose squared "
        f"length is known to {float(uncertain / size):.1%}"
    )
    for heading in ("method", "setting", "bias²", "along", "across²", "variance"):
        table.add_column(heading, justify="left" if heading in ("method", "setting") else "right")
    rows = chosen([vae.k], methods, vae.groups, vae.items)
    for method in [v for m in rows for v in (m.variants([m.rate]) if grids else [m])]:
        estimator = jobs([method], [seed], 1)[0].estimator()
        mean, variance, n = _moments(
            _gradients(vae, estimator, x, logits, method.samples, draws, generator)
        )
        noise = variance.sum() / n
        bias = ((mean - exact).square().sum() - noise - uncertain) / size
        # Of the mean: its part along the exact gradient, which is 1 if right, and the rest.
        along = (mean * exact).sum() / size
        across = (mean.square().sum() - noise) / size - along.square()
        values = (bias, along, across, variance.sum() / size)
        table.add_row(method.label, method.setting(), *(f"{float(v):.3g}" for v in values))
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
