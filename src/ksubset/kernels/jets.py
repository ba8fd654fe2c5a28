"""Truncated polynomials in up to two infinitesimals: one programme, three uses.

The generating function of the coins' sum is the product of (q_i + p_i X). Weighting heads
and tails of coin i by exp(e u_i (z_i - p_i)) and dropping e^2 makes the same product carry
E[u . (z - p)] beside every probability; two infinitesimals carry the second moments too. A
dynamic programme over numbers thus gives marginals, over pairs covariance products, over
quadruples third cumulants.

A jet is a tensor whose leading axis holds the coefficients of 1, e1, e2, e1 e2 (1, 2 or 4 of
them).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ksubset.kernels.coins import Coins

# (a, b, c): coefficient c of a product collects coefficient a times coefficient b.
PRODUCTS = {
    1: ((0, 0, 0),),
    2: ((0, 0, 0), (0, 1, 1), (1, 0, 1)),
    4: (
        *((0, 0, 0), (0, 1, 1), (1, 0, 1), (0, 2, 2), (2, 0, 2)),
        *((0, 3, 3), (3, 0, 3), (1, 2, 3), (2, 1, 3)),
    ),
}


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Product of two jets, elementwise in the other axes."""
    order = a.shape[0]
    if order == 1:
        return a * b
    parts: list[Tensor | None] = [None] * order
    for left, right, target in PRODUCTS[order]:
        product, total = a[left] * b[right], parts[target]
        parts[target] = product if total is None else total + product
    return torch.stack([part for part in parts if part is not None])


def of_coins(p: Tensor, q: Tensor, *directions: Tensor) -> tuple[Tensor, Tensor]:
    """Jets (1, 2 or 4, rows, n) of the tails and the heads of coins.

    ``directions`` are the u (and v) of the infinitesimals, centred: heads weigh
    p (1 + e u q), tails q (1 - e u p).
    """
    tails, heads = [q], [p]
    for u in directions:
        tails, heads = (
            [*tails, *(-part * u * p for part in tails)],
            [*heads, *(part * u * q for part in heads)],
        )
    return torch.stack(tails), torch.stack(heads)


class Reduced:
    """The coins of a row that can fall both ways, named so that at most half must be heads.

    Forced and forbidden items become coins that never show heads; where more than half of
    the free items are wanted, heads and tails change roles. A table over 0 ... k heads is then
    never wider than n/2 + 1.
    """

    def __init__(self, coins: Coins) -> None:
        free = coins.t.isfinite()
        forced = coins.t == torch.inf
        count = free.sum(-1)
        wanted = (coins.k - forced.sum(-1)).clamp(min=0).minimum(count)
        self.swapped = wanted > count - wanted
        self.k = torch.where(self.swapped, count - wanted, wanted)
        swapped = self.swapped.unsqueeze(-1)
        self.heads_are_rarer = swapped == coins.up
        self.p = torch.where(free, torch.where(swapped, coins.q, coins.p), 0)
        self.q = torch.where(free, torch.where(swapped, coins.p, coins.q), 1)
        # A bad row must not look good.
        self.p = torch.where(coins.t.isnan(), torch.nan, self.p)
        self.forced = forced
        self.free = free
        self.width = int(self.k.amax()) + 1 if self.k.numel() else 1
        # p + q is 1 only up to rounding, and there are n of them: what a product of n
        # factors gains or loses by that, to be taken out of log P(S = k).
        self.log_rounding = ((self.q - 1) + self.p).sum(-1)

    def coins(self, *directions: Tensor) -> tuple[Tensor, Tensor]:
        """Jets of tails and heads. Swapping both sides changes no covariance, and the sign of
        third cumulants."""
        return of_coins(self.p, self.q, *directions)

    def rarer(self, chosen: Tensor, not_chosen: Tensor) -> Tensor:
        """P(rarer side | S = k) of the original coins from the weights of heads and tails;
        coins that cannot fall both ways never show it."""
        rarer = torch.where(self.heads_are_rarer, chosen, not_chosen) / (chosen + not_chosen)
        return torch.where(self.free | self.p.isnan(), rarer, 0).clamp(0, 1)

    def restore(self, drawn: Tensor) -> Tensor:
        """k-hot vectors of the original items from heads of the reduced coins, any of them
        with the same trailing axes (rows, n)."""
        chosen = torch.where(self.free, drawn.bool() ^ self.swapped.unsqueeze(-1), self.forced)
        return chosen.to(self.p.dtype).masked_fill(self.p.isnan(), torch.nan)


def cumulants(chosen: Tensor, not_chosen: Tensor, swapped: Tensor) -> Tensor:
    """The first row of cumulants of z_i from the jets of {z_i = 1} and {z_i = 0}.

    ``chosen`` and ``not_chosen`` are (2 or 4, rows, n) jets whose sum, the jet of P(S = k), is
    the same for every i up to rounding. With E[.] their ratio to its leading coefficient, the
    covariance of z_i and U is (1 - mu_i) E[z_i U] - mu_i E[(1 - z_i) U], and likewise for
    third cumulants with U V centred.
    """
    total = chosen[0] + not_chosen[0]
    mu, rest = chosen[0] / total, not_chosen[0] / total
    if chosen.shape[0] == 2:
        return (rest * chosen[1] - mu * not_chosen[1]) / total
    mean_u, mean_v = (chosen[1] + not_chosen[1]) / total, (chosen[2] + not_chosen[2]) / total

    def centred(jet: Tensor) -> Tensor:
        return jet[3] - mean_u * jet[2] - mean_v * jet[1] + mean_u * mean_v * jet[0]

    third = (rest * centred(chosen) - mu * centred(not_chosen)) / total
    return torch.where(swapped.unsqueeze(-1), -third, third)


# How a method finds, for directions of infinitesimals, the jets of {heads at i and S = k} and
# {tails at i and S = k}, (order, rows, n), and P(S = k), (rows,).
Pairs = Callable[..., tuple[Tensor, Tensor, Tensor]]


def infer(pairs: Pairs, coins: Coins) -> tuple[Tensor, Tensor]:
    """log P(S = k), (rows,), and P(rarer side | S = k) of every coin, (rows, n)."""
    reduced = Reduced(coins)
    chosen, not_chosen, mass = pairs(reduced)
    return mass.log() - reduced.log_rounding, reduced.rarer(chosen[0], not_chosen[0])


def cumulant_product(pairs: Pairs, coins: Coins, *directions: Tensor) -> Tensor:
    """Cov v for one direction, the product with the third cumulants for two: (rows, n)."""
    reduced = Reduced(coins)
    chosen, not_chosen, _ = pairs(reduced, *(coins.centre(v) for v in directions))
    return cumulants(chosen, not_chosen, reduced.swapped)
