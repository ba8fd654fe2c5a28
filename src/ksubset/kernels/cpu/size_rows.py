"""Compiled kernels for several sizes of long rows, or of many sizes (:mod:`.size_nodes`).

Rows with anything out of the ordinary are left to operations of torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.cpu import rows as one_by_one
from ksubset.kernels.cpu import size_nodes
from ksubset.kernels.cpu.compile import kernel
from ksubset.kernels.cpu.entries import _bytes, _floats, _integers, _wide
from ksubset.kernels.cpu.rows import NARROW_ITEMS
from ksubset.kernels.cpu.threads import share
from ksubset.kernels.spectral import PRECISIONS

__all__ = ["Drawn", "covariance_product", "draw", "infer"]


class _Kernels(NamedTuple):
    infer: Any
    draw: Any
    draw_long: Any
    covariance_product: Any
    covariance_product_long: Any


def _kernels(dtype: Any) -> _Kernels:
    """As in :mod:`.entries`."""

    @kernel
    def infer_size_rows(
        first, last, rows, n, sizes, laws, start, flat, noted, logits, c, tail, decay,
        whole, marginals, chances, tilted, weights, centre, log_mass,
    ):  # fmt: skip
        shape, by_size = (rows, n), (rows, sizes)
        return size_nodes.infer(
            first, last, _bytes(noted, rows), start, flat != 0, _floats(logits, shape, dtype),
            _wide(c, (laws, sizes)), tail, decay, _floats(whole, rows, dtype),
            _floats(marginals, shape, dtype), _floats(chances, by_size, dtype),
            _floats(tilted, shape, dtype), _floats(weights, by_size, dtype),
            _integers(centre, rows), _wide(log_mass, rows),
        )  # fmt: skip

    @kernel
    def draw_size_rows(
        first, last, rows, n, sizes, laws, start, flat, noted, logits, c, samples, several, kept,
        seeds, tail, decay, tilted, weights, centre, drawn,
    ):  # fmt: skip
        return size_nodes.draw(
            first, last, _bytes(noted, rows), start, flat != 0, _floats(logits, (rows, n), dtype),
            _wide(c, (laws, sizes)), _integers(seeds, several), several, tail, decay,
            _floats(tilted, (kept, n), dtype), _floats(weights, (kept, sizes), dtype),
            _integers(centre, kept), _integers(drawn, samples * rows),
            one_by_one.narrow_characteristic,
        )  # fmt: skip

    @kernel
    def draw_long_size_rows(
        first, last, rows, n, sizes, laws, start, flat, noted, logits, c, samples, several, kept,
        seeds, tail, decay, tilted, weights, centre, drawn,
    ):  # fmt: skip
        return size_nodes.draw(
            first, last, _bytes(noted, rows), start, flat != 0, _floats(logits, (rows, n), dtype),
            _wide(c, (laws, sizes)), _integers(seeds, several), several, tail, decay,
            _floats(tilted, (kept, n), dtype), _floats(weights, (kept, sizes), dtype),
            _integers(centre, kept), _integers(drawn, samples * rows),
            one_by_one.wide_characteristic,
        )  # fmt: skip

    @kernel
    def product_of_size_rows(
        first, last, rows, n, sizes, functions, start, noted, tilted, weights, centre, v, f, tail,
        decay, items, of_sizes,
    ):  # fmt: skip
        shape = (rows, n)
        return size_nodes.covariance_product(
            first, last, _bytes(noted, rows), start, functions != 0,
            _floats(tilted, shape, dtype), _floats(weights, (rows, sizes), dtype),
            _integers(centre, rows),
            _floats(v, shape, dtype), _floats(f, (functions, sizes), dtype), tail, decay,
            _floats(items, shape, dtype), _floats(of_sizes, (functions, sizes), dtype),
            one_by_one.narrow_sums,
        )  # fmt: skip

    @kernel
    def product_of_long_size_rows(
        first, last, rows, n, sizes, functions, start, noted, tilted, weights, centre, v, f, tail,
        decay, items, of_sizes,
    ):  # fmt: skip
        shape = (rows, n)
        return size_nodes.covariance_product(
            first, last, _bytes(noted, rows), start, functions != 0,
            _floats(tilted, shape, dtype), _floats(weights, (rows, sizes), dtype),
            _integers(centre, rows),
            _floats(v, shape, dtype), _floats(f, (functions, sizes), dtype), tail, decay,
            _floats(items, shape, dtype), _floats(of_sizes, (functions, sizes), dtype),
            one_by_one.wide_sums,
        )  # fmt: skip

    return _Kernels(
        infer_size_rows,
        draw_size_rows,
        draw_long_size_rows,
        product_of_size_rows,
        product_of_long_size_rows,
    )


_KERNELS = {torch.float32: _kernels(np.float32), torch.float64: _kernels(np.float64)}
_PRECISIONS = {dtype: (int(of.tail), int(of.decay)) for dtype, of in PRECISIONS.items()}


def _given(log_weights: Tensor) -> Tensor:
    """One row for all, where all are the same."""
    if len(log_weights) and log_weights.stride(0) == 0:
        log_weights = log_weights[:1]
    return log_weights.to(torch.float64).contiguous()


def infer(
    logits: Tensor, log_weights: Tensor, first: int, flat: bool
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """See :func:`ksubset.kernels.sizes.infer`; and the rows that these kernels do not serve, if
    there are any."""
    logits, c = logits.contiguous(), _given(log_weights)
    (rows, n), sizes = logits.shape, log_weights.shape[-1]
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    chances, weights = (logits.new_empty(rows, sizes) for _ in range(2))
    whole, log_mass = logits.new_empty(rows), logits.new_empty(rows, dtype=torch.float64)
    centre = torch.zeros(rows, dtype=torch.int64)
    noted = torch.zeros(rows, dtype=torch.uint8)
    found = whole, marginals, chances, tilted, weights, centre, log_mass
    odd = share(
        _KERNELS[logits.dtype].infer, rows, n, sizes, len(c), first, int(flat), noted.data_ptr(),
        logits.data_ptr(), c.data_ptr(), *_PRECISIONS[logits.dtype],
        *(x.data_ptr() for x in found),
    )  # fmt: skip
    return found, noted.nonzero().squeeze(-1) if odd else None


def covariance_product(
    tilted: Tensor, weights: Tensor, centre: Tensor, first: int, v: Tensor, f: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """See :func:`ksubset.kernels.sizes.covariance_product`; without f, of items only. And the rows
    that these kernels do not serve, if there are any."""
    (rows, n), sizes = tilted.shape, weights.shape[-1]
    of = v.new_empty(0, sizes) if f is None else f
    given = [x.contiguous() for x in (tilted, weights, centre, v, of)]
    items, of_sizes = torch.empty_like(given[0]), torch.empty_like(given[4])
    noted = torch.zeros(rows, dtype=torch.uint8)
    kernels = _KERNELS[tilted.dtype]
    odd = share(
        kernels.covariance_product if n <= NARROW_ITEMS else kernels.covariance_product_long,
        rows, n, sizes, len(of), first, noted.data_ptr(), *(x.data_ptr() for x in given),
        *_PRECISIONS[tilted.dtype], items.data_ptr(), of_sizes.data_ptr(),
    )  # fmt: skip
    return items, of_sizes, noted.nonzero().squeeze(-1) if odd else None


class Drawn(NamedTuple):
    """Sizes, and the distribution that products start from (see kernels/sizes.py)."""

    size: Tensor  # (samples, rows)
    tilted: Tensor  # (rows, n)
    weights: Tensor  # (rows, sizes)
    centre: Tensor  # (rows,)
    left: Tensor | None  # the rows in which nothing of all this is right, if there are any


def draw(
    logits: Tensor, log_weights: Tensor, first: int, flat: bool, seeds: Tensor, keep: bool
) -> Drawn:
    """A size for each of the seeds (samples, rows). What is kept for products is empty without
    ``keep``."""
    logits, c, seeds = logits.contiguous(), _given(log_weights), seeds.contiguous()
    (rows, n), sizes = logits.shape, log_weights.shape[-1]
    kept = rows if keep else 0
    tilted, weights = logits.new_empty(kept, n), logits.new_empty(kept, sizes)
    centre = torch.empty(kept, dtype=torch.int64)
    noted = torch.zeros(rows, dtype=torch.uint8)
    size = torch.empty_like(seeds)
    kernels = _KERNELS[logits.dtype]
    odd = share(
        kernels.draw if n <= NARROW_ITEMS else kernels.draw_long,
        rows, n, sizes, len(c), first, int(flat), noted.data_ptr(), logits.data_ptr(),
        c.data_ptr(), seeds.shape[0], seeds.numel(), kept, seeds.data_ptr(),
        *_PRECISIONS[logits.dtype],
        *(x.data_ptr() for x in (tilted, weights, centre, size)),
    )  # fmt: skip
    return Drawn(size, tilted, weights, centre, noted.nonzero().squeeze(-1) if odd else None)
