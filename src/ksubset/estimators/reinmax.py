"""ReinMax (Liu, Dong, Liu, Yu and Gao, NeurIPS 2023), and what it becomes for k-subsets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset.estimators.base import Pathwise
from ksubset.functional.swaps import draw_by


class ReinMax(Pathwise):
    r"""Second-order straight-through: exact samples forward, and backward

    :math:`\left( \mathrm{Cov}(z)\, g + (z - \mu)\, (z - \mu) \cdot g \right) / 2`.

    Unbiased for every loss that is quadratic in z, where SIMPLE is for linear ones; for k = 1 it is
    the published estimator. Derivation: docs/estimators.md.

    A second derivative treats Cov and :math:`z - \mu` as constants.

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
        return draw_by("reinmax", logits, k, sample_shape, mask, generator, "auto", None)
