"""The paper's divide and conquer: a balanced product tree of generating functions, depth
O(log n).

Going up, ``inside`` of a node is the jet polynomial of the number of heads below it. Going
down, ``outside[j]`` is the jet of "k heads in all, given j below this node". Samples come down
the same tree, each node dividing its heads between its two halves.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ksubset.kernels import jets, random
from ksubset.kernels.coins import Coins
from ksubset.kernels.jets import Reduced

# Polynomials up to this length are multiplied term by term, longer ones by FFT.
_DIRECT = 32


def _convolve(a: Tensor, b: Tensor) -> Tensor:
    """Products of polynomials along the last axis."""
    length = a.shape[-1] + b.shape[-1] - 1
    if min(a.shape[-1], b.shape[-1]) > _DIRECT:
        # Its rounding is relative to the largest coefficient, at every level: float64 where the
        # device has it.
        wide = a.dtype if a.device.type == "mps" else torch.float64
        transforms = torch.fft.rfft(a.to(wide), length) * torch.fft.rfft(b.to(wide), length)
        return torch.fft.irfft(transforms, length).to(a.dtype)
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    product = b.new_zeros(*b.shape[:-1], length)
    for i in range(a.shape[-1]):
        product[..., i : i + b.shape[-1]] += a[..., i, None] * b
    return product


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Products of jet polynomials (order, ..., length)."""
    order = a.shape[0]
    product = a.new_zeros(order, *a.shape[1:-1], a.shape[-1] + b.shape[-1] - 1)
    for left, right, target in jets.PRODUCTS[order]:
        product[target] += _convolve(a[left], b[right])
    return product


def insides(tails: Tensor, heads: Tensor, width: int) -> list[Tensor]:
    """Level by level from the leaves: (order, rows, nodes, length <= width)."""
    n = tails.shape[-1]
    missing = (1 << max(n - 1, 0).bit_length()) - n
    leaves = torch.stack([F.pad(tails, (0, missing)), F.pad(heads, (0, missing))], -1)
    leaves[0, :, n:, 0] = 1  # the padding shows tails
    levels = [leaves[..., :width]]
    while levels[-1].shape[2] > 1:
        below = levels[-1]
        levels.append(_multiply(below[:, :, 0::2], below[:, :, 1::2])[..., :width])
    return levels


def outsides(levels: list[Tensor], top: Tensor) -> Tensor:
    """The outside jets of the leaves, (order, rows, leaves, length of a leaf), from that of the
    root, (order, rows, 1, length)."""
    outside = top
    for below in reversed(levels[:-1]):
        length = below.shape[-1]
        # sum_i outside[j + i] sibling[i], a convolution with the sibling reversed
        halves = [
            _multiply(outside, sibling.flip(-1))[..., length - 1 : 2 * length - 1]
            for sibling in (below[:, :, 1::2], below[:, :, 0::2])
        ]
        outside = torch.stack(halves, 3).flatten(2, 3)
    return outside


def pairs(reduced: Reduced, *directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Jets of {heads at i and S = k}, {tails at i and S = k}, (order, rows, n), and P(S = k)."""
    tails, heads = reduced.coins(*directions)
    levels = insides(tails, heads, reduced.width)
    top = torch.zeros_like(levels[-1])
    top[0, :, 0].scatter_(1, reduced.k.unsqueeze(-1), 1)
    outside = F.pad(outsides(levels, top), (0, 1))[:, :, : tails.shape[-1]]
    mass = levels[-1][0, :, 0].gather(1, reduced.k.unsqueeze(-1)).squeeze(-1)
    return (
        jets.multiply(outside[..., 1], heads),
        jets.multiply(outside[..., 0], tails),
        mass,
    )


def sample(coins: Coins, seeds: Tensor) -> Tensor:
    """k-hot samples (samples, rows, n) for seeds (samples, rows)."""
    reduced = Reduced(coins)
    levels = [level[0] for level in insides(*reduced.coins(), reduced.width)]
    keys = random.keys(seeds)
    # How many heads a node can and must show: what rounding, in an FFT above all, must respect.
    most = [F.pad((reduced.p > 0).long(), (0, levels[0].shape[1] - reduced.p.shape[-1]))]
    least = [F.pad((reduced.q == 0).long(), (0, levels[0].shape[1] - reduced.p.shape[-1]))]
    for _ in levels[1:]:
        most.append(most[-1][:, 0::2] + most[-1][:, 1::2])
        least.append(least[-1][:, 0::2] + least[-1][:, 1::2])

    count = reduced.k.expand(seeds.shape[0], -1).unsqueeze(-1)  # (samples, rows, nodes)
    for below, high, low in zip(levels[-2::-1], most[-2::-1], least[-2::-1], strict=True):
        left, right = below[:, 0::2], below[:, 1::2]
        choice = torch.arange(below.shape[-1], device=count.device)
        other = count.unsqueeze(-1) - choice
        possible = (other >= 0) & (other < below.shape[-1])
        index = other.clamp(0, below.shape[-1] - 1)
        partner = right.expand(*count.shape, -1).gather(-1, index)
        first = torch.maximum(low[:, 0::2], count - high[:, 1::2])
        last = torch.minimum(high[:, 0::2], count - low[:, 1::2])
        possible &= (choice >= first.unsqueeze(-1)) & (choice <= last.unsqueeze(-1))
        weight = torch.where(possible, left * partner, 0).clamp_min(0)
        cumulative = weight.cumsum(-1)
        # Numbered as in a heap, the level of m nodes from m on.
        noise = random.uniform(keys, count.shape[-1], count.shape[-1], below.dtype)
        aim = (noise * cumulative[..., -1]).unsqueeze(-1)
        taken = (cumulative <= aim).sum(-1).minimum(last).maximum(first)
        count = torch.stack([taken, count - taken], -1).flatten(-2)
    return reduced.restore(count[..., : reduced.p.shape[-1]])
