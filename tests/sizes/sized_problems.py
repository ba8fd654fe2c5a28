"""The cases that functions of several sizes are held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

import ksubset
from ksubset.oracle import SizedEnumeration
from ksubset.sizes import Sizes

INF = float("inf")
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5}


@dataclass(frozen=True)
class Kind:
    """Sizes for rows of n items, and what the oracle is told about them."""

    make: Callable[[int], Sizes]
    log_weights: Callable[[int], Tensor]  # (n + 1,), log-probabilities if random
    random: bool = False

    def oracle(self, logits: Tensor) -> SizedEnumeration:
        weights = self.log_weights(len(logits)).double()
        if self.random:
            return SizedEnumeration.with_probabilities(logits, weights.exp())
        return SizedEnumeration(logits, weights)


def _inside(low: Callable[[int], int], high: Callable[[int], int]) -> Callable[[int], Tensor]:
    def weights(n: int) -> Tensor:
        j = torch.arange(n + 1)
        inside = (j >= low(n)) & (j <= high(n))
        return torch.where(inside, 0.0, -INF)

    return weights


def _bell(n: int) -> Tensor:
    return -0.3 * (torch.arange(n + 1, dtype=torch.float64) - n / 3) ** 2


def _any(n: int) -> Tensor:
    weights = 3 * torch.randn(n + 1, generator=torch.Generator().manual_seed(n)).double()
    return weights.index_fill(0, torch.tensor([n // 2]), -INF) if n > 2 else weights


def _given(n: int) -> Tensor:
    return _any(n).log_softmax(-1)


KINDS = {
    "between": Kind(
        lambda n: ksubset.between(n // 4, n // 2 + 1),
        _inside(lambda n: n // 4, lambda n: n // 2 + 1),
    ),
    "neighbours": Kind(
        lambda n: ksubset.between(n // 2, n // 2 + 1),
        _inside(lambda n: n // 2, lambda n: n // 2 + 1),
    ),
    "between, by row": Kind(
        lambda n: ksubset.between(torch.tensor(n // 3), torch.tensor(n - 1)),
        _inside(lambda n: n // 3, lambda n: n - 1),
    ),
    "at most": Kind(
        lambda n: ksubset.at_most(n // 3 + 1), _inside(lambda n: 0, lambda n: n // 3 + 1)
    ),
    "at least": Kind(lambda n: ksubset.at_least(n // 3), _inside(lambda n: n // 3, lambda n: n)),
    "all": Kind(lambda n: ksubset.at_least(0), _inside(lambda n: 0, lambda n: n)),
    "concave weights": Kind(lambda n: ksubset.weighted_sizes(_bell(n)), _bell),
    "any weights": Kind(lambda n: ksubset.weighted_sizes(_any(n)), _any),
    "given probabilities": Kind(
        lambda n: ksubset.random_sizes(_given(n).exp()), _given, random=True
    ),
}


@cache
def rows(n: int) -> dict[str, Tensor]:
    """Logits that float32 holds exactly: several scales and shifts, ties and infinities."""
    generator = torch.Generator().manual_seed(n)
    found = {"equal": torch.zeros(n)}
    for scale in (0.1, 1.0, 4.0, 30.0):
        logits = scale * torch.randn(n, generator=generator)
        found[f"scale {scale}"] = logits
        found[f"scale {scale}, +9"] = logits + 9
        found[f"scale {scale}, -9"] = logits - 9
    normal = torch.randn(n, generator=generator)
    ties = normal.clone()
    ties[: n // 2] = ties[0]
    found["ties"] = ties
    if n >= 4:
        forbidden, forced, both = normal.clone(), normal.clone(), normal.clone()
        forbidden[n // 2] = -INF
        forced[n // 3] = INF
        both[0], both[-1] = INF, -INF
        found |= {"forbidden": forbidden, "forced": forced, "both": both}
    return found


def possible(kind: Kind, logits: Tensor) -> bool:
    """Whether the row admits the sizes: some of them, or all that have a probability."""
    wanted = kind.log_weights(len(logits)) > -INF
    j = torch.arange(len(logits) + 1)
    inside = (j >= (logits == INF).sum()) & (j <= (logits > -INF).sum())
    return bool((inside | ~wanted).all()) if kind.random else bool((inside & wanted).any())
