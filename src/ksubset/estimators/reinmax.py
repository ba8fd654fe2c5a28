"""ReinMax (Liu, Dong, Liu, Yu and Gao, NeurIPS 2023), and what it becomes for k-subsets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import Pathwise, batch_logits, only_gradient


class ReinMax(Pathwise):
    r"""Second-order straight-through: exact samples forward, and backward

    :math:`\left( \mathrm{Cov}(z)\, g + (z - \mu)\, (z - \mu) \cdot g \right) / 2`.

    Unbiased for every loss that is quadratic in z, where SIMPLE is for linear ones; for k = 1 it is
    the published estimator. Derivation: docs/estimators.md.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Examples:
        >>> from ksubset.estimators import ReinMax
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> g = torch.tensor([4.0, 0.0, 0.0, 0.0])
        >>> z = ReinMax().sample(logits, 2)
        >>> z.backward(g)
        >>> away = z.detach() - marginals(logits, 2).detach()
        >>> formula = (covariance_product(logits, 2, g) + away * (away @ g)) / 2
        >>> torch.allclose(logits.grad, formula)
        True
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
        away = (z - mu).detach()
        carried = 0.5 * mu + torch.where(away == 0, 0, 0.5 * away * score)
        return z + only_gradient(carried.to(z.dtype))
