"""MuProp at the exact marginals: unbiased, with a linear control variate whose mean is known."""

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
from ksubset.estimators.score import others

_SCALES = ("one", "leave_one_out")


class MuProp(Estimator):
    r"""The loss is linearised at the exact marginals (Gu, Levine, Sutskever and Mnih, ICLR 2016,
    did so at a mean field): with :math:`h(z) = f(\mu) + \nabla f(\mu) \cdot (z - \mu)`,

    .. math:: (f(z) - a h(z) - b) (z - \mu) + a\, \mathrm{Cov}\, \nabla f(\mu)

    is unbiased for any a and b that do not depend on z. The loss must make sense at fractional z.

    Args:
        scale: "one" for a = 1; "leave_one_out" for the a that fits the other samples of all
            examples best (least squares), and b what they leave over on average. Three samples at
            least.
    """

    def __init__(self, scale: str = "one") -> None:
        super().__init__()
        if scale not in _SCALES:
            raise ValueError(f"scale must be one of {', '.join(_SCALES)}, got {scale!r}")
        self.scale = scale

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
        fitted = self.scale == "leave_one_out"
        check_samples(num_samples, 3 if fitted else 1)
        mu = functional.marginals(logits, k, mask=mask)
        at = mu.detach().unsqueeze(0).requires_grad_()
        with torch.enable_grad():
            middle = evaluate(loss_fn, at, vectorized)
            (slope,) = torch.autograd.grad(middle.sum(), at)
        z = functional.sample(logits, k, (num_samples,), mask=mask, generator=generator)
        losses = evaluate(loss_fn, z, vectorized)
        linear = middle.detach() + over_groups((slope * (z - at.detach())).sum(-1), losses)
        found = losses.detach()
        scale: Tensor | float = 1.0
        rest = found - linear
        if fitted:
            scale = _slope_of_others(linear, found)
            # What the others have left over at their own scale, the one used here.
            rest = found - scale * linear - (others(found) - scale * others(linear))
        log_prob = over_groups(functional.log_prob(logits, k, z, mask=mask), losses)
        carried = over_groups((slope * mu.unsqueeze(0)).sum(-1), middle)
        return (losses + only_gradient(rest * log_prob + scale * carried)).sum() / num_samples


def _slope_of_others(x: Tensor, y: Tensor) -> Tensor:
    """For every sample the least squares slope of y on x over the other ones, of all examples
    together: each by itself would have too few to fit a slope to."""
    count = len(x)
    x, y = x - x.mean(0), y - y.mean(0)
    # Sums over all less one's own, moved to the others' own means.
    shrink = 1 + 1 / (count - 1)
    axes = tuple(range(1, x.dim()))
    xx = ((x * x).sum(0) - shrink * x * x).sum(axes, keepdim=True)
    xy = ((x * y).sum(0) - shrink * x * y).sum(axes, keepdim=True)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(xx > tiny, xy / xx.clamp_min(tiny), 1.0)
