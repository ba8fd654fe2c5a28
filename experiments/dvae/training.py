"""Training a job: one step for all its models, captured as a CUDA graph where there is one."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from experiments.datasets.images import Images
from experiments.dvae import checkpoints
from experiments.dvae.checkpoints import Progress
from experiments.dvae.jobs import Job
from experiments.dvae.objective import LOSSES, Objective, Share, held_out_losses
from experiments.dvae.optimizer import StackedAdam
from ksubset.estimators import Estimator, Pathwise

PRECISIONS = ("float32", "tf32", "bfloat16", "float64")
# Rows of a test block, over the whole stack: enough to fill a GPU, little enough for its memory.
_BLOCK = 40_000
_WARM_UPS = 3


@dataclass(frozen=True)
class Recipe:
    """What all jobs of a study have in common."""

    epochs: int
    batch: int = 100
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "float32"
    graph: bool = True  # capture the step, on CUDA and with one process
    share: Share = field(default_factory=Share)
    test_every: int = 1  # epochs; the last one is always tested


def set_precision(precision: str) -> None:
    """Of matrix products in single precision, for the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


@functools.lru_cache(maxsize=64)
def _order(seed: int, epoch: int, images: int) -> Tensor:
    """Of the images in an epoch: all models with this seed see them in the same order."""
    generator = torch.Generator().manual_seed(seed_of("order", seed, epoch))
    return torch.randperm(images, generator=generator)


def seed_of(*parts: object) -> int:
    """A seed for every purpose, from what it is for."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Training:
    """The models of a job, their optimiser and their step.

    Everything random is keyed by what it is for: weights by a member's seed, the order of the
    images by its seed and the epoch, noise by the job and the epoch. So a run continues from the
    end of any epoch as if it had not stopped, and processes agree without talking.
    """

    def __init__(self, job: Job, images: Images, recipe: Recipe) -> None:
        self.job, self.recipe, share = job, recipe, recipe.share
        dtype = torch.float64 if recipe.precision == "float64" else torch.float32
        self.train, self.test = (
            x.to(recipe.device, dtype) for x in (images.train, images.test)
        )  # fmt: skip
        self.batches = len(self.train) // recipe.batch
        if not self.batches:
            raise ValueError(f"batch {recipe.batch} is more than the {len(self.train)} images")
        method = job.recipe
        self.vae = job.model(images.pixels).to(recipe.device, dtype)
        self.objective = Objective(
            self.vae, self.make_estimator(), method.samples, method.divergence, share,
            job.kl_weights,
        ).to(recipe.device)  # fmt: skip
        self.loss: torch.nn.Module = self.objective
        if share.world > 1:
            self.loss = DistributedDataParallel(self.objective)
        cuda = recipe.device.type == "cuda"
        self.optimizer = StackedAdam(self.vae.named_parameters(), job.rates, capturable=cuda)
        self.generator = torch.Generator(recipe.device)
        shape = (len(job), self.batches, recipe.batch)
        self.order = torch.zeros(shape, dtype=torch.int64, device=recipe.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=recipe.device)
        self.totals = torch.zeros(2, len(job), dtype=torch.float64, device=recipe.device)
        self._start = {name: value.clone() for name, value in self.state().items()}
        # A stream of its own: what is captured on it has a workspace of its own too, and several
        # trainings can share a GPU that none of them fills.
        self.stream = torch.cuda.Stream(recipe.device) if cuda else None
        self._step: Callable[[], None] = self._eager_step
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            if recipe.graph and share.world == 1:
                self._step = self._captured_step(self.stream)
        self.progress = Progress()
        self.reset()

    def make_estimator(self) -> Estimator:
        """Of the whole stack."""
        return self.job.estimator()

    def state(self) -> dict[str, Tensor]:
        """Everything that training changes, to be saved or loaded in place."""
        found = {f"objective.{name}": x for name, x in self.objective.state_dict().items()}
        adam = {f"adam.{name}": value for name, value in self.optimizer.state().items()}
        return found | adam

    @torch.no_grad()
    def reset(self) -> None:
        """As at the very beginning."""
        for name, value in self.state().items():
            value.copy_(self._start[name])
        self.vae.reset(self.job.seeds)
        self.position.zero_()
        self.totals.zero_()

    def _context(self) -> contextlib.AbstractContextManager[object]:
        if self.recipe.precision == "bfloat16":
            return torch.autocast(self.recipe.device.type, torch.bfloat16, cache_enabled=False)
        return contextlib.nullcontext()

    def _eager_step(self) -> None:
        index = self.order.index_select(1, self.position).squeeze(1)
        x = self.train[index[:, self.recipe.share.of(self.recipe.batch)]]
        self.optimizer.zero_grad()
        with self._context():
            loss, parts = self.loss(x, self.generator)
        loss.backward()
        if self.recipe.share.world > 1:
            # A mean over processes where a sum is wanted. Not scaled in the loss: what estimators
            # such as I-MLE make of a gradient is not linear in it.
            for parameter in self.vae.parameters():
                assert parameter.grad is not None
                parameter.grad *= self.recipe.share.world
        self.optimizer.step()
        self.totals += parts
        self.position += 1

    def _captured_step(self, stream: torch.cuda.Stream) -> Callable[[], None]:
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self.position.zero_()
                self._eager_step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=stream):
            self._eager_step()
        return graph.replay

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @property
    def done(self) -> bool:
        """Whether all epochs are."""
        return self.progress.epochs >= self.recipe.epochs

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one."""
        found = checkpoints.read(path, self.job.name)
        if found is not None:
            self.progress, tensors = found
            checkpoints.load(self.state(), tensors, path)

    def save(self, path: Path) -> None:
        """A checkpoint to go on from."""
        checkpoints.write(path, self.job.name, self.progress, self.state())

    def begin_epoch(self) -> None:
        """New order, new noise."""
        epoch, count = self.progress.epochs + 1, self.batches * self.recipe.batch
        if self.stream is not None:  # what was loaded was loaded on another one
            self.stream.wait_stream(torch.cuda.current_stream())
        with self._on_stream():
            for member, seed in enumerate(self.job.seeds):
                order = _order(seed, epoch, len(self.train))[:count]
                self.order[member].copy_(order.reshape(self.batches, -1))
            self.generator.manual_seed(seed_of("noise", self.job.name, epoch))
            self.position.zero_()
            self.totals.zero_()

    def step(self) -> None:
        """One batch for every member."""
        with self._on_stream():
            self._step()

    def end_epoch(self) -> dict[str, list[float]]:
        """Losses of every member: of the epoch's batches, and if it is time for a test, of the test
        images after it."""
        epoch, recipe = self.progress.epochs + 1, self.recipe
        with self._on_stream():
            totals = self._over_processes(self.totals) / (self.batches * self.recipe.batch)
            reconstruction, divergence = totals.tolist()
            losses = {"train reconstruction": reconstruction, "train divergence": divergence}
            if epoch % recipe.test_every == 0 or epoch == recipe.epochs:
                losses |= self.evaluate(epoch)
        self.progress.history.append(losses)
        self.progress.epochs = epoch
        return losses

    def _over_processes(self, values: Tensor) -> Tensor:
        if self.recipe.share.world > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values

    def evaluate(self, epoch: int) -> dict[str, list[float]]:
        """Means over test images, for every member: negative ELBOs in parts."""
        size = max(1, _BLOCK // len(self.job))
        totals: dict[str, Tensor] = {}
        share = self.recipe.share
        for i in range(share.rank, math.ceil(len(self.test) / size), share.world):
            self.generator.manual_seed(seed_of("test", self.job.name, epoch, i))
            block = self.test[i * size : (i + 1) * size]
            for name, value in self._block_losses(block).items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + value
        if share.world > 1:
            # A process may have had no block at all.
            zero = torch.zeros(len(self.job), dtype=torch.float64, device=self.recipe.device)
            table = torch.stack([totals.get(name, zero) for name in LOSSES])
            totals = dict(zip(LOSSES, self._over_processes(table), strict=True))
        return {name: (value / len(self.test)).tolist() for name, value in totals.items()}

    def _block_losses(self, block: Tensor) -> dict[str, Tensor]:
        estimator = self.objective.estimator
        own = None
        if isinstance(estimator, Pathwise) and not self.job.recipe.draws_exactly:
            own = estimator
        with self._context():
            return held_out_losses(self.vae, own, block, self.generator)


def train(
    trainings: Sequence[Training],
    on_step: Callable[[int], None] = lambda steps: None,
    on_epoch: Callable[[Training, dict[str, list[float]]], None] = lambda training, losses: None,
) -> None:
    """To the end, side by side: step by step in turn, on a GPU at the same time."""
    on_step(sum(t.progress.epochs * t.batches for t in trainings))
    while active := [t for t in trainings if not t.done]:
        for training in active:
            training.begin_epoch()
        for _ in range(active[0].batches):
            for training in active:
                training.step()
            on_step(len(active))
        for training in active:
            on_epoch(training, training.end_epoch())
