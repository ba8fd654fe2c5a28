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
    the k-subset law unless k = 1. Backward, with :math:`s = \mathrm{softmax}((\theta + G) / t)`,
    :math:`\frac{k}{t} (\mathrm{diag}(s) - s s^\top)\, g`.

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
        count = k.unsqueeze(-1) if isinstance(k, Tensor) else k
        soft = torch.softmax(keys / like(self.temperature, keys), -1) * count
        return functional.mode(keys.detach(), k) + only_gradient(soft)


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
