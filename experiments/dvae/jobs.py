"""Jobs: models that are trained in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import cast

import torch
from torch import Tensor, nn

from experiments.dvae.gumbel import GumbelBackward
from experiments.dvae.methods import Method
from experiments.dvae.model import DiscreteVAE
from ksubset.estimators import ESTIMATORS, Estimator, Pathwise

_ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    **ESTIMATORS,
    "gumbel_backward": GumbelBackward,
}


class Mixed(Pathwise):
    """Samples for a stack whose members have different estimators, so that they share a step:
    the first members have the first estimator, and so on.

    Logits are (members, images, groups, items).
    """

    def __init__(self, estimators: Sequence[Pathwise], members: Sequence[int]) -> None:
        super().__init__()
        self.estimators, self.members = nn.ModuleList(estimators), list(members)

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
        if mask is not None:
            raise ValueError("mask must be None: the codes of a model have none")
        drawn = [
            cast("Pathwise", estimator).sample(part, k, sample_shape, generator=generator)
            for estimator, part in zip(self.estimators, logits.split(self.members), strict=True)
        ]
        return torch.cat(drawn, -4)


@dataclass(frozen=True)
class Job:
    """Models that are trained in one step: a method with its settings, and a seed, each."""

    methods: tuple[Method, ...]
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.methods)

    @property
    def recipe(self) -> Method:
        """What all have in common is the same in any of them."""
        return self.methods[0]

    @property
    def name(self) -> str:
        """Says everything: it is the key of checkpoints and of the noise."""
        pairs = zip(self.methods, self.seeds, strict=True)
        return "; ".join(f"{method.recipe} {seed}" for method, seed in pairs)

    @property
    def rates(self) -> list[float]:
        """Learning rates of the members."""
        return [method.rate for method in self.methods]

    @property
    def kl_weights(self) -> list[float]:
        """Weights of the members' KL terms in training."""
        return [method.kl_weight for method in self.methods]

    def model(self, pixels: int) -> DiscreteVAE:
        """The stack, untrained."""
        method = self.recipe
        return DiscreteVAE(pixels, method.k, method.groups, method.items, stack=len(self))

    def estimator(self) -> Estimator:
        """Of all members at once."""
        runs = [list(run) for _, run in groupby(self.methods, key=lambda m: m.samples_by)]
        estimators = [_estimator(run) for run in runs]
        if len(runs) == 1:
            return estimators[0]
        return Mixed([cast("Pathwise", e) for e in estimators], [len(run) for run in runs])


def _estimator(methods: Sequence[Method]) -> Estimator:
    """Of methods that differ in the numbers alone: those are tensors (members, 1, 1, 1)."""
    first = methods[0]
    settings: dict[str, float | Tensor] = {}
    for i, (name, value) in enumerate(first.settings):
        values = [method.settings[i][1] for method in methods]
        same = all(v == value for v in values)
        settings[name] = value if same else torch.tensor(values).reshape(-1, 1, 1, 1)
    return _ESTIMATORS[first.estimator](**dict(first.options), **settings)


def _kind(method: Method) -> tuple[object, ...]:
    """What models of a stack have in common: the shape of the code, how many samples, and how they
    are tested. Estimators that are more than samples with a gradient also need a stack of their
    own."""
    pathwise = getattr(_ESTIMATORS[method.estimator], "pathwise", False)
    return (
        method.groups, method.items, method.k, method.samples, method.divergence,
        method.draws_exactly, None if pathwise else method.samples_by,
    )  # fmt: skip


def jobs(methods: Iterable[Method], seeds: Sequence[int], most: int) -> list[Job]:
    """All methods with all seeds, in stacks of one kind with at most so many members."""
    kinds: dict[tuple[object, ...], list[tuple[Method, int]]] = {}
    for method in methods:
        for seed in seeds:
            kinds.setdefault(_kind(method), []).append((method, seed))
    found = []
    for members in kinds.values():
        for part in _parts(members, most):
            methods_, seeds_ = zip(*part, strict=True)
            found.append(Job(tuple(methods_), tuple(seeds_)))
    return found


def _parts(items: Sequence[tuple[Method, int]], most: int) -> Iterator[list[tuple[Method, int]]]:
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part
