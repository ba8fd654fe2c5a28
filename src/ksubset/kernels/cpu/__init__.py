"""Compiled kernels for CPUs: Numba, with vectors of our own (:mod:`.simd`).

The functions that :mod:`ksubset.kernels.device` asks for, on tensors. Short rows go side by side
(:mod:`.groups`); those that are left, and long ones, one by one (:mod:`.rows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels import tree
from ksubset.kernels.coins import Coins
from ksubset.kernels.cpu.entries import kernels
from ksubset.kernels.cpu.left import ALL, Left, give_back, take
from ksubset.kernels.cpu.rows import IMPOSSIBLE, NARROW_ITEMS
from ksubset.kernels.cpu.short import is_short, room_for_coins
from ksubset.kernels.cpu.threads import share
from ksubset.kernels.random import following
from ksubset.kernels.spectral import PRECISIONS

_KERNELS = {torch.float32: kernels(np.float32), torch.float64: kernels(np.float64)}
# Whole numbers, as all arguments of kernels are.
_PRECISIONS = {dtype: (int(of.tail), int(of.decay)) for dtype, of in PRECISIONS.items()}


def _tilt_some(rows: int, logits: Tensor, k: Tensor, tilted: Tensor) -> None:
    """Those of a list at this address, or all."""
    addresses = logits.data_ptr(), k.data_ptr(), tilted.data_ptr()
    share(_KERNELS[logits.dtype].tilt, *logits.shape, rows, *addresses)


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = logits.contiguous(), k.contiguous()
    (rows, n), tilted = logits.shape, torch.empty_like(logits)
    if not is_short(n):
        _tilt_some(ALL, logits, k, tilted)
        return tilted
    left = take(rows)
    some = share(
        _KERNELS[logits.dtype].tilt_groups, rows, n, left.address, logits.data_ptr(), k.data_ptr(),
        tilted.data_ptr(),
    )  # fmt: skip
    if some:
        _tilt_some(left.address, logits, k, tilted)
    give_back(left, some > 0)
    return tilted


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits, k = logits.contiguous(), k.contiguous()
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    log_partition, entropy = (logits.new_empty(len(logits)) for _ in range(2))
    log_mass, shift = (logits.new_empty(len(logits), dtype=torch.float64) for _ in range(2))
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    addresses = [x.data_ptr() for x in (logits, k, *results)]
    (rows, n), compiled = logits.shape, _KERNELS[logits.dtype]
    tail, decay = _PRECISIONS[logits.dtype]
    if not is_short(n):
        share(compiled.infer, rows, n, ALL, tail, decay, *addresses)
        return results
    left = take(rows)
    some = share(compiled.infer_groups, rows, n, left.address, *addresses)
    if some:
        share(compiled.infer, rows, n, left.address, tail, decay, *addresses)
    give_back(left, some > 0)
    return results


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    return _covariance_product(tilted.contiguous(), None, None, k.contiguous(), v.contiguous())


Logits = Callable[[], Tensor]


def _covariance_product(
    tilted: Tensor | None, kept: Tensor | None, logits: Logits | None, k: Tensor, v: Tensor
) -> Tensor:
    """From tilted logits, or from coins that were kept and, where these will not do, logits."""
    (rows, n), product = v.shape, torch.empty_like(v)
    addresses = k.data_ptr(), v.data_ptr(), product.data_ptr()
    compiled, (tail, decay) = _KERNELS[v.dtype], _PRECISIONS[v.dtype]
    if not is_short(n):
        kernel = compiled.covariance_product
        if n > NARROW_ITEMS:
            kernel = compiled.covariance_product_long
        share(kernel, rows, n, ALL, tail, decay, cast("Tensor", tilted).data_ptr(), *addresses)
        return product
    left = take(rows)
    some = share(
        compiled.covariance_product_groups, rows, n, left.address, *_coins(tilted, kept), *addresses
    )
    if some:
        tilted = _tilted_again(tilted, left, logits, k)
        share(
            compiled.covariance_product, rows, n, left.address, tail, decay, tilted.data_ptr(),
            *addresses,
        )  # fmt: skip
    give_back(left, some > 0)
    return product


def _coins(tilted: Tensor | None, kept: Tensor | None) -> tuple[int, int, int]:
    """How many numbers were kept; where tilted logits are, and what was kept."""
    if kept is None:
        return 0, cast("Tensor", tilted).data_ptr(), 0
    return kept.shape[0], 0, kept.data_ptr()


def _tilted_again(tilted: Tensor | None, left: Left, logits: Logits | None, k: Tensor) -> Tensor:
    """Tilted logits of rows that are left, if they were not kept."""
    if tilted is None:
        theta = cast("Logits", logits)().contiguous()
        tilted = torch.empty_like(theta)
        _tilt_some(left.address, theta, k, tilted)
    return tilted


def swap_product(tilted: Tensor, k: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, k, z, v = tilted.contiguous(), k.contiguous(), z.contiguous(), v.contiguous()
    product = torch.empty_like(tilted)
    _swap_product(tilted, None, None, k, z.shape[0], z, v, product)
    return product


def _swap_product(
    tilted: Tensor | None, kept: Tensor | None, logits: Logits | None, k: Tensor, samples: int,
    z: Tensor, v: Tensor, product: Tensor,
) -> None:  # fmt: skip
    """Fill the product (rows, n): see :func:`_covariance_product`."""
    (rows, n), compiled = product.shape, _KERNELS[product.dtype]
    tail, decay = _PRECISIONS[product.dtype]
    addresses = k.data_ptr(), z.data_ptr(), v.data_ptr(), product.data_ptr()
    if not is_short(n):
        kernel = compiled.swap_product if n <= NARROW_ITEMS else compiled.swap_product_long
        at = cast("Tensor", tilted).data_ptr()
        share(kernel, rows, n, ALL, samples, tail, decay, at, *addresses)
        return
    left = take(rows)
    some = share(
        compiled.swap_product_groups, rows, n, left.address, samples, *_coins(tilted, kept),
        *addresses,
    )  # fmt: skip
    if some:
        tilted = _tilted_again(tilted, left, logits, k)
        share(
            compiled.swap_product, rows, n, left.address, samples, tail, decay, tilted.data_ptr(),
            *addresses,
        )  # fmt: skip
    give_back(left, some > 0)


def _sample(
    logits: Tensor, k: Tensor, seeds: Tensor, several: int, tilted: Tensor | None,
    kept: Tensor | None, samples: int, drawn: Tensor,
) -> int:  # fmt: skip
    """Fill what was drawn, for seeds of all or for one and those that follow it, and what products
    start from: whichever is there. Returns what :func:`.rows.sample` does."""
    (rows, n), compiled, left = logits.shape, _KERNELS[logits.dtype], take(logits.shape[0])
    given, at = (logits.data_ptr(), k.data_ptr(), seeds.data_ptr()), drawn.data_ptr()
    if is_short(n):
        many, at_tilted, at_kept = _coins(tilted, kept)
        some = share(
            compiled.sample_groups, rows, n, left.address, samples, many, several, *given,
            at_tilted, at_kept, at,
        )  # fmt: skip
        if some and tilted is not None:
            _tilt_some(left.address, logits, k, tilted)
    else:
        some = share(
            compiled.sample_sparse, rows, n, left.address, samples, several, *given,
            cast("Tensor", tilted).data_ptr(), at,
        )  # fmt: skip
    outcome = 0
    if some:
        tilted = _tilted_again(tilted, left, lambda: logits, k)
        outcome = share(
            compiled.sample, rows, n, left.address, samples, several, *given[1:],
            tilted.data_ptr(), at,
        )  # fmt: skip
    give_back(left, some > 0)
    return outcome


def sample(logits: Tensor, k: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = logits.contiguous(), k.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    tilted = torch.empty_like(logits)
    samples = seeds.shape[0]  # len() of a tensor is slow
    drawn = logits.new_empty((samples, rows, n))
    if _sample(logits, k, seeds, samples * rows, tilted, None, samples, drawn) % IMPOSSIBLE:
        # Out of tries, once in 10^30 rows: the product tree is exact as well.
        for s, row in (drawn[..., 0] == -1).nonzero().tolist():
            coins = Coins.from_tilted(tilted[row : row + 1], k[row : row + 1])
            drawn[s, row] = tree.sample(coins, ~seeds[s, row].reshape(1, 1))[0, 0]
    return drawn, tilted


class Prepared(NamedTuple):
    """For logits of one shape and type, with one k or (None) each row's own. Kept of short rows are
    the coins as they lay side by side, of others the tilted logits."""

    sample: Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
    """(logits, k, seed) -> samples in a shape, for this seed and those that follow it, and what is
    kept for the products."""
    covariance_product: Callable[[Callable[[], Tensor], Tensor | None, Tensor, Tensor], Tensor]
    """(logits, k, kept, v) -> Cov v."""
    swap_product: Callable[[Callable[[], Tensor], Tensor | None, Tensor, Tensor, Tensor], Tensor]
    """(logits, k, kept, z, v) -> sum_s L(z_s) v_s, z and v in the shape of the samples."""


def prepare(
    logits: Tensor,
    same: Tensor | None,
    shape: tuple[int, ...],
    check: Callable[[Tensor, Tensor | None], None] | None = None,
) -> Prepared:
    """For logits like these, with these counts for all calls or (None) those of each. If a row
    admits no sample, the check is called."""
    rows, n = logits.shape
    samples = math.prod(shape) // max(rows * n, 1)
    many = room_for_coins(rows, n, logits.itemsize)

    def counts(k: Tensor | None) -> Tensor:
        return cast("Tensor", same) if k is None else k.contiguous()

    def sample_and_keep(logits: Tensor, own: Tensor | None, seed: Tensor) -> tuple[Tensor, Tensor]:
        logits, k = logits.contiguous(), counts(own)
        drawn = logits.new_empty(shape)
        kept = logits.new_empty(many) if many else torch.empty_like(logits)
        tilted, coins = (None, kept) if many else (kept, None)
        outcome = _sample(logits, k, seed, 1, tilted, coins, samples, drawn)
        if outcome >= IMPOSSIBLE and check:
            check(logits, own)
        if outcome % IMPOSSIBLE:
            drawn, kept = sample(logits, k, following(seed, (samples, rows)))
            drawn = drawn.reshape(shape)
        return drawn, kept

    def coins_of(kept: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return (kept.contiguous(), None) if kept.dim() == 2 else (None, kept)

    def product_after(logits: Logits, own: Tensor | None, kept: Tensor, v: Tensor) -> Tensor:
        return _covariance_product(*coins_of(kept), logits, counts(own), v.contiguous())

    def swaps_after(
        logits: Logits, own: Tensor | None, kept: Tensor, z: Tensor, v: Tensor
    ) -> Tensor:
        z, v, product = z.contiguous(), v.contiguous(), v.new_empty((rows, n))
        _swap_product(*coins_of(kept), logits, counts(own), samples, z, v, product)
        return product

    return Prepared(sample_and_keep, product_after, swaps_after)
