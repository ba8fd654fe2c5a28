"""Relaxed samples: SoftSub (Xie and Ermon, IJCAI 2019) and that of L2X (Chen, Song, Wainwright and
Jordan, ICML 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import RowWise, like, only_gradient
from ksubset.estimators.noise import gumbel


class SoftSub(RowWise):
    r"""Gumbel keys and k successive softmaxes, each with what was taken before pushed down.

    Forward :math:`\sum_{j=1}^k a_j` with :math:`a_j = \mathrm{softmax}(r_j / t)`,
    :math:`r_1 = \theta + G` of independent Gumbel variables and
    :math:`r_{j+1} = r_j + \log(1 - a_j)`; backward its derivative.

    Logits (..., n) become samples (*sample_shape, ..., n) that sum to k.

    Args:
        temperature: t, of the softmaxes; they tend to a Gumbel top-k sample as it falls. A number,
            or a tensor that broadcasts over the rows (..., 1).
        hard: return the k largest as a k-hot vector, with the gradient of the relaxed one.

    Examples:
        >>> from ksubset.estimators import SoftSub
        >>> logits = torch.zeros(3, 5, requires_grad=True)
        >>> z = SoftSub(temperature=0.5).sample(logits, 2)
        >>> z.detach().sum(-1).round(decimals=3)
        tensor([2., 2., 2.])
        >>> bool(((z > 0.01) & (z < 0.99)).any())  # relaxed
        True
        >>> SoftSub(hard=True).sample(logits, 2).sort().values[0]
        tensor([0., 0., 0., 1., 1.], grad_fn=<SelectBackward0>)
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 0.5, hard: bool = False) -> None:
        super().__init__()
        self._positive("temperature", temperature)
        self.hard = hard

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        keys = rows + gumbel(rows, generator)
        # Nothing, but with a gradient, for k = 0.
        relaxed = 0 * torch.where(rows.isfinite(), rows, 0)
        taken = torch.zeros_like(keys)
        tiny = torch.finfo(keys.dtype).tiny
        for step in range(_most(k)):
            keys = keys + torch.log((1 - taken).clamp_min(tiny))
            taken = torch.softmax(keys / like(self.temperature, keys), -1)
            relaxed = relaxed + taken * _counts(k, step)
        return _hardened(relaxed, k, rows) if self.hard else relaxed


class L2X(RowWise):
    r"""The maximum, item by item, of k independent Gumbel-softmax samples: in the limit at most
    k-hot.

    Forward :math:`z_i = \max_{j \le k} \mathrm{softmax}((\theta + G_j) / t)_i` with independent
    Gumbel noise :math:`G_1, \dots, G_k`; backward its derivative.

    Logits (..., n) become samples (*sample_shape, ..., n) that sum to k or less.

    Args:
        temperature: t, of the softmaxes: a number, or a tensor that broadcasts over the rows
            (..., 1).
        hard: return the k largest as a k-hot vector, with the gradient of the relaxed one.

    Examples:
        >>> from ksubset.estimators import L2X
        >>> logits = torch.zeros(100, 5, requires_grad=True)
        >>> sizes = L2X(temperature=0.1).sample(logits, 2).sum(-1)
        >>> bool((sizes < 2.01).all()), bool((sizes < 1.1).any())  # one item twice
        (True, True)
        >>> L2X(hard=True).sample(logits, 2).sort().values[0]
        tensor([0., 0., 0., 1., 1.], grad_fn=<SelectBackward0>)
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 0.1, hard: bool = False) -> None:
        super().__init__()
        self._positive("temperature", temperature)
        self.hard = hard

    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        many = rows.expand(max(_most(k), 1), *rows.shape)
        keys = many + gumbel(many, generator)
        soft = torch.softmax(keys / like(self.temperature, keys), -1)
        if isinstance(k, Tensor):
            step = torch.arange(len(many), device=rows.device)
            step = step.reshape(-1, *(1,) * (rows.dim() - 1))
            soft = soft * (step < k.to(rows.device)).unsqueeze(-1)
        elif k == 0:
            soft = soft * 0
        relaxed = soft.amax(0)
        return _hardened(relaxed, k, rows) if self.hard else relaxed


def _most(k: int | Tensor) -> int:
    return int(k.max()) if isinstance(k, Tensor) else k


def _counts(k: int | Tensor, step: int) -> Tensor | float:
    """Whether a row takes another item."""
    return (k > step).unsqueeze(-1) if isinstance(k, Tensor) else 1.0


def _hardened(relaxed: Tensor, k: int | Tensor, rows: Tensor) -> Tensor:
    # What is forbidden is not to be chosen in place of an allowed item that got nothing.
    scores = torch.where(rows == -torch.inf, -torch.inf, relaxed.detach())
    return functional.mode(scores, k) + only_gradient(relaxed)
