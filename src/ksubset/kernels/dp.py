"""The paper's dynamic programme (algorithms 1 and 2, and the entropy's), O(n k).

``prefix[i, j]`` is the jet of "j heads among the first i coins"; ``suffix[j]`` that of "k heads
in all, given j among the first i". Tilted linear space, one step per item. Best for small k.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.kernels import jets, random
from ksubset.kernels.coins import Coins
from ksubset.kernels.jets import Reduced


def _prefixes(tails: Tensor, heads: Tensor, width: int) -> Tensor:
    """(n + 1, order, rows, width), from jets of the coins (order, rows, n)."""
    order, rows, n = tails.shape
    table = tails.new_zeros(n + 1, order, rows, width)
    table[0, 0, :, 0] = 1
    for i in range(n):
        table[i + 1] = jets.multiply(table[i], tails[:, :, i, None])
        table[i + 1, ..., 1:] += jets.multiply(table[i, ..., :-1], heads[:, :, i, None])
    return table


def pairs(reduced: Reduced, *directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Jets of {heads at i and S = k}, {tails at i and S = k}, (order, rows, n), and P(S = k)."""
    tails, heads = reduced.coins(*directions)
    table = _prefixes(tails, heads, reduced.width)
    chosen, not_chosen = torch.empty_like(tails), torch.empty_like(tails)
    suffix = torch.zeros_like(table[0])
    suffix[0].scatter_(1, reduced.k.unsqueeze(-1), 1)
    for i in reversed(range(tails.shape[-1])):
        stay = jets.multiply(suffix, tails[:, :, i, None])
        step = jets.multiply(suffix[..., 1:], heads[:, :, i, None])
        not_chosen[:, :, i] = jets.multiply(table[i], stay).sum(-1)
        chosen[:, :, i] = jets.multiply(table[i, ..., :-1], step).sum(-1)
        suffix = stay
        suffix[..., :-1] += step
    mass = table[-1, 0].gather(1, reduced.k.unsqueeze(-1)).squeeze(-1)
    return chosen, not_chosen, mass


def sample(coins: Coins, seeds: Tensor) -> Tensor:
    """k-hot samples (samples, rows, n) for seeds (samples, rows): the last coin first, each
    with its probability given how many heads are still to come."""
    reduced = Reduced(coins)
    tails, heads = reduced.coins()
    table = _prefixes(tails, heads, reduced.width)[:, 0]
    samples, n = seeds.shape[0], coins.t.shape[-1]
    noise = random.uniform(random.keys(seeds), 0, n, coins.t.dtype)
    left = reduced.k.expand(samples, -1).T  # heads still to come, (rows, samples)
    drawn = torch.empty(samples, *coins.t.shape, dtype=torch.bool, device=coins.t.device)
    for i in reversed(range(n)):
        with_heads = heads[0, :, i, None] * table[i].gather(1, (left - 1).clamp_min(0))
        with_tails = tails[0, :, i, None] * table[i].gather(1, left)
        # The state reached is possible, so at least one way is: rounding must not pick the other.
        take = noise[..., i].T * (with_heads + with_tails) < with_heads
        take = (take | (with_tails == 0)) & (with_heads > 0) & (left > 0)
        drawn[..., i] = take.T
        left = left - take.to(left.dtype)
    return reduced.restore(drawn)


def entropy(coins: Coins) -> Tensor:
    """The paper's entropy recurrence, (rows,): with P(i) the chance that coin i shows heads
    given j heads among the first i, H[i, j] = H_b(P) + P H[i-1, j-1] + (1 - P) H[i-1, j]."""
    reduced = Reduced(coins)
    p, q = reduced.p, reduced.q
    mass = p.new_zeros(p.shape[0], reduced.width)
    mass[:, 0] = 1
    total = torch.zeros_like(mass)
    nothing = torch.zeros_like(mass[:, :1])
    for i in range(p.shape[1]):
        heads = torch.cat([nothing, mass[:, :-1]], 1) * p[:, i, None]
        tails = mass * q[:, i, None]
        mass = heads + tails
        # 0/0 where j heads among i coins are impossible; the state is never visited.
        possible = mass != 0
        taken = torch.where(possible, heads / mass, 0)
        left = torch.where(possible, tails / mass, 0)
        before = torch.cat([nothing, total[:, :-1]], 1)
        coin = torch.special.entr(taken) + torch.special.entr(left)
        total = coin + taken * before + left * total
    return total.gather(1, reduced.k.unsqueeze(-1)).squeeze(-1)
