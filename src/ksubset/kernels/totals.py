"""Numbers of several rows with one total: a binary tree of their distributions.

Leaves are the distributions of independent numbers, each node that of the sum of its two children.
Given the total, what a child contributes is known from the top down: exactly, as probabilities of
all its values or as a sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.kernels import random

_PURPOSE = 3  # of the random keys


def levels(chances: Tensor) -> list[Tensor]:
    """From (batch, rows, sizes) leaves to the root (batch, 1, totals)."""
    found = [chances]
    while found[-1].shape[1] > 1:
        last = found[-1]
        if last.shape[1] % 2:
            nothing = torch.zeros_like(last[:, :1])
            nothing[..., 0] = 1
            last = found[-1] = torch.cat([last, nothing], 1)
        found.append(_convolved(last[:, 0::2], last[:, 1::2]))
    return found


def _convolved(a: Tensor, b: Tensor) -> Tensor:
    """The distribution of a sum: direct for short ones, which have no rounding but their own."""
    width = a.shape[-1] + b.shape[-1] - 1
    if a.shape[-1] <= 32:
        padded = torch.nn.functional.pad(b, (a.shape[-1] - 1, a.shape[-1] - 1))
        return (padded.unfold(-1, a.shape[-1], 1) * a.flip(-1).unsqueeze(-2)).sum(-1)
    length = 1 << (width - 1).bit_length()
    product = torch.fft.rfft(a, length) * torch.fft.rfft(b, length)
    return torch.fft.irfft(product, length)[..., :width].clamp_min(0)


def _correlated(above: Tensor, other: Tensor, width: int) -> Tensor:
    """sum_y above(x + y) other(y) for x = 0 ... width - 1."""
    return _convolved(above, other.flip(-1))[..., other.shape[-1] - 1 :][..., :width]


def outside(found: list[Tensor], total: Tensor) -> Tensor:
    """P(the others sum to total - j) for every leaf and j, (batch, rows, sizes), up to a factor for
    each leaf; total is (batch,)."""
    root = found[-1]
    above = torch.zeros_like(root).scatter(-1, total.reshape(-1, 1, 1), 1.0)
    for below in reversed(found[:-1]):
        left, right = below[:, 0::2], below[:, 1::2]
        width = below.shape[-1]
        above = above[:, : left.shape[1]]
        pair = _correlated(above, right, width), _correlated(above, left, width)
        above = torch.stack(pair, 2).flatten(1, 2)
        most = above.detach().amax(-1, keepdim=True)
        above = above / torch.where(most > 0, most, 1)
    return above


def sample(found: list[Tensor], total: Tensor, seeds: Tensor) -> Tensor:
    """Leaves that sum to total (samples, batch), for as many seeds: (samples, batch, rows)."""
    left = total.unsqueeze(-1)
    keys, start = random.keys(seeds, _PURPOSE), 0
    for below in reversed(found[:-1]):
        one, other = below[:, 0::2], below[:, 1::2]
        left = left[..., : one.shape[1]]  # less what was there for the sake of pairs
        value = torch.arange(one.shape[-1], device=total.device)
        rest = left.unsqueeze(-1) - value  # (samples, batch, nodes, values)
        inside = (rest >= 0) & (rest < other.shape[-1])
        at = rest.clamp(0, other.shape[-1] - 1)
        weights = one * other.expand(*left.shape, -1).gather(-1, at) * inside
        reached = weights.cumsum(-1)
        noise = random.uniform(keys, start, left.shape[-1], reached.dtype).unsqueeze(-1)
        start += left.shape[-1]
        goal = noise * reached[..., -1:]
        # The last value that has a probability, if rounding leads beyond it.
        last = torch.where(weights > 0, value, 0).amax(-1, keepdim=True)
        first = torch.searchsorted(reached, goal, right=True).minimum(last)
        left = torch.cat([first, left.unsqueeze(-1) - first], -1).flatten(-2)
    return left
