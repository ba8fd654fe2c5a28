"""SIMPLE and its two halves (Ahmed, Zeng, Niepert and Van den Broeck, ICLR 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ksubset import functional
from ksubset._arguments import check_sample_shape
from ksubset.estimators.base import Pathwise, RowWise, like
from ksubset.estimators.noise import gumbel
from ksubset.sizes import Sizes


class Simple(Pathwise):
    r"""Exact samples forward, the exact covariance product backward.

    Forward :math:`z \sim p_\theta`; backward, with :math:`g = \nabla f(z)`,
    :math:`\mathrm{Cov}(z)\, g`. The mean of the estimate is
    :math:`\mathrm{Cov}(z)\, \mathrm{E} \nabla f(z)`: exact for a loss linear in z, biased
    otherwise.

    A network behind the samples learns from what it sees, and sees noise: the mean of several
    exact samples has less of it, at the same gradient for the same g. One is the paper's; many
    approach :class:`AtMarginals`.

    Logits (..., n) become samples (*sample_shape, ..., n): k-hot, or means of k-hot vectors, which
    sum to k. For k there may be sizes (:mod:`ksubset.sizes`).

    Args:
        average: how many exact samples each one is the mean of.

    Examples:
        >>> from ksubset.estimators import Simple
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = Simple().sample(logits, 2)
        >>> z.backward(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        >>> logits.grad
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
        >>> Simple(average=16).sample(logits, 2).sum()
        tensor(2., grad_fn=<SumBackward0>)
    """

    def __init__(self, average: int = 1) -> None:
        super().__init__()
        if isinstance(average, bool) or not isinstance(average, int) or average < 1:
            raise ValueError(f"average must be an int of at least 1, got {average!r}")
        self.average = average

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor | Sizes,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        if self.average == 1:
            return functional.simple(logits, k, sample_shape, mask=mask, generator=generator)
        shape = (self.average, *check_sample_shape(sample_shape))
        return functional.simple(logits, k, shape, mask=mask, generator=generator).mean(0)


class SimpleForward(RowWise):
    r"""Exact samples only: :math:`(z(\theta) - z(\theta - \lambda g)) / \lambda` backward.

    Forward :math:`z(\theta) \sim p_\theta`; backward, with g the gradient at that sample, a second
    exact sample :math:`z(\theta - \lambda g)` of the logits that went down the gradient.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        strength: :math:`\lambda`, a number or a tensor that broadcasts over the rows (..., 1).
        common: draw both samples with the same random numbers.

    Examples:
        >>> from ksubset.estimators import SimpleForward
        >>> logits = torch.tensor([30.0, 30.0, -30.0, -30.0], requires_grad=True)
        >>> z = SimpleForward(strength=100.0).sample(logits, 2)
        >>> z.detach()  # with such logits all but certain
        tensor([1., 1., 0., 0.])
        >>> z.backward(torch.tensor([1.0, 0.0, -1.0, 0.0]))  # 0 costs, 2 pays
        >>> logits.grad  # the second sample has items 1 and 2
        tensor([ 0.0100,  0.0000, -0.0100,  0.0000])
    """

    strength: float | Tensor

    def __init__(self, strength: float | Tensor = 1.0, common: bool = False) -> None:
        super().__init__()
        self._positive("strength", strength)
        self.common = common

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        seeds = torch.randint(1 << 62, (2,), generator=generator, device=_device(generator))
        first, second = (int(seed) for seed in seeds)
        strength = like(self.strength, rows)
        return _Difference.apply(rows, k, strength, first, first if self.common else second)


class _Difference(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, k: Any, strength: Any, first: int, second: int) -> Tensor:
        z = functional.sample(rows, k, generator=_seeded(first))
        ctx.save_for_backward(rows, z)
        ctx.k, ctx.strength, ctx.second = k, strength, second
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, z = ctx.saved_tensors
        target = functional.sample(rows - ctx.strength * grad, ctx.k, generator=_seeded(ctx.second))
        return (z - target) / ctx.strength, None, None, None, None


class SimpleBackward(RowWise):
    r"""Perturb-and-MAP samples forward (Gumbel top-k, another distribution), exact marginals
    backward: :math:`(\mu(\theta) - \mu(\theta - \lambda g)) / \lambda`, or its limit
    :math:`\mathrm{Cov}(z)\, g`.

    Forward the k largest of :math:`\theta + G`, with independent Gumbel noise G. Logits (..., n)
    become k-hot samples (*sample_shape, ..., n).

    Args:
        strength: :math:`\lambda`, a number or a tensor that broadcasts over the rows (..., 1); None
            for the limit of a small one.

    Examples:
        >>> from ksubset.estimators import SimpleBackward
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = SimpleBackward().sample(logits, 2)
        >>> z.backward(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        >>> logits.grad
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """

    strength: float | Tensor | None

    def __init__(self, strength: float | Tensor | None = None) -> None:
        super().__init__()
        if strength is None:
            self.strength = None
        else:
            self._positive("strength", strength)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        z = functional.mode((rows + gumbel(rows, generator)).detach(), k)
        strength = None if self.strength is None else like(self.strength, rows)
        return _Marginals.apply(rows, z, k, strength)


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, z: Tensor, k: Any, strength: Any) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.k, ctx.strength = k, strength
        return z.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        if ctx.strength is None:
            return functional.covariance_product(rows, ctx.k, grad), None, None, None
        near = functional.marginals(rows, ctx.k)
        far = functional.marginals(rows - ctx.strength * grad, ctx.k)
        return (near - far) / ctx.strength, None, None, None


class AtMarginals(Pathwise):
    r"""The loss at the exact marginals, as if they were a sample: no noise at all.

    Forward :math:`\mu`, backward :math:`\mathrm{Cov}(z)\, \nabla f(\mu)`. For a quadratic loss the
    gradient differs from SIMPLE's mean by nothing, for others by how f bends.

    Logits (..., n) become marginals (*sample_shape, ..., n), the same for every sample; not k-hot,
    but they sum to k.

    Examples:
        >>> from ksubset.estimators import AtMarginals
        >>> AtMarginals().sample(torch.tensor([1.0, 0.0, 0.0, -1.0]), 2)
        tensor([0.7876, 0.5000, 0.5000, 0.2124])
    """

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor | Sizes,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        mu = functional.marginals(logits, k, mask=mask)
        return mu.expand(*check_sample_shape(sample_shape), *mu.shape)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _device(generator: torch.Generator | None) -> torch.device | str:
    return "cpu" if generator is None else generator.device
