"""Training a stack of explainers on one aspect, and what every member is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.beer.model import ReviewExplainer
from experiments.datasets.beer import PADDING, Beer, Reviews
from ksubset.estimators import Estimator

# Rows of a block of the evaluation, over the whole stack.
_BLOCK = 4_000
_WARM_UPS = 3
# Batches that are sorted by length together, and lengths that differ in a step.
_POOL, _LENGTHS = 16, 32
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Recipe:
    """How a stack is trained."""

    k: int
    epochs: int = 20
    batch: int = 40
    rate: float = 1e-3
    clip: float | None = None
    samples: int = 1
    precision: str = "float32"
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """Of one member, at the epoch of its smallest validation loss.

    Attributes:
        validation: mean squared errors of all epochs; None where it is not a number.
        chosen: positions of the words chosen in every annotated review, the likeliest first.
        weights: their marginals.
        precision_marked: over the reviews with a mark; None if there are none.
    """

    epoch: int
    validation: list[float | None]
    test: float
    precision: float
    precision_marked: float | None
    chosen: list[list[int]]
    weights: list[list[float]]


def splits(count: int, seeds: Sequence[int]) -> Tensor:
    """(seeds, count), True for what a member validates with: half of the held-out reviews."""
    found = torch.zeros(len(seeds), count, dtype=torch.bool)
    for row, seed in zip(found, seeds, strict=True):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        row[order[: count // 2]] = True
    return found


def batches(lengths: Tensor, size: int, seed: int) -> Tensor:
    """(batches, size), all reviews once in random order but for less than a batch: reviews of
    similar length together, which halves the padding, a pool of them at a time. The batches of a
    pool follow each other by length."""
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    order = order[: len(order) // size * size]
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(size * _POOL)]
    return torch.cat(pools).reshape(-1, size)


class Training:
    """Members differ in their seed, which decides weights, order of the reviews and the split of
    the held-out ones, and in settings of the estimator; a step is one batched step of all."""

    def __init__(
        self, data: Beer, recipe: Recipe, estimator: Estimator, seeds: Sequence[int]
    ) -> None:
        self.data, self.recipe, self.seeds = data, recipe, list(seeds)
        self.device = torch.device(recipe.device)
        lengths = (data.train.tokens != PADDING).sum(-1)
        enough = lengths >= recipe.k
        self.lengths = lengths[enough]
        self.tokens = data.train.tokens[enough].to(self.device)
        self.ratings = data.train.ratings[enough].to(self.device)
        self.batches = len(self.tokens) // recipe.batch
        if not self.batches:
            raise ValueError(
                f"batch {recipe.batch} is more than the {len(self.tokens)} reviews of at least k = "
                f"{recipe.k} words"
            )
        self.model = ReviewExplainer(
            data.vectors, recipe.k, estimator, self.seeds, recipe.samples,
            PRECISIONS[recipe.precision],
        ).to(self.device)  # fmt: skip
        cuda = self.device.type == "cuda"
        self.parameters = list(self.model.parameters())
        # TensorFlow's epsilon, with which the paper trained.
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=recipe.rate, eps=1e-7, foreach=True, capturable=cuda
        )
        self._make_optimizer_state()
        shape = (len(self.seeds), recipe.batch)
        self.index = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self.pool = torch.cuda.graph_pool_handle() if cuda else None
        torch.manual_seed(self.seeds[0])
        self.steps: dict[int, Callable[[], None]] = {}

    def _make_optimizer_state(self) -> None:
        """A step with no gradient moves nothing, and leaves moments to put back."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        for state in self.optimizer.state.values():
            state["step"].zero_()

    def _step(self, length: int) -> None:
        """One batch of every member, cut off at a length that none of its reviews exceeds."""
        index = self.index.flatten()
        tokens, ratings = self.tokens[index, :length], self.ratings[index]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(
            tokens, ratings, lambda found, wanted: (found - wanted).square(),
            mask=tokens != PADDING,
        )  # fmt: skip
        # A sum over members of means over their batches.
        (loss * len(self.seeds)).backward()
        if self.recipe.clip is not None:
            self._clip(self.recipe.clip)
        self.optimizer.step()

    def _clip(self, most: float) -> None:
        """The norm of every member's gradient by itself."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        squares = torch.stack([g.square().flatten(1).sum(1) for g in gradients]).sum(0)
        scale = (most / squares.sqrt().clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient *= scale.reshape(-1, *(1,) * (gradient.dim() - 1))

    def step(self, index: Tensor, length: int) -> None:
        """One batch (stack, batch) of every member; on a GPU captured once for every length."""
        self.index.copy_(index, non_blocking=True)
        if self.device.type != "cuda":
            return self._step(length)
        if length not in self.steps:
            self.steps[length] = self._captured(length)
        self.steps[length]()

    def _captured(self, length: int) -> Callable[[], None]:
        # Warming up trains: what it changed is put back.
        state = [value for s in self.optimizer.state.values() for value in s.values()]
        changed = [p.detach() for p in self.parameters] + state
        before = [value.clone() for value in changed]
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._step(length)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self._step(length)
        for value, old in zip(changed, before, strict=True):
            value.copy_(old)
        return graph.replay

    def epoch(self, number: int) -> None:
        """All batches once, in every member's own order."""
        self.model.train()
        orders = [
            batches(self.lengths, self.recipe.batch, seed * 1000 + number) for seed in self.seeds
        ]
        order = torch.stack(orders, 1)  # (batches, stack, batch)
        longest = self.lengths[order].flatten(1).amax(1)
        steps = torch.randperm(len(order), generator=torch.Generator().manual_seed(number))
        order = order.to(self.device)
        for i in steps.tolist():
            length = -(-int(longest[i]) // _LENGTHS) * _LENGTHS
            self.step(order[i], min(length, self.tokens.shape[1]))

    def _blocks(self, reviews: Reviews) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices, and tokens (stack reviews, length): of similar lengths together."""
        lengths = (reviews.tokens != PADDING).sum(-1)
        stack = len(self.seeds)
        for rows in lengths.argsort(stable=True).split(max(1, _BLOCK // stack)):
            tokens = reviews.tokens[rows, : int(lengths[rows].max())].to(self.device)
            yield rows.to(self.device), tokens.repeat(stack, 1)

    @torch.no_grad()
    def predict(self, reviews: Reviews) -> Tensor:
        """(stack, reviews), from the likeliest words."""
        self.model.eval()
        found = torch.zeros(len(self.seeds), len(reviews), device=self.device)
        for rows, tokens in self._blocks(reviews):
            found[:, rows] = self.model(tokens, mask=tokens != PADDING).unflatten(
                0, (len(self.seeds), -1)
            )
        return found

    def explain(self, reviews: Reviews) -> tuple[Tensor, Tensor]:
        """(stack, reviews, length): the chosen words, and all marginals."""
        shape = (len(self.seeds), *reviews.tokens.shape)
        chosen = torch.zeros(shape, dtype=torch.bool, device=self.device)
        marginals = torch.zeros(shape, device=self.device)
        for rows, tokens in self._blocks(reviews):
            found = self.model.explain(tokens, mask=tokens != PADDING)
            length = tokens.shape[1]
            for all_of_them, part in ((chosen, found.chosen), (marginals, found.marginals)):
                all_of_them[:, rows, :length] = part.unflatten(0, (len(self.seeds), -1))
        return chosen, marginals

    def train(
        self, on_epoch: Callable[[int, list[float]], None] | None = None
    ) -> list[Outcome | None]:
        """To the end; of every member what it was worth at its best epoch, None if it diverged at
        once."""
        held_out, annotated = self.data.held_out, self.data.annotated
        validation = splits(len(held_out), self.seeds).to(self.device)
        ratings = held_out.ratings.to(self.device)
        best = [math.inf] * len(self.seeds)
        history: list[list[float]] = [[] for _ in self.seeds]
        kept: list[tuple[int, float, Tensor, Tensor] | None] = [None] * len(self.seeds)
        for number in range(1, self.recipe.epochs + 1):
            self.epoch(number)
            errors = (self.predict(held_out) - ratings).square().double()
            losses, tests = (
                ((errors * part).sum(-1) / part.sum(-1)).tolist()
                for part in (validation, ~validation)
            )
            better = [m for m, loss in enumerate(losses) if loss < best[m]]
            if better:
                chosen, marginals = self.explain(annotated.reviews)
            for member, loss in enumerate(losses):
                history[member].append(loss)
            for member in better:
                best[member] = losses[member]
                kept[member] = (number, tests[member], chosen[member], marginals[member])
            if on_epoch is not None:
                on_epoch(number, losses)
        return [
            _outcome(losses, member, annotated.marked)
            for losses, member in zip(history, kept, strict=True)
        ]


def precision(chosen: Tensor, marked: Tensor) -> Tensor:
    """(reviews,), the share of the chosen words that people marked."""
    return (chosen & marked).sum(-1) / chosen.sum(-1).clamp(min=1)


def _outcome(
    history: list[float], kept: tuple[int, float, Tensor, Tensor] | None, marked: Tensor
) -> Outcome | None:
    if kept is None:
        return None
    epoch, test, chosen, marginals = kept[0], kept[1], kept[2].cpu(), kept[3].cpu()
    found = precision(chosen, marked)
    order = marginals.masked_fill(~chosen, -1).argsort(-1, descending=True)
    weights = marginals.gather(-1, order)
    counts = chosen.sum(-1).tolist()
    return Outcome(
        epoch,
        [loss if math.isfinite(loss) else None for loss in history],
        test,
        float(found.mean()),
        float(found[marked.any(-1)].mean()) if marked.any() else None,
        [row[:count] for row, count in zip(order.tolist(), counts, strict=True)],
        [
            [round(weight, 4) for weight in row[:count]]
            for row, count in zip(weights.tolist(), counts, strict=True)
        ],
    )
