"""Exact samples in O(n) expected time for any k: rejection by halves.

Split the coins into A and B; toss A freely, giving a heads; accept with probability
P_B(k - a) / max_m P_B(m), else toss again. What is left is the same problem for B with
k - a heads, of half the length. A is the half of smaller variance, row by row, so that two
thirds or so of the tosses are accepted wherever the large logits stand; P_B comes from the
spectral method. Loops are bounded; a row that runs out of tries is drawn by the product tree,
which is exact as well and independent of what was rejected.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ksubset._nodes import Precision
from ksubset.kernels import random, spectral, tree
from ksubset.kernels.coins import Coins, tilt

# Acceptance is about 0.7, so that one row in 10^30 comes this far.
_MOST_TRIES = 64
_FALLBACK = 1  # purpose of its random keys
_CACHED = 1 << 19  # items at a time: more of them leave a processor's cache, at half the speed

# Wider than for moments: P_B must be right also far from its mean, for what lies further out is
# rejected. Given S = k, B's count has at most 0.71 of its own deviation, so that 4.5 (6.5 in
# float64) of those leave out less than rounding's share of the distribution.
_PRECISIONS = {
    torch.float32: Precision(tail=40, decay=19, most=24),
    torch.float64: Precision(tail=85, decay=41, most=50),
}


class _Acceptance:
    """How likely a half B may take what A left to it."""

    def __init__(self, t: Tensor) -> None:
        mean = torch.sigmoid(t).sum(-1)
        self._centre = mean.round()
        coins = Coins.from_tilted(t, self._centre)
        self._reach = spectral.spectrum(coins, _PRECISIONS[t.dtype])
        low = torch.floor(coins.excess)
        # The mode of a sum of independent coins is the floor or the ceiling of its mean.
        self._most = torch.maximum(self._reach.mass(low), self._reach.mass(low + 1))
        self._mean = coins.excess
        self._least = (t == torch.inf).sum(-1)
        self._all = (t > -torch.inf).sum(-1)
        self._free = t.isfinite().sum(-1)

    def probability(self, count: Tensor) -> Tensor:
        """P_B(count) / max P_B for every row."""
        offset = count.to(self._centre.dtype) - self._centre
        possible = (count >= self._least) & (count <= self._all)
        # Further out the nodes alias, unless there are as many as counts.
        number = self._reach.number.squeeze(-1)
        possible &= (2 * (offset - self._mean).abs() < number) | (self._free < number)
        return torch.where(possible, self._reach.mass(offset) / self._most, 0)


def sample(coins: Coins, seeds: Tensor) -> Tensor:
    """k-hot samples (samples, rows, n) for seeds (samples, rows)."""
    most = seeds.shape[0] if coins.t.is_cuda else _CACHED // max(coins.t.numel(), 1)
    return torch.cat([_sample(coins, some) for some in seeds.split(max(most, 1))])


def _sample(coins: Coins, seeds: Tensor) -> Tensor:
    samples, (rows, n) = seeds.shape[0], coins.t.shape
    seeds = seeds.reshape(-1)
    keys = random.keys(seeds)
    t = coins.t.expand(samples, rows, n).reshape(-1, n)
    k = coins.k.expand(samples, rows).reshape(-1)
    bad = t.isnan().any(-1)
    t = t.masked_fill(bad.unsqueeze(-1), -torch.inf)
    k = k.masked_fill(bad, 0)

    # The column each item of the shrinking problem came from; column n takes the padding.
    columns = torch.arange(n, device=t.device).expand_as(t)
    drawn = torch.zeros(len(t), n + 1, dtype=torch.bool, device=t.device)
    start = 0
    while t.shape[-1] > 1 and bool(t.isfinite().any()):
        t, columns, half, half_columns = _split(t, columns, n)
        heads, accepted = _toss(half, t, k, keys, start)
        drawn.scatter_(1, half_columns, heads)
        start += _MOST_TRIES * (half.shape[-1] + 1)
        k = k - heads.sum(-1)
        if not bool(accepted.all()):
            left = ~accepted
            whole = torch.cat([t, half], -1)[left]
            places = torch.cat([columns, half_columns], -1)[left]
            count = (k + heads.sum(-1))[left]
            drawn[left] = drawn[left].scatter(1, places, _by_tree(whole, count, seeds[left]))
            # Nothing is left of these rows.
            t = t.masked_fill(left.unsqueeze(-1), -torch.inf)
            columns = columns.masked_fill(left.unsqueeze(-1), n)
            k = k.masked_fill(left, 0)
        t, _ = tilt(t, k)
    drawn.scatter_(1, columns, t > 0)
    z = drawn[:, :n].to(t.dtype).masked_fill(bad.unsqueeze(-1), torch.nan)
    return z.reshape(samples, rows, n)


def _split(t: Tensor, columns: Tensor, padding: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every other item, as (B, its columns, A, its columns), A of the smaller variance."""
    if t.shape[-1] % 2:
        t = F.pad(t, (0, 1), value=-torch.inf)
        columns = F.pad(columns, (0, 1), value=padding)
    even, odd = t[:, 0::2], t[:, 1::2]
    even_columns, odd_columns = columns[:, 0::2], columns[:, 1::2]
    spread = torch.sigmoid(t) * torch.sigmoid(-t)
    # Clearly smaller: a tie must not be decided by the last bit, which depends on the batch.
    swap = (spread[:, 0::2].sum(-1) < 0.999 * spread[:, 1::2].sum(-1)).unsqueeze(-1)
    return (
        torch.where(swap, odd, even),
        torch.where(swap, odd_columns, even_columns),
        torch.where(swap, even, odd),
        torch.where(swap, even_columns, odd_columns),
    )


def _toss(half: Tensor, rest: Tensor, k: Tensor, keys: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Heads of the half A for every row, and which rows were accepted within the bound."""
    acceptance = _Acceptance(rest)
    p = torch.sigmoid(half)
    width = half.shape[-1]
    heads = torch.zeros_like(half, dtype=torch.bool)
    accepted = torch.zeros_like(k, dtype=torch.bool)
    pending = torch.arange(len(half), device=half.device)
    for attempt in range(_MOST_TRIES):
        first = start + attempt * (width + 1)
        noise = random.uniform(keys[pending], first, width + 1, half.dtype)
        tossed = noise[:, :width] < p[pending]
        count = k.clone()
        count[pending] -= tossed.sum(-1)
        good = noise[:, width] < acceptance.probability(count)[pending]
        heads[pending[good]] = tossed[good]
        accepted[pending[good]] = True
        pending = pending[~good]
        if not len(pending):
            break
    return heads, accepted


def _by_tree(t: Tensor, k: Tensor, seeds: Tensor) -> Tensor:
    """Heads of whole rows, with random numbers that no toss has used."""
    keys = random.keys(seeds, _FALLBACK).unsqueeze(0)
    return tree.sample(Coins.from_tilted(t, k), keys)[0] > 0
