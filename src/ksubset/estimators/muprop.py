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
    did so at a mean field): with :math:`h(z) = f(\mu) + \nabla f(\mu) \cdot (z - \mu)` and
    :math:`z \sim p_\theta`,

    :math:`(f(z) - a h(z) - b) (z - \mu) + a\, \mathrm{Cov}(z)\, \nabla f(\mu)`

    is unbiased for any a and b that do not depend on z. The loss must make sense at fractional z.
    Samples carry no gradient: there is ``surrogate`` only, of logits (..., n).

    Args:
        scale: "one" for a = 1 and b = 0; "leave_one_out" for the a that fits the other samples of
            all examples best (least squares), and b what they leave over on average. Three samples
            at least.

    Examples:
        >>> from ksubset.estimators import MuProp
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> cost = torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> MuProp().surrogate(lambda z: z @ cost, logits, 2).backward()
        >>> logits.grad.round(decimals=4)  # no noise: the loss is its own linearisation
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
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
        # A loss that does not see z has no slope.
        slope = torch.zeros_like(at)
        if middle.requires_grad:
            (slope,) = torch.autograd.grad(
                middle.sum(), at, allow_unused=True, materialize_grads=True
            )
        # Items that are certain have no slope, be it infinite.
        slope = torch.where((at > 0) & (at < 1), slope, 0)
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
    together: each by itself would have too few to fit a slope to. 1 where they do not differ."""
    count = len(x)
    slopes = []
    for sample in range(count):
        rest = [i for i in range(count) if i != sample]
        # From the others alone: sums less one's own would leave rounding that knows of it.
        a, b = x[rest], y[rest]
        size = a.square().sum()
        a, b = a - a.mean(0), b - b.mean(0)
        xx, xy = a.square().sum(), (a * b).sum()
        known = xx > (16 * torch.finfo(x.dtype).eps) ** 2 * size
        slopes.append(torch.where(known, xy / torch.where(known, xx, 1), 1.0))
    return torch.stack(slopes).reshape(count, *(1,) * (x.dim() - 1))
