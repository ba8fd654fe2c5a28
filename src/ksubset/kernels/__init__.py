"""The primitive operations on rows: the one seam where a device's kernels are put in.

No autograd here, no broadcasting, no checks: ``logits`` is (rows, n) float32 or float64 with
-inf and +inf for forbidden and forced items, ``k`` is (rows,) int64, and an impossible row
gives NaN. ``tilted`` is the representation of the distribution that later operations start from
(see :mod:`ksubset.kernels.coins`), so that a backward pass never tilts again.

A method is a row of :data:`METHODS`; ``"auto"`` is resolved by :mod:`ksubset.kernels.choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ksubset.kernels import coins as _coins
from ksubset.kernels import dp, halving, jets, spectral, tree
from ksubset.kernels.choice import for_moments, for_samples
from ksubset.kernels.coins import Coins
from ksubset.kernels.device import are_compiled, device_kernels
from ksubset.kernels.largest import k_largest
from ksubset.kernels.swaps import exact_plan, exchange, flows, product_plan, second_order

__all__ = [
    "METHODS",
    "Method",
    "Prepared",
    "are_compiled",
    "counts",
    "covariance_product",
    "divergence",
    "entropy",
    "exchange",
    "infer",
    "log_outcome",
    "mode",
    "prepare",
    "sample",
    "second_order",
    "swap_product",
    "third_cumulant_product",
    "tilt",
]


Size = Tensor | int
"""k: each row's, (rows,), or the same for all."""


@dataclass(frozen=True)
class Method:
    """One way to compute everything, on tilted coins."""

    infer: Callable[[Coins], tuple[Tensor, Tensor]]
    entropy: Callable[[Coins], Tensor]
    covariance_product: Callable[[Coins, Tensor], Tensor]
    third_cumulant_product: Callable[[Coins, Tensor, Tensor], Tensor]
    sample: Callable[[Coins, Tensor], Tensor]


def _entropy(infer: Callable[[Coins], tuple[Tensor, Tensor]], coins: Coins) -> Tensor:
    return coins.entropy(*infer(coins))


METHODS: dict[str, Method] = {
    "spectral": Method(
        infer=spectral.infer,
        entropy=partial(_entropy, spectral.infer),
        covariance_product=spectral.covariance_product,
        third_cumulant_product=spectral.third_cumulant_product,
        sample=halving.sample,
    ),
    "dp": Method(
        infer=partial(jets.infer, dp.pairs),
        entropy=dp.entropy,
        covariance_product=partial(jets.cumulant_product, dp.pairs),
        third_cumulant_product=partial(jets.cumulant_product, dp.pairs),
        sample=dp.sample,
    ),
    "tree": Method(
        infer=partial(jets.infer, tree.pairs),
        entropy=partial(_entropy, partial(jets.infer, tree.pairs)),
        covariance_product=partial(jets.cumulant_product, tree.pairs),
        third_cumulant_product=partial(jets.cumulant_product, tree.pairs),
        sample=tree.sample,
    ),
}


def counts(rows: Tensor, k: int) -> Tensor:
    """The same k for every row."""
    return torch.full(rows.shape[:1], k, device=rows.device)


def _moments(method: str, logits: Tensor) -> Method:
    return METHODS[for_moments(*logits.shape) if method == "auto" else method]


def _compiled(rows: Tensor, k: Size, method: str) -> tuple[Any, Any]:
    """The kernels for such rows, or None, and k as they take it: a number only on CUDA."""
    compiled = device_kernels(rows, method)
    if isinstance(k, int) and (compiled is None or hasattr(compiled, "prepare")):
        return compiled, counts(rows, k)
    return compiled, k


def tilt(logits: Tensor, k: Size, method: str) -> Tensor:
    """The tilted logits, (rows, n)."""
    compiled, each = _compiled(logits, k, method)
    if compiled:
        return compiled.tilt(logits, each)
    return _coins.tilt(logits, each)[0]


def infer(logits: Tensor, k: Size, method: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-partition (rows,), marginals (rows, n), tilted logits (rows, n), log P(S = k) of the
    tilted coins (rows,) and the tilt's shift (rows,), the last two in the widest type."""
    compiled, each = _compiled(logits, k, method)
    if compiled:
        return compiled.infer(logits, each)[:-1]
    tilted, shift = _coins.tilt(logits, each)
    tossed = Coins.from_tilted(tilted, each)
    log_mass, rarer = _moments(method, logits).infer(tossed)
    log_partition = _coins.log_partition(logits, tossed, shift, log_mass)
    return log_partition, tossed.heads(rarer), tilted, log_mass.to(shift.dtype), shift


def entropy(logits: Tensor, k: Size, method: str) -> tuple[Tensor, Tensor]:
    """Entropy (rows,) and tilted logits (rows, n)."""
    compiled, each = _compiled(logits, k, method)
    if compiled:
        _, _, tilted, _, _, entropy = compiled.infer(logits, each)
        return entropy, tilted
    tilted = _coins.tilt(logits, each)[0]
    return _moments(method, logits).entropy(Coins.from_tilted(tilted, each)), tilted


def divergence(
    tilted_p: Tensor,
    tilted_q: Tensor,
    marginals: Tensor,
    rests: Tensor,
    log_mass_p: Tensor,
    log_mass_q: Tensor,
    k_p: Tensor,
    k_q: Tensor,
) -> Tensor:
    """KL(p || q), (rows,), from what :func:`infer` knows of p and q, the marginals of p and 1 less
    them, which must have digits of its own where q finds unlikely what p hardly ever does.

    Every term is small where p and q are close: their tilted coins differ as little as they do.
    """
    heads_p, tails_p = _coins.log_outcomes(tilted_p)
    heads_q, tails_q = _coins.log_outcomes(tilted_q)
    terms = marginals * (heads_p - heads_q) + rests * (tails_p - tails_q)
    value = terms.sum(-1) + (log_mass_q - log_mass_p)
    never, always = tilted_q == -torch.inf, tilted_q == torch.inf
    outside = (never & (tilted_p > -torch.inf)) | (always & (tilted_p < torch.inf))
    impossible = (outside.any(-1) | (k_p != k_q)) & ~value.isnan()
    return torch.where(impossible, torch.inf, value.clamp_min(0)).to(marginals.dtype)


def log_outcome(tilted: Tensor, log_mass: Tensor, k: Size, z: Tensor, method: str) -> Tensor:
    """log p(z_s), (samples, rows), of z (samples, rows, n) in the type of ``tilted``, from what
    :func:`infer` knows. -inf where there are not k ones, NaN where anything else is in z."""
    compiled = device_kernels(tilted, method)
    if hasattr(compiled, "log_outcome"):
        return cast("Tensor", compiled.log_outcome(tilted, log_mass, k, z))
    value = _coins.log_outcome(tilted, z > 0) - log_mass
    wrong = (z.sum(-1) != k) & ~value.isnan()
    value = value.masked_fill(wrong, -torch.inf)
    return value.masked_fill(((z != 0) & (z != 1)).any(-1), torch.nan).to(tilted.dtype)


def mode(logits: Tensor, k: Size) -> Tensor:
    """k-hot (rows, n) at the k largest logits, the first of those that are equal. NaN where no
    subset is possible."""
    compiled = device_kernels(logits, "auto")
    if hasattr(compiled, "mode"):
        return cast("Tensor", compiled.mode(logits, k))
    return k_largest(logits, k)


def covariance_product(tilted: Tensor, k: Size, v: Tensor, method: str) -> Tensor:
    """Cov v, (rows, n)."""
    compiled, each = _compiled(tilted, k, method)
    if compiled:
        return compiled.covariance_product(tilted, each, v)
    return _moments(method, tilted).covariance_product(Coins.from_tilted(tilted, each), v)


def third_cumulant_product(tilted: Tensor, k: Size, u: Tensor, v: Tensor, method: str) -> Tensor:
    """sum_jl kappa_ijl u_j v_l, (rows, n)."""
    coins = Coins.from_tilted(tilted, counts(tilted, k) if isinstance(k, int) else k)
    return _moments(method, tilted).third_cumulant_product(coins, u, v)


def swap_product(tilted: Tensor, k: Size, z: Tensor, v: Tensor, method: str, plan: str) -> Tensor:
    """sum_s L(z_s) v_s, (rows, n), at samples (samples, rows, n): with a plan of :mod:`.swaps`,
    "product" or "exact", or with ReinMax's L, "reinmax"."""
    if plan == "reinmax":
        total = v[0] if len(v) == 1 else v.sum(0)
        covariance = covariance_product(tilted, k, total, method)
        return second_order(covariance, z - infer(tilted, k, method)[1], v)
    compiled, each = _compiled(tilted, k, method)
    if plan == "product" and compiled:
        return cast("Tensor", compiled.swap_product(tilted, each, z, v))
    k = counts(tilted, each) if isinstance(each, int) else each
    coins = Coins.from_tilted(tilted, k)
    deviations = flows(coins, _moments(method, tilted).infer(coins)[1], z)
    if plan == "product":
        return product_plan(deviations, v).sum(0)
    tilted, k = (x.expand(len(z), *x.shape).flatten(0, 1) for x in (tilted, k))
    deviations, z_rows, v_rows = (x.flatten(0, 1) for x in (deviations, z, v))
    return exact_plan(deviations, tilted, k, z_rows, v_rows).reshape(z.shape).sum(0)


def sample(logits: Tensor, k: Size, seeds: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """k-hot samples (samples, rows, n) for seeds (samples, rows), and tilted logits (rows, n).

    A sample is a function of its own seed, row and k: not of the batch it stands in.
    """
    compiled, each = _compiled(logits, k, method)
    if compiled:
        return cast("tuple[Tensor, Tensor]", compiled.sample(logits, each, seeds))
    tilted = _coins.tilt(logits, each)[0]
    name = for_samples(seeds.shape[0], *logits.shape) if method == "auto" else method
    with torch.no_grad():
        return METHODS[name].sample(Coins.from_tilted(tilted, each), seeds), tilted


Rows = Callable[[], Tensor]
"""Gives the logits (rows, n) to a product that reads them again: some need only what was kept."""


class Prepared(NamedTuple):
    """For a caller who comes again and again with rows of the same shape, type and device.

    ``k`` is None if all rows have the one that was prepared for; otherwise it has each row's own.
    """

    sample: Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
    """(logits, k, seeds) -> samples, and what the products want kept."""
    covariance_product: Callable[[Rows, Tensor | None, Tensor, Tensor], Tensor]
    """(logits, k, kept, v) -> Cov v."""
    swap_product: Callable[[Rows, Tensor | None, Tensor, Tensor, Tensor], Tensor]
    """(logits, k, kept, z, v) -> sum_s L(z_s) v_s, z and v in the shape of the samples."""
    marginals: Callable[[Tensor, Tensor | None], Tensor]
    """(logits, k) -> marginals."""
    one_seed: bool
    """Whether ``sample`` takes a scalar and goes on from it by itself: random.following."""


def prepare(
    logits: Tensor,
    k: int | None,
    shape: tuple[int, ...],
    method: str,
    check: Callable[[Tensor, Tensor | None], None] | None = None,
) -> Prepared:
    """:func:`sample` in this shape, and the products for its rows, with the same k for all of them
    or (None) one for each.

    If there is a check, it is called with logits and k that may admit no sample, and raises if so.
    """
    compiled = device_kernels(logits, method)

    def marginals(logits: Tensor, own: Tensor | None) -> Tensor:
        if compiled and not hasattr(compiled, "prepare"):
            return cast("Tensor", compiled.infer(logits, k if own is None else own)[1])
        return infer(logits, _each(logits, k, own), method)[1]

    if hasattr(compiled, "prepare"):
        same = None if k is None else counts(logits, k)
        draw, product, swaps = compiled.prepare(logits, same, shape, check)
        return Prepared(draw, product, swaps, marginals, one_seed=True)

    def sample_in_shape(logits: Tensor, own: Tensor | None, seeds: Tensor) -> tuple[Tensor, Tensor]:
        if check:
            check(logits, own)
        drawn, tilted = (
            compiled.sample(logits, k if own is None else own, seeds)
            if compiled
            else sample(logits, _each(logits, k, own), seeds, method)
        )
        # In place: a view that leaves an autograd function costs as much as a small kernel.
        return drawn.resize_(shape), tilted

    def product_after(logits: Rows, own: Tensor | None, kept: Tensor, v: Tensor) -> Tensor:
        if compiled:
            product = compiled.covariance_product(kept, k if own is None else own, v)
            return cast("Tensor", product)
        return covariance_product(kept, _each(kept, k, own), v, method)

    def swaps_after(logits: Rows, own: Tensor | None, kept: Tensor, z: Tensor, v: Tensor) -> Tensor:
        each = (math.prod(shape) // max(kept.numel(), 1), *kept.shape)
        z, v = z.reshape(each), v.reshape(each)
        if compiled:
            product = compiled.swap_product(kept, k if own is None else own, z, v)
            return cast("Tensor", product)
        return swap_product(kept, _each(kept, k, own), z, v, method, "product")

    return Prepared(sample_in_shape, product_after, swaps_after, marginals, one_seed=False)


def _each(rows: Tensor, k: int | None, own: Tensor | None) -> Tensor:
    return counts(rows, cast("int", k)) if own is None else own
