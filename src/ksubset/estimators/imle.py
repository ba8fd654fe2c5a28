"""Implicit maximum likelihood estimation (Niepert, Minervini and Franceschi, NeurIPS 2021), and its
adaptive form (Minervini, Franceschi and Niepert, AAAI 2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ksubset import functional
from ksubset.estimators.base import RowWise, like
from ksubset.estimators.noise import gumbel, sum_of_gamma

_NOISES = ("sum_of_gamma", "gumbel")


class IMLE(RowWise):
    r"""Perturb-and-MAP forward, and :math:`(z(\theta) - z(\theta - \lambda g)) / \lambda` backward
    with the same noise.

    Here :math:`z(\theta)` is the k-hot vector of the k largest of :math:`\theta + \epsilon`. The
    noise :math:`\epsilon` of an item is :math:`\tau` times a Gumbel variable, or
    :math:`\tau (G_1 + \dots + G_s - \log s) / \kappa` with
    :math:`G_i \sim \mathrm{Gamma}(1 / \kappa, \mathrm{scale}\ \kappa / i)`: the noise of k items
    then adds up to about a Gumbel variable. Samples are not of the k-subset distribution.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        strength: :math:`\lambda`, a number or a tensor that broadcasts over the rows (..., 1).
        noise: "sum_of_gamma" (with :math:`\kappa = k`) or "gumbel".
        temperature: :math:`\tau`: the noise is multiplied by it. A number or a tensor (..., 1).
        terms: s, of the sum of gamma.

    Examples:
        >>> from ksubset.estimators import IMLE
        >>> logits = torch.tensor([30.0, 30.0, -30.0, -30.0], requires_grad=True)
        >>> z = IMLE(strength=100.0).sample(logits, 2)
        >>> z.detach()  # with such logits all but certain
        tensor([1., 1., 0., 0.])
        >>> z.backward(torch.tensor([1.0, 0.0, -1.0, 0.0]))  # 0 costs, 2 pays
        >>> logits.grad  # the second subset has items 1 and 2
        tensor([ 0.0100,  0.0000, -0.0100,  0.0000])
    """

    strength: float | Tensor
    temperature: float | Tensor

    def __init__(
        self,
        strength: float | Tensor = 10.0,
        noise: str = "sum_of_gamma",
        temperature: float | Tensor = 1.0,
        terms: int = 10,
    ) -> None:
        super().__init__()
        if noise not in _NOISES:
            raise ValueError(f"noise must be one of {', '.join(_NOISES)}, got {noise!r}")
        if isinstance(terms, bool) or not isinstance(terms, int) or terms < 1:
            raise ValueError(f"terms must be an int of at least 1, got {terms!r}")
        self._positive("strength", strength)
        self.noise = noise
        self._positive("temperature", temperature)
        self.terms = terms

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        temperature = like(self.temperature, rows)
        if self.noise == "gumbel":
            noise = temperature * gumbel(rows, generator)
        else:
            noise = sum_of_gamma(rows, k, temperature, self.terms, generator)
        return _Target.apply(rows, noise, k, self._strength_for)

    def _strength_for(self, rows: Tensor, grad: Tensor) -> Tensor:
        """Lambda, broadcast over rows."""
        strength = like(self.strength, rows)
        if isinstance(strength, Tensor):
            return strength
        return torch.full((), strength, dtype=rows.dtype, device=rows.device)

    def _learn(self, estimate: Tensor) -> None:
        """From the finite difference z - z' of a backward pass."""


class AdaptiveIMLE(IMLE):
    r"""I-MLE whose step adapts itself: for every row
    :math:`\lambda = \alpha \lVert\theta\rVert / \lVert g\rVert`, and alpha grows while fewer than
    ``wanted`` entries of a row's difference differ from zero on average, and shrinks otherwise.

    Forward, backward and shapes are those of :class:`IMLE`.

    Args:
        noise: "sum_of_gamma" (with :math:`\kappa = k`) or "gumbel".
        temperature: the noise is multiplied by it. A number or a tensor (..., 1).
        terms: of the sum of gamma.
        start: the first alpha; with 1, the target is as far from the logits as they are from zero.
        wanted: how many entries of z - z' should differ from zero.
        rate: by how much alpha changes in a backward pass.
        decay: of the moving average.

    Attributes:
        alpha: the step that was learned, a scalar buffer.
        average: how many entries of z - z' differed from zero, a moving average: a scalar buffer.

    Examples:
        >>> from ksubset.estimators import AdaptiveIMLE
        >>> logits = torch.tensor([30.0, 30.0, -30.0, -30.0], requires_grad=True)
        >>> estimator = AdaptiveIMLE(rate=0.01)
        >>> z = estimator.sample(logits, 2)
        >>> z.backward(torch.tensor([1.0, 0.0, -1.0, 0.0]))
        >>> (logits.grad != 0).sum(), estimator.alpha  # two entries, more than wanted
        (tensor(2), tensor(0.9900))
    """

    rate: float
    alpha: Tensor
    average: Tensor

    def __init__(
        self,
        noise: str = "sum_of_gamma",
        temperature: float | Tensor = 1.0,
        terms: int = 10,
        start: float = 1.0,
        wanted: float = 1.0,
        rate: float = 1e-3,
        decay: float = 0.9,
    ) -> None:
        super().__init__(1.0, noise, temperature, terms)
        self._positive("rate", rate)
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay!r}")
        self.wanted, self.decay = wanted, decay
        self.register_buffer("alpha", torch.tensor(float(start)))
        self.register_buffer("average", torch.tensor(float(wanted)))

    def _strength_for(self, rows: Tensor, grad: Tensor) -> Tensor:
        finite = torch.where(rows.isfinite(), rows, 0)
        ratio = finite.norm(dim=-1, keepdim=True) / grad.norm(dim=-1, keepdim=True)
        # Logits of zero, or a gradient of zero, set no scale.
        ratio = torch.where((ratio > 0) & ratio.isfinite(), ratio, 1)
        # Without a step there is no difference to learn from: the smallest one then.
        return self.alpha.clamp_min(self.rate).to(rows) * ratio

    def _learn(self, estimate: Tensor) -> None:
        if not estimate.numel():
            return
        density = (estimate != 0).sum(-1).float().mean()
        self.average.mul_(self.decay).add_((1 - self.decay) * density.to(self.average))
        self.alpha.add_(torch.where(self.average < self.wanted, self.rate, -self.rate))
        self.alpha.clamp_(min=0)


class _Target(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, noise: Tensor, k: Any, strength_for: Callable[..., Tensor]
    ) -> Tensor:
        z = functional.mode(rows + noise, k)
        ctx.save_for_backward(rows, noise, z)
        ctx.k, ctx.strength_for = k, strength_for
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, noise, z = ctx.saved_tensors
        strength = ctx.strength_for(rows, grad)
        estimate = z - functional.mode(rows - strength * grad + noise, ctx.k)
        ctx.strength_for.__self__._learn(estimate)
        return estimate / strength, None, None, None
