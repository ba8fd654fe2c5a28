"""ReinMax (Liu, Dong, Liu, Yu and Gao, NeurIPS 2023), and what it becomes for k-subsets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import Pathwise, batch_logits, only_gradient


class ReinMax(Pathwise):
    r"""Second-order straight-through: exact samples forward, and backward

    .. math:: \tfrac12 \bigl( \mathrm{Cov}\, g + (z - \mu)\, (z - \mu) \cdot g \bigr) .

    Unbiased for every loss that is quadratic in z, where SIMPLE is for linear ones; for k = 1 it is
    the published estimator. Derivation: docs/estimators.md.
    """

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        rows = batch_logits(logits, k, mask)
        z = functional.sample(rows, k, sample_shape, generator=generator)
        mu = functional.marginals(rows, k)
        # The gradient of log p(z) is z - mu.
        score = functional.log_prob(rows, k, z).unsqueeze(-1)
        carried = 0.5 * mu + 0.5 * (z - mu).detach() * score
        return z + only_gradient(carried.to(z.dtype))
