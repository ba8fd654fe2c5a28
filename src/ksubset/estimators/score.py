"""The score function estimator: unbiased, with exact log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import (
    Estimator,
    Loss,
    check_samples,
    evaluate,
    only_gradient,
    over_groups,
)

_BASELINES = ("none", "leave_one_out", "regression", "moving_average")
_OF_OTHERS = ("leave_one_out", "regression")


class Score(Estimator):
    r"""The mean of :math:`(f(z) - b) \nabla \log p(z)`, :math:`\nabla \log p(z) = z - \mu`.

    Over samples :math:`z \sim p_\theta`. Unbiased for every loss, which need not be differentiable
    in z; b does not depend on z. Samples carry no gradient: there is ``surrogate`` only, of logits
    (..., n).

    The baseline "regression" fits, for every sample, a linear function
    :math:`b + c \cdot (z - \mu)` to the losses of the others. The fit is subtracted from the loss,
    and its exact gradient :math:`\mathrm{Cov}(z)\, c` is added. It is a ridge regression with the
    penalty :math:`\sum_i \mu_i (1 - \mu_i)`.

    Args:
        baseline: b: "none"; "leave_one_out", for every sample the mean loss of the others, of which
            there must be at least one; "regression", a linear fit to the losses of the others, of
            which there should be several; "moving_average", of past losses.
        decay: of the moving average.

    Attributes:
        average: of past losses, a scalar buffer, before division by ``weight``; with
            "moving_average" only.
        weight: the sum of the weights in ``average``, a scalar buffer; with "moving_average" only.

    Examples:
        >>> from ksubset.estimators import Score
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> seen = []
        >>> def loss(z):  # no gradient passes through it
        ...     seen.append(z)
        ...     return (z[0] > 0.5).float()
        >>> Score().surrogate(loss, logits, 2, num_samples=8).backward()
        >>> each = [loss(z) * (z - 0.5) for z in seen[:8]]
        >>> torch.allclose(logits.grad, torch.stack(each).mean(0))
        True
    """

    average: Tensor
    weight: Tensor

    def __init__(self, baseline: str = "none", decay: float = 0.99) -> None:
        super().__init__()
        if baseline not in _BASELINES:
            raise ValueError(f"baseline must be one of {', '.join(_BASELINES)}, got {baseline!r}")
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay!r}")
        self.baseline, self.decay = baseline, decay
        if baseline == "moving_average":
            self.register_buffer("average", torch.zeros(()))
            self.register_buffer("weight", torch.zeros(()))

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 1,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        check_samples(num_samples, 2 if self.baseline in _OF_OTHERS else 1)
        z = functional.sample(logits, k, (num_samples,), mask=mask, generator=generator)
        losses = evaluate(loss_fn, z, vectorized)
        log_prob = over_groups(functional.log_prob(logits, k, z, mask=mask), losses)
        if self.baseline == "regression":
            mu = functional.marginals(logits, k, mask=mask)
            signal, slopes = _regression(losses.detach(), z, mu.detach())
            carried = signal * log_prob + over_groups((slopes * mu).sum(-1), losses)
        else:
            carried = (losses.detach() - self._baseline(losses.detach())) * log_prob
        return (losses + only_gradient(carried)).sum() / num_samples

    def _baseline(self, losses: Tensor) -> Tensor | float:
        if self.baseline == "leave_one_out":
            return others(losses)
        if self.baseline == "moving_average":
            if not losses.numel():
                return 0.0
            # From before these losses: they must not know of each other.
            known = self.average / self.weight.clamp_min(1e-12)
            self.average.mul_(self.decay).add_((1 - self.decay) * losses.mean().to(self.average))
            self.weight.mul_(self.decay).add_(1 - self.decay)
            return known.to(losses)
        return 0.0


def others(values: Tensor) -> Tensor:
    """For every sample (the first axis) the mean of the other ones."""
    return (values.sum(0) - values) / (len(values) - 1)


def _regression(losses: Tensor, z: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """For every sample, what a linear fit to the other samples misses of its loss, and the slopes
    of the fit: (samples, *examples) and (samples, ..., n).

    One inverse gives all fits: with P the inverse of the bordered matrix (K + penalty, 1; 1, 0)
    without its border, the fit without sample s misses (P f)_s / P_ss.
    """
    if not losses.numel():
        return losses, torch.zeros_like(z)
    away = (z - mu).double()
    examples = losses.shape[1:]
    x = away.reshape(len(z), *examples, -1).movedim(0, -2)  # (*examples, samples, items)
    f = losses.double().movedim(0, -1).unsqueeze(-1)
    variance = (mu * (1 - mu)).double().reshape(*examples, -1).sum(-1)[..., None, None]
    penalty = torch.where(variance > 0, variance, 1)
    inverse = torch.linalg.inv(
        x @ x.mT + penalty * torch.eye(len(z), dtype=x.dtype, device=x.device)
    )
    sums = inverse.sum(-1, keepdim=True)
    inverse = inverse - sums @ sums.mT / sums.sum(-2, keepdim=True)
    missed = (inverse @ f).squeeze(-1) / inverse.diagonal(dim1=-2, dim2=-1)
    weights = (inverse @ f).mT - inverse * missed.unsqueeze(-1)  # of the other samples, by sample
    slopes = (weights @ x).movedim(-2, 0).reshape(z.shape)
    dtype = torch.promote_types(losses.dtype, mu.dtype)
    return missed.movedim(-1, 0).to(dtype), slopes.to(mu.dtype)
