"""Double control variates (after Titsias and Shi, AISTATS 2022), with exact covariances."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import (
    Estimator,
    Loss,
    check_samples,
    only_gradient,
    over_groups,
    with_gradient,
)
from ksubset.estimators.score import others


class DoubleControl(Estimator):
    r"""The leave-one-out score function with a second control variate: the loss linearised with the
    gradients at the other samples. Unbiased for every loss that is differentiable in z.

    With :math:`c_s` the mean of the gradients at the samples other than :math:`z_s`, and
    :math:`h_s(z) = c_s \cdot (z - \mu)`, sample s contributes

    :math:`\left( f(z_s) - h_s(z_s) - b_s \right) (z_s - \mu) + \mathrm{Cov}(z)\, c_s`,

    where :math:`b_s` is the mean of :math:`f(z_t) - h_s(z_t)` over the other samples. The loss and
    its gradient are evaluated at every sample, and nowhere else. Samples carry no gradient: there
    is ``surrogate`` only, of logits (..., n) and at least two samples.

    Examples:
        >>> from ksubset.estimators import DoubleControl
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> cost = torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> DoubleControl().surrogate(lambda z: z @ cost, logits, 2, 2).backward()
        >>> logits.grad.round(decimals=4)  # no noise: the loss is its own linearisation
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 2,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        check_samples(num_samples, 2)
        mu = functional.marginals(logits, k, mask=mask)
        z = functional.sample(logits, k, (num_samples,), mask=mask, generator=generator)
        losses, gradients = with_gradient(loss_fn, z, vectorized)
        found = losses.detach()
        # Items that are certain have no slope, be it infinite.
        slopes = torch.where((mu > 0) & (mu < 1), others(gradients), 0)
        away = z - mu.detach()
        own, rest = ((slopes * x).sum(-1) for x in (away, others(away)))
        signal = found - others(found) - over_groups(own - rest, losses)
        log_prob = over_groups(functional.log_prob(logits, k, z, mask=mask), losses)
        carried = over_groups((slopes * mu).sum(-1), losses)
        return (losses + only_gradient(signal * log_prob + carried)).sum() / num_samples
