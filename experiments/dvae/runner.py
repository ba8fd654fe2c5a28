"""Jobs to results: side by side, with checkpoints, never twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from experiments.clock import Clock
from experiments.datasets.images import Images
from experiments.dvae import checkpoints
from experiments.dvae.jobs import Job
from experiments.dvae.model import DiscreteVAE
from experiments.dvae.objective import Share
from experiments.dvae.settings import Settings
from experiments.dvae.training import Recipe, Training, set_precision, train

_WEIGHTS = "objective.vae."


@dataclass
class Trained:
    """A finished job."""

    job: Job
    history: list[dict[str, list[float]]]
    vae: DiscreteVAE | None  # the whole stack, on the CPU


class Runner:
    """Trains jobs of one study.

    Args:
        folder: of the unfinished run: checkpoints and logs are kept there.

    Attributes:
        clock: how long the run has taken.
    """

    def __init__(self, settings: Settings, share: Share, folder: Path, console: Console) -> None:
        self.settings, self.share, self.folder, self.console = settings, share, folder, console
        self.clock = Clock(folder / "checkpoints" / "seconds.json")
        set_precision(settings.precision)

    def train(
        self, jobs: Sequence[Job], images: Images, epochs: int, stage: str, weights: bool = True
    ) -> list[Trained]:
        """All of them, in their order.

        Args:
            stage: of the study; the same job may be part of several.
            weights: whether models are wanted, or only their losses.
        """
        self.stage = stage
        settings = self.settings
        dtype = torch.float64 if settings.precision == "float64" else torch.float32
        here = images.to(settings.torch_device, dtype)
        recipe = Recipe(
            epochs, settings.batch, settings.torch_device, settings.precision, settings.graph,
            self.share, settings.test_every,
        )  # fmt: skip
        steps = len(jobs) * epochs * (len(images.train) // settings.batch)
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("steps"), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn(),
        )  # fmt: skip
        found: dict[str, Trained] = {}
        quiet = self.share.rank > 0
        with Progress(*columns, console=self.console, transient=True, disable=quiet) as progress:
            task = progress.add_task(stage, total=steps)
            waiting = []
            for job in jobs:
                done = self._finished(job, images, epochs, weights)
                if done is None:
                    waiting.append(job)
                else:
                    found[job.name] = done
                    progress.advance(task, steps // len(jobs))
            for group in _groups(waiting, settings.most_together):
                trainings = [Training(job, here, recipe) for job in group]
                for training in trainings:
                    training.resume(self._path(training.job))
                self._train(trainings, partial(progress.advance, task), weights)
                for training in trainings:
                    vae = training.vae.float().cpu() if weights else None
                    found[training.job.name] = Trained(training.job, training.progress.history, vae)
                del trainings, training
                torch.cuda.empty_cache()
        return [found[job.name] for job in jobs]

    def _train(
        self, trainings: Sequence[Training], on_step: Callable[[int], None], weights: bool
    ) -> None:
        writers = self._writers(trainings)
        every = self.settings.checkpoint_every

        def on_epoch(training: Training, losses: dict[str, list[float]]) -> None:
            for writer, member in zip(writers[training.job.name], _members(losses), strict=False):
                for name, value in member.items():
                    writer.add_scalar(name, value, training.progress.epochs)
            if self.share.rank:
                return
            due = weights and training.progress.epochs % every == 0
            if not (training.done or due):
                return
            self.clock.save()
            if weights:
                training.save(self._path(training.job))
            else:
                checkpoints.write(
                    self._path(training.job), training.job.name, training.progress, {}
                )

        try:
            train(trainings, on_step, on_epoch)
        finally:
            for job in writers.values():
                for writer in job:
                    writer.close()

    def _path(self, job: Job) -> Path:
        mark = hashlib.sha256(job.name.encode()).hexdigest()[:12]
        return self.folder / "checkpoints" / self.stage / f"{job.recipe.key}-{mark}.safetensors"

    def _finished(self, job: Job, images: Images, epochs: int, weights: bool) -> Trained | None:
        """What an earlier process left, if it came to the end."""
        found = checkpoints.read(self._path(job), job.name)
        if found is None or found[0].epochs < epochs:
            return None
        progress, tensors = found
        if progress.epochs > epochs:
            raise ValueError(f"checkpoint {self._path(job)} is damaged: {progress.epochs} epochs")
        if not weights:
            return Trained(job, progress.history, None)
        vae = job.model(images.pixels)
        weights_of = {
            name.removeprefix(_WEIGHTS): value.float()
            for name, value in tensors.items()
            if name.startswith(_WEIGHTS)
        }
        checkpoints.load(vae.state_dict(), weights_of, self._path(job))
        return Trained(job, progress.history, vae)

    def _writers(self, trainings: Sequence[Training]) -> dict[str, list[Any]]:
        """TensorBoard's, one for every model."""
        if not self.settings.tensorboard or self.share.rank:
            return {t.job.name: [] for t in trainings}
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard needs TensorBoard: pip install tensorboard") from None
        return {
            t.job.name: [
                SummaryWriter(
                    self.folder
                    / "tensorboard"
                    / self.stage
                    / f"{method.key} {method.setting()} seed {seed}",
                    purge_step=t.progress.epochs + 1,
                )
                for method, seed in zip(t.job.methods, t.job.seeds, strict=True)
            ]
            for t in trainings
        }


def _members(losses: dict[str, list[float]]) -> Iterator[dict[str, float]]:
    """Losses of a stack, model by model."""
    for values in zip(*losses.values(), strict=True):
        yield dict(zip(losses, values, strict=True))


def _groups(jobs: Sequence[Job], size: int) -> Iterator[Sequence[Job]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]
