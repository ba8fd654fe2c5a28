"""Nested subsets: an ordering of the items whose every prefix is an exact k-subset.

Run the sequential sampler for all k with the same random numbers: it takes item l, when r of the
items from l on are still to be chosen, if u_l < P(l | r) = w_l e_{r-1}(later) / e_r(l and later).
P(l | r) grows with r, so that each k's subset contains those before. Let m_l be the smallest r at
which u_l takes item l. The first k at which it is taken is the m_l-th of those that no earlier item
was first taken at: m is the Lehmer code of the ordering. Derivation: docs/mathematics.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset.kernels import random
from ksubset.kernels.coins import widest
from ksubset.kernels.device import are_compiled

_FAR = 2000.0  # in log-odds: beyond what any random number reaches


def order(logits: Tensor, most: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """The first ``most`` items of orderings, (samples, rows, most), for seeds (samples, rows); and
    the place of every item, (samples, rows, n), ``most`` for those beyond the last.

    Forced items come first, forbidden ones last.
    """
    if not (logits.device.type == "cpu" and most and are_compiled(logits, "auto")):
        return _order(logits, most, seeds)
    from ksubset.kernels.cpu import nested as compiled

    found, rank, left = compiled.order(logits, most, seeds)
    if left is not None:
        found[:, left], rank[:, left] = _order(logits[left], most, seeds[:, left])
    return found, rank


def _order(logits: Tensor, most: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """By torch operations."""
    noise = random.uniform(random.keys(seeds), 0, logits.shape[-1], widest(logits))
    codes = _codes(_finite(logits.to(noise.dtype)), most, noise)
    rank = _decoded(codes, most)
    found = torch.zeros(*rank.shape[:-1], most + 1, dtype=torch.int64, device=logits.device)
    index = torch.arange(logits.shape[-1], device=logits.device).expand(rank.shape)
    return found.scatter(-1, rank, index)[..., :most], rank


def _finite(theta: Tensor) -> Tensor:
    """Infinite logits as far away from the others as makes no difference."""
    free = theta.isfinite()
    high = torch.where(free, theta, -torch.inf).amax(-1, keepdim=True).nan_to_num(0, 0, 0)
    low = torch.where(free, theta, torch.inf).amin(-1, keepdim=True).nan_to_num(0, 0, 0)
    theta = torch.where(theta == torch.inf, high + _FAR, theta)
    return torch.where(theta == -torch.inf, low - _FAR, theta)


def _codes(theta: Tensor, most: int, noise: Tensor) -> Tensor:
    """m - 1 for every item, at most ``most``: (samples, rows, n)."""
    rows, n = theta.shape
    table = theta.new_full((rows, most + 1), -torch.inf)  # log e_r of the items behind
    table[:, 0] = 0
    codes = torch.empty(noise.shape, dtype=torch.int64, device=theta.device)
    for item in reversed(range(n)):
        taken = table[:, :-1] + theta[:, item, None]
        left = table[:, 1:]
        both = torch.logaddexp(taken, left)
        # What cannot be chosen at all, because too few items are left, is taken by every number.
        chance = torch.where(both == -torch.inf, 1, torch.exp(taken - both))
        codes[..., item] = torch.searchsorted(chance, noise[..., item].T.contiguous(), right=True).T
        table = torch.cat([table[:, :1], both], -1)
    return codes


def _decoded(codes: Tensor, most: int) -> Tensor:
    """The place of every item: the m-th that is free; ``most`` for those beyond the last."""
    # A column more, which is always free, for items beyond the last place.
    free = torch.ones(*codes.shape[:-1], most + 1, dtype=torch.int64, device=codes.device)
    places = torch.empty_like(codes)
    for item in range(codes.shape[-1]):
        place = (free[..., :most].cumsum(-1) <= codes[..., item, None]).sum(-1)
        places[..., item] = place
        free.scatter_(-1, place.unsqueeze(-1), 0)
    return places
