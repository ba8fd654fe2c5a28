"""Straight-through estimators: a hard sample forward, the gradient of something smooth backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import Pathwise, batch_logits, only_gradient, repeated
from ksubset.estimators.noise import gumbel
from ksubset.estimators.simple import positive


class StraightThroughGumbel(Pathwise):
    """Gumbel top-k forward, k times the softmax of the perturbed logits backward; for k = 1 this is
    the straight-through Gumbel-softmax estimator (Jang, Gu and Poole, ICLR 2017).

    Args:
        temperature: of the softmax.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = positive("temperature", temperature)

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        rows = repeated(batch_logits(logits, k, mask), sample_shape)
        keys = rows + gumbel(rows, generator)
        count = k.unsqueeze(-1) if isinstance(k, Tensor) else k
        soft = torch.softmax(keys / self.temperature, -1) * count
        return functional.mode(keys.detach(), k) + only_gradient(soft)


class StraightThrough(Pathwise):
    """Exact samples forward, the gradient passed on to the logits as it is."""

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        rows = repeated(batch_logits(logits, k, mask), sample_shape)
        # What is not finite has nothing to be passed on to.
        finite = torch.where(rows.isfinite(), rows, 0)
        return functional.sample(rows, k, generator=generator) + only_gradient(finite)
