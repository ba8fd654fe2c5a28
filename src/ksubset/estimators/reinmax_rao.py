"""ReinMax-Rao (Wang and Bui, 2026): ReinMax with less variance, for one item of n."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import check_sample_shape
from ksubset.estimators.base import RowWise, like, only_gradient
from ksubset.estimators.noise import gumbel


class ReinMaxRao(RowWise):
    r"""ReinMax with a Rao-Blackwellised Gumbel-softmax in place of its first Jacobian. For k = 1
    only.

    With :math:`\pi = \mathrm{softmax}(\theta)`, a one-hot sample z of it,
    :math:`\pi' = (\pi + z) / 2` and :math:`J(p) = \mathrm{diag}(p) - p p^\top`, ReinMax is
    :math:`2 J(\pi') g - \tfrac12 J(\pi) g`. Here the mean of
    :math:`\tfrac1t J(\mathrm{softmax}((\log \pi' + G) / t))` takes the place of :math:`J(\pi')`. It
    is taken over Gumbel noise G, given that z is at the largest entry of :math:`\log \pi' + G`.

    Logits (..., n) become one-hot samples (*sample_shape, ..., n).

    Args:
        temperature: t: a number, or a tensor that broadcasts over the rows (..., 1).
        repeats: how many draws of G the mean is taken over.

    Examples:
        >>> from ksubset.estimators import ReinMaxRao
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = ReinMaxRao().sample(logits, 1)
        >>> z.backward(z.detach())
        >>> bool(logits.grad[z > 0] > 0), bool(logits.grad.sum().abs() < 1e-6)
        (True, True)
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0, repeats: int = 100) -> None:
        super().__init__()
        self._positive("temperature", temperature)
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise ValueError(f"repeats must be an int of at least 1, got {repeats!r}")
        self.repeats = repeats

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        sample_shape = check_sample_shape(sample_shape)
        if not bool((k == 1).all() if isinstance(k, Tensor) else k == 1):
            raise ValueError(f"k must be 1 for ReinMaxRao, got {k!r}")
        return super().sample(logits, k, sample_shape, mask=mask, generator=generator)

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        pi = functional.marginals(rows.detach(), 1)  # the softmax, of infinite logits too
        keys = rows.detach() + gumbel(rows, generator)
        z = torch.zeros_like(keys).scatter_(-1, keys.argmax(-1, keepdim=True), 1.0)
        temperature = like(self.temperature, rows)
        given_z = _keys_given_largest((pi + z) / 2, z, self.repeats, generator)
        soft = torch.softmax(given_z / temperature, -1)
        v = only_gradient(torch.where(rows.isfinite(), rows, 0))
        # The Jacobians are symmetric: what multiplies the gradient may multiply v instead.
        return z + 2 * (_jacobian(soft, v).mean(0) / temperature) - 0.5 * _jacobian(pi, v)


def _jacobian(p: Tensor, v: Tensor) -> Tensor:
    """(diag(p) - p p^T) v."""
    return p * (v - (p * v).sum(-1, keepdim=True))


def _keys_given_largest(
    p: Tensor, z: Tensor, repeats: int, generator: torch.Generator | None
) -> Tensor:
    """log p + G of Gumbel noise G, given that z is at the largest: (repeats, ..., n).

    The largest is a Gumbel variable; exp(-key) of another item is exponential with rate p_i, moved
    to begin where the largest is.
    """
    exponential = torch.exp(-gumbel(p.expand(repeats, *p.shape), generator))
    first = (exponential * z).sum(-1, keepdim=True)
    return -torch.log(first + (1 - z) * exponential / p)
