"""Straight-through estimators: a hard sample forward, the gradient of something smooth backward."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import RowWise, like, only_gradient
from ksubset.estimators.noise import gumbel


class StraightThroughGumbel(RowWise):
    """Gumbel top-k forward, k times the softmax of the perturbed logits backward; for k = 1 this is
    the straight-through Gumbel-softmax estimator (Jang, Gu and Poole, ICLR 2017).

    Args:
        temperature: of the softmax.
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0) -> None:
        super().__init__()
        self._positive("temperature", temperature)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        keys = rows + gumbel(rows, generator)
        count = k.unsqueeze(-1) if isinstance(k, Tensor) else k
        soft = torch.softmax(keys / like(self.temperature, keys), -1) * count
        return functional.mode(keys.detach(), k) + only_gradient(soft)


class StraightThrough(RowWise):
    """Exact samples forward, the gradient passed on to the logits as it is."""

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        # What is not finite has nothing to be passed on to.
        finite = torch.where(rows.isfinite(), rows, 0)
        return functional.sample(rows, k, generator=generator) + only_gradient(finite)
