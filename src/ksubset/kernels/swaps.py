"""Products with the swap plan: sum_ij r_ij(z) (e_i - e_j)(v_i - v_j) / 2 over swaps of a chosen
item i for an item j that is not chosen (docs/swaps.md).

A plan says how often z swaps i for j. All plans have the same flows: out of a chosen item
1 - mu_i, into another one mu_j. They differ in who is exchanged for whom.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.kernels import tree
from ksubset.kernels.coins import Coins, widest
from ksubset.kernels.jets import Reduced


def flows(coins: Coins, rarer: Tensor, z: Tensor) -> Tensor:
    """z - mu, with all digits where z is likely: (samples, rows, n). The flow out of a chosen item,
    minus that into another one.

    Args:
        coins: tilted.
        rarer: P(the coin shows its rarer side | S = k), (rows, n).
        z: k-hot (samples, rows, n).
    """
    chosen = z > 0.5
    flow = torch.where(chosen ^ coins.up, 1 - rarer, rarer)
    flow = torch.where(coins.pq == 0, 0, flow)
    flow = torch.where(coins.pq.isnan(), torch.nan, flow)  # a row that admits no sample
    return torch.where(chosen, flow, -flow)


def product_plan(deviations: Tensor, v: Tensor) -> Tensor:
    """With r_ij = (1 - mu_i) mu_j / Z, Z the total flow: (..., n).

    Args:
        deviations: z - mu, (..., n).
        v: (..., n).
    """
    # What an item without a flow has for v may be infinite.
    v = torch.where(deviations == 0, 0, v)
    # Less their mean, which changes nothing, large values keep their digits.
    v = v - _mean(deviations.abs(), v)
    out, into = deviations.clamp(min=0), (-deviations).clamp(min=0)
    swapped_for = torch.where(deviations > 0, _mean(into, v), _mean(out, v))
    return 0.5 * deviations.abs() * (v - swapped_for)


def second_order(covariance: Tensor, deviations: Tensor, v: Tensor) -> Tensor:
    """ReinMax's (Cov v + (z - mu) (z - mu) . v) / 2, added up over samples: (rows, n).

    Args:
        covariance: Cov times the sum of v over samples, (rows, n).
        deviations: z - mu, (samples, rows, n).
        v: (samples, rows, n).
    """
    if len(v) == 1:
        deviations, v = deviations[0], v[0]
    along = (deviations * torch.where(deviations == 0, 0, v)).sum(-1, keepdim=True)
    if deviations.dim() == 2:
        return torch.addcmul(covariance, deviations, along).mul_(0.5)
    return (covariance + (deviations * along).sum(0)) * 0.5


def exact_plan(deviations: Tensor, tilted: Tensor, k: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """With the rates of the theorem: (rows, n).

    Args:
        deviations: z - mu, (rows, n).
        tilted: (rows, n).
        k: (rows,).
        z: k-hot (rows, n).
        v: (rows, n).
    """
    v = torch.where(deviations == 0, 0, v)
    return 0.5 * (deviations.abs() * v - exchange(tilted, k, z, v))


def sparse_product_plan(deviations: Tensor, v: Tensor) -> Tensor:
    """The transpose of sum_ij r_ij (e_i - e_j) v_i, which asks for v at chosen items only: zero
    at all others, (..., n)."""
    out, into = deviations.clamp(min=0), (-deviations).clamp(min=0)
    return out * (v - _mean(into, v))


def _mean(weights: Tensor, v: Tensor) -> Tensor:
    """The weighted mean of v over items, (..., 1); 0 where all weights are 0."""
    total = weights.sum(-1, keepdim=True)
    mean = (weights * v).sum(-1, keepdim=True) / torch.where(total > 0, total, 1)
    return torch.where(total > 0, mean, 0)


def exchange(tilted: Tensor, k: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """sum_j r_ij v_j at chosen items i and sum_i r_ij v_i at items j that are not, (rows, n), with
    the rates of the theorem: those of ``oracle.swap_rates``.

    In coins p, q that have k heads on average, r_ij is p_j q_i / P(S = k) times the sum over s of
    E_{k-1-s}(z without i) E_s(rest without j) / (s + 1), with E_m(A) the probability of m heads
    among the coins of A. Sums over items without one of them are derivatives of products over all
    of them: one direction is carried up a product tree of each side, its weights go down the other.
    O(nk) work, O(log n) depth, in the widest type.

    Args:
        tilted: (rows, n).
        k: (rows,).
        z: k-hot (rows, n).
        v: (rows, n).
    """
    coins = Reduced(Coins.from_tilted(tilted.to(widest(tilted)), k))
    p, q, v = coins.p, coins.q, v.to(coins.p.dtype)
    # Where most items are chosen, those left out are counted: the same rates.
    chosen = ((z > 0.5) ^ coins.swapped.unsqueeze(-1)) & coins.free
    other = ~chosen & coins.free
    kept = _side(torch.where(chosen, q, 1), torch.where(chosen, p, 0), chosen * q * v, 0)
    rest = _side(torch.where(other, q, 1), torch.where(other, p, 0), other * p * v, 1)
    kept_levels, rest_levels = (tree.insides(*side, coins.width) for side in (kept, rest))

    size = torch.arange(coins.width, device=tilted.device)
    mirrored = coins.k.unsqueeze(-1) - size  # of m heads on one side, the heads on the other
    index = mirrored.clamp(0, coins.width - 1)

    def facing(levels: list[Tensor], order: int) -> Tensor:
        top = levels[-1][order, :, 0]
        top = torch.nn.functional.pad(top, (0, coins.width - top.shape[-1]))
        return torch.where(mirrored >= 0, top.gather(1, index), 0)

    mass = (facing(rest_levels, 0) * _padded(kept_levels[-1][0, :, 0], coins.width)).sum(-1)
    # Of a pair (k - 1 - s heads kept, s + 1 among the rest) the share is 1 / (s + 1).
    for_kept = torch.where(mirrored > 0, facing(rest_levels, 1) / mirrored.clamp(min=1), 0)
    for_rest = torch.where(size > 0, facing(kept_levels, 1) / size.clamp(min=1), 0)
    inside = _outside(kept_levels, for_kept, p.shape[-1])[..., 0]
    outside = _outside(rest_levels, for_rest, p.shape[-1])[..., 1]
    moved = torch.where(chosen, q * inside, torch.where(other, p * outside, 0))
    found = moved / torch.where(mass == 0, 1, mass).unsqueeze(-1)
    return found.to(tilted.dtype)


def _side(tails: Tensor, heads: Tensor, direction: Tensor, where: int) -> tuple[Tensor, Tensor]:
    """Jets (2, rows, n) of tails and heads; the direction is that of tails (0) or heads (1)."""
    zero = torch.zeros_like(direction)
    parts = (direction, zero) if where == 0 else (zero, direction)
    return torch.stack([tails, parts[0]]), torch.stack([heads, parts[1]])


def _padded(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def _outside(levels: list[Tensor], top: Tensor, n: int) -> Tensor:
    """For every item (rows, n, 2) the derivatives of sum_m top_m E_m in its tails and heads."""
    values = [level[:1] for level in levels]
    found = tree.outsides(values, top[None, :, None, : values[-1].shape[-1]])
    return torch.nn.functional.pad(found, (0, 2 - found.shape[-1]))[0, :, :n]
