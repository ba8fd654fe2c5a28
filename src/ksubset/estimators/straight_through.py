"""Straight-through estimators: a hard sample forward, the gradient of something smooth backward."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import RowWise, like, only_gradient
from ksubset.estimators.noise import gumbel


class StraightThroughGumbel(RowWise):
    r"""Gumbel top-k forward, k times the softmax of the perturbed logits backward; for k = 1 this
    is the straight-through Gumbel-softmax estimator (Jang, Gu and Poole, ICLR 2017).

    Forward the k largest of :math:`\theta + G`, with independent Gumbel noise G: not a sample of
    the k-subset distribution unless k = 1. Backward
    :math:`\frac{k}{t} (\mathrm{diag}(s) - s s^\top)\, g`, with
    :math:`s = \mathrm{softmax}((\theta + G) / t)`.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        temperature: t, of the softmax: a number, or a tensor that broadcasts over the rows
            (..., 1).

    Examples:
        >>> from ksubset.estimators import StraightThroughGumbel
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = StraightThroughGumbel(temperature=0.5).sample(logits, 2)
        >>> z.sort().values
        tensor([0., 0., 1., 1.], grad_fn=<SortBackward0>)
        >>> z.backward(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        >>> bool(logits.grad[0] > 0), bool(logits.grad.sum().abs() < 1e-6)
        (True, True)
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0) -> None:
        super().__init__()
        self._positive("temperature", temperature)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        keys = rows + gumbel(rows, generator)
        soft = _softmax(keys / like(self.temperature, keys))
        return k_largest(keys.detach(), k) + only_gradient(soft * _column(k))


class DecoupledStraightThrough(RowWise):
    r"""Straight-through Gumbel-softmax with one temperature for the forward pass and another for
    the backward pass (Shah, Yan, Mozer and Liu, 2024, for k = 1).

    Forward the k largest of :math:`\theta / t_f + G`, with independent Gumbel noise G. Backward
    :math:`\frac{k}{t_b} (\mathrm{diag}(s) - s s^\top)\, g`, with the same noise in
    :math:`s = \mathrm{softmax}(\theta / t_b + G)`. A high forward temperature explores; a high
    backward temperature spreads the gradient over more items.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Args:
        forward_temperature: :math:`t_f`: a number, or a tensor that broadcasts over the rows
            (..., 1).
        backward_temperature: :math:`t_b`, likewise.

    Examples:
        >>> from ksubset.estimators import DecoupledStraightThrough
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = DecoupledStraightThrough(0.5, 2.0).sample(logits, 2)
        >>> z.sort().values
        tensor([0., 0., 1., 1.], grad_fn=<SortBackward0>)
    """

    forward_temperature: float | Tensor
    backward_temperature: float | Tensor

    def __init__(
        self,
        forward_temperature: float | Tensor = 1.0,
        backward_temperature: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        self._positive("forward_temperature", forward_temperature)
        self._positive("backward_temperature", backward_temperature)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        noise = gumbel(rows, generator)
        keys = rows.detach() / like(self.forward_temperature, rows) + noise
        soft = _softmax(rows / like(self.backward_temperature, rows) + noise)
        return k_largest(keys, k) + only_gradient(soft * _column(k))


class StraightThrough(RowWise):
    r"""Exact samples forward, the gradient passed on to the logits as it is.

    Forward :math:`z \sim p_\theta`, backward :math:`g = \nabla f(z)`: cheap, and biased even for
    linear losses.

    Logits (..., n) become k-hot samples (*sample_shape, ..., n).

    Examples:
        >>> from ksubset.estimators import StraightThrough
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = StraightThrough().sample(logits, 2)
        >>> z.backward(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        >>> logits.grad
        tensor([1., 0., 0., 0.])
    """

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        # What is not finite has nothing to be passed on to.
        finite = torch.where(rows.isfinite(), rows, 0)
        return functional.sample(rows, k, generator=generator) + only_gradient(finite)


def _softmax(keys: Tensor) -> Tensor:
    """A forced item, at infinity, takes all of it, and leaves no gradient to the others."""
    return torch.softmax(keys.clamp(max=torch.finfo(keys.dtype).max), -1)


def k_largest(keys: Tensor, k: int | Tensor) -> Tensor:
    """k-hot (..., n) at the k largest keys; NaN where fewer are above -inf. Without ties, it is
    :func:`ksubset.mode`, which must sort for the sake of ties."""
    if isinstance(k, Tensor):
        return functional.mode(keys, k)
    largest = keys.topk(k, -1, sorted=False)
    ones = torch.where(largest.values > -torch.inf, 1.0, torch.nan).to(keys.dtype)
    return torch.zeros_like(keys).scatter_(-1, largest.indices, ones)


def _column(k: int | Tensor) -> int | Tensor:
    """k as a factor of the rows."""
    return k.unsqueeze(-1) if isinstance(k, Tensor) else k
