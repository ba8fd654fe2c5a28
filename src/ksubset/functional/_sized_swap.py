"""Swap's gradient for several sizes: swaps within a size, births and deaths between sizes.

The gradient of E f(z) is E Cov(z, f | |z|) + sum_b Cov(z, 1[|z| > b]) (F_{b+1} - F_b) with F_s the
mean of f over subsets of size s. The first part is the swap process of every size. In the second,
F_{b+1} - F_b is the mean change of f at a birth, or at a death seen backwards. Items are born and
die as they would be swapped for an item more, which is not one of the row: docs/swaps.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import kernels
from ksubset._arguments import check_sample_shape, reads_values
from ksubset.functional import _primitives
from ksubset.functional._mixed import Mixture
from ksubset.functional._nodes import Nodes
from ksubset.functional._size_problem import SizedProblem, limits
from ksubset.functional._sized import _law, draw
from ksubset.sizes import Sizes

Pair = tuple[Tensor, Tensor]


def swap(
    logits: Tensor,
    k: Sizes,
    sample_shape: Sequence[int],
    plan: str,
    mask: Tensor | None,
    generator: torch.Generator | None,
    method: str,
    validate_args: bool | None,
) -> Tensor:
    """Samples of sizes drawn first; the gradient within a size and between sizes."""
    sample_shape = check_sample_shape(sample_shape)
    found = _law(logits, k, method, mask=mask, validate_args=validate_args)
    given = found.problem.given
    if not (found.problem.random or k.concave):
        _check_no_gap(found.problem)
    drawn = draw(found, math.prod(sample_shape), generator)
    z, _ = _primitives.swap(drawn.logits, drawn.size, drawn.seeds, method, plan)
    z = z.squeeze(0)
    if not found.problem.random:
        joins, leaves = changes(drawn.logits.detach(), drawn.size, z.detach(), method, plan)
        more, same = _tails(found, drawn.size.reshape(drawn.shape[:2]))
        z = z + joins * _gradient_of(more) + leaves * _gradient_of(same)
    z = given.vector(z.reshape(drawn.shape))
    return z.reshape(*sample_shape, *z.shape[1:])


def _check_no_gap(problem: SizedProblem) -> None:
    """Births and deaths go from a size to the next."""
    if not reads_values(problem.log_weights):
        return
    possible = problem.log_weights > -torch.inf
    within = (possible.cumsum(-1) > 0) & (possible.flip(-1).cumsum(-1).flip(-1) > 0)
    if bool((within & ~possible).any()):
        raise ValueError(f"k must be sizes without a gap between them in swap, got {problem.sizes}")


def _gradient_of(x: Tensor) -> Tensor:
    return (x - x.detach()).reshape(-1, 1)


def _tails(found: Nodes | Mixture, size: Tensor) -> Pair:
    """P(|z| > s) and P(|z| >= s) at sizes s, each divided by twice P(|z| = s): (samples, rows)."""
    chances = found.chances
    tails = torch.nn.functional.pad(chances.flip(-1).cumsum(-1).flip(-1), (0, 1))
    at = (size - found.problem.first).clamp(0, chances.shape[-1] - 1).T
    own = 2 * chances.detach().gather(1, at)
    more, same = tails.gather(1, at + 1), tails.gather(1, at)
    dtype = found.problem.given.logits.dtype
    return (more / own).T.to(dtype), (same / own).T.to(dtype)


def changes(logits: Tensor, size: Tensor, z: Tensor, method: str, plan: str) -> Pair:
    """The probabilities with which items join z at a birth, and leave it at a death: (rows, n)
    each, adding up to 1.

    The product plan goes by the marginals of the size that z comes to: exact for the first item to
    be born, and for the first to leave when all are chosen.
    """
    forced, allowed = limits(logits)
    more, less = torch.minimum(size + 1, allowed), torch.maximum(size - 1, forced)
    chosen, free = z > 0.5, logits.isfinite()
    if plan == "product":
        after, before = (_primitives.infer(logits, k, method)[1] for k in (more, less))
        before = 1 - before
    else:
        after, before = _with_another(logits, size, z)
    joins, leaves = torch.where(~chosen & free, after, 0), torch.where(chosen & free, before, 0)
    return _shares(joins), _shares(leaves)


def _shares(weights: Tensor) -> Tensor:
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1), 0)


def _with_another(logits: Tensor, size: Tensor, z: Tensor) -> Pair:
    """The rates at which an item more is swapped for others when it is chosen, and the others for
    it when it is not. Its weight makes no difference: it has that of the last that fits."""
    finite = torch.where(logits.isfinite(), logits, -torch.inf)
    order = finite.sort(-1, descending=True).values
    logit = order.gather(-1, (size - 1).clamp(min=0).unsqueeze(-1))
    logit = torch.where(logit.isfinite(), logit, torch.where(order.isfinite(), order, 0)[:, :1])
    logits = torch.cat([logits, logit], -1)
    here = torch.zeros_like(logits)
    here[:, -1] = 1
    rates = []
    for one in (1, 0):
        whole = torch.cat([z, here[:, -1:] * one], -1)
        k = size + one
        rates.append(kernels.exchange(kernels.tilt(logits, k, "auto"), k, whole, here)[:, :-1])
    return rates[0], rates[1]
