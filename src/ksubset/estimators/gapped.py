"""Gapped straight-through (Fan, Chi, Rudnicky and Ramadge, ICML 2022), for k-subsets."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import RowWise, like, only_gradient
from ksubset.estimators.straight_through import k_largest


class GappedStraightThrough(RowWise):
    r"""Exact samples forward; backward, the marginals of logits that are moved until the sample is
    the most likely subset by a gap.

    Let z be an exact sample and T the k-th largest logit. Chosen items are moved up to T and the
    others down to T - gap, if they are not there already:
    :math:`\tilde\theta_i = \max(\theta_i, T)` for :math:`i \in z`, else
    :math:`\min(\theta_i, T - \mathrm{gap})`. The gradient is
    :math:`\tfrac1t \mathrm{Cov}(\tilde\theta / t)\, g`, with the moves held constant. They take the
    place of Gumbel noise given z, without its variance. For k = 1 this is the published estimator.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        temperature: t: a number, or a tensor that broadcasts over the rows (..., 1).
        gap: by how much the chosen items are ahead, likewise.

    Examples:
        >>> from ksubset.estimators import GappedStraightThrough
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = GappedStraightThrough().sample(logits, 2)
        >>> z.backward(z.detach())
        >>> bool((logits.grad[z > 0] > 0).all())
        True
    """

    temperature: float | Tensor
    gap: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0, gap: float | Tensor = 1.0) -> None:
        super().__init__()
        self._positive("temperature", temperature)
        self._positive("gap", gap)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        z = functional.sample(rows, k, generator=generator)
        plain = rows.detach()
        top = torch.where(k_largest(plain, k) > 0, plain, torch.inf).amin(-1, keepdim=True)
        moved = torch.where(z > 0, plain.maximum(top), plain.minimum(top - like(self.gap, rows)))
        # Items that are certain stay where they are, as do rows with nothing to choose.
        moves = torch.where(plain.isfinite() & moved.isfinite(), moved - plain, 0)
        soft = functional.marginals((rows + moves) / like(self.temperature, rows), k)
        return z + only_gradient(soft).to(z.dtype)
