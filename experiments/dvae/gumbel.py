"""Straight-through Gumbel-softmax taken apart, for k = 1: which part of it makes it train well?"""

from __future__ import annotations

import torch
from torch import Tensor

import ksubset
from ksubset.estimators.base import RowWise, like


class GumbelBackward(RowWise):
    r"""An exact sample forward; backward the softmax of perturbed logits, averaged over noise.

    Backward, :math:`s = \mathrm{softmax}((\theta + G) / t)` with several independent draws of the
    Gumbel noise G. If G is coupled, it is drawn given that :math:`\theta + G` is largest at the
    chosen item: one draw is straight-through Gumbel-softmax, many are its Rao-Blackwellised form
    (Paulus, Maddison and Krause, ICLR 2021), which has the same mean. If it is not, the noise is
    independent of the sample.

    Args:
        temperature: t: a number, or a tensor that broadcasts over the rows (..., 1).
        draws: how many.
        coupled: whether the noise agrees with the sample.
    """

    temperature: float | Tensor

    def __init__(
        self, temperature: float | Tensor = 1.0, draws: int = 1, coupled: bool = True
    ) -> None:
        super().__init__()
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws}")
        self._positive("temperature", temperature)
        self.draws, self.coupled = draws, coupled

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """See the base."""
        if not isinstance(k, int) or k != 1:
            raise ValueError(f"k must be 1, got {k}")
        z = ksubset.sample(rows.detach(), 1, generator=generator)
        log_p = rows.detach().log_softmax(-1)
        shape = (self.draws, *rows.shape)
        waits = torch.empty(shape, dtype=rows.dtype, device=rows.device)
        waits.exponential_(generator=generator)
        # Perturbed log-probabilities are minus the logarithms of waiting times of rates p; the
        # first of them is exponential with rate 1, whichever item it is.
        times = waits * (-log_p).exp()
        if self.coupled:
            first = (waits * z).sum(-1, keepdim=True)
            times = torch.where(z > 0, first, times + first)
        noise = -times.log() - log_p
        soft = ((rows + noise) / like(self.temperature, rows)).softmax(-1).mean(0)
        return z + (soft - soft.detach())
