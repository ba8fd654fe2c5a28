"""Rows of different lengths between a flat layout and padded rows: whole rows are copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksubset.kernels.cpu.compile import allocating, kernel
from ksubset.kernels.cpu.entries import _floats, _integers
from ksubset.kernels.cpu.simd import copy

__all__ = ["collect", "spread"]


@allocating
def _spread(first, last, starts, lengths, ends, fill, flat, places):
    for r in range(first, last):
        at = ends[r]
        for s in range(len(flat)):
            copy(flat[s, starts[r] :], places[s, at:], lengths[r])
            for i in range(at + lengths[r], ends[r + 1]):
                places[s, i] = fill
    return 0


@allocating
def _collect(first, last, starts, lengths, ends, places, flat):
    for r in range(first, last):
        at = ends[r]
        for s in range(len(flat)):
            copy(places[s, at:], flat[s, starts[r] :], lengths[r])
    return 0


def _kernels(dtype: Any) -> tuple[Any, Any]:
    """As in :mod:`.entries`."""

    @kernel
    def spread_rows(first, last, rows, many, items, room, forbidden, starts, lengths, ends, a, b):
        return _spread(
            first, last, _integers(starts, rows), _integers(lengths, rows),
            _integers(ends, rows + 1), -np.inf if forbidden != 0 else 0.0,
            _floats(a, (many, items), dtype), _floats(b, (many, room), dtype),
        )  # fmt: skip

    @kernel
    def collect_rows(first, last, rows, many, items, room, starts, lengths, ends, a, b):
        return _collect(
            first, last, _integers(starts, rows), _integers(lengths, rows),
            _integers(ends, rows + 1), _floats(a, (many, room), dtype),
            _floats(b, (many, items), dtype),
        )  # fmt: skip

    return spread_rows, collect_rows


_KERNELS = {torch.float32: _kernels(np.float32), torch.float64: _kernels(np.float64)}


def spread(
    flat: Tensor, forbidden: bool, starts: Tensor, lengths: Tensor, ends: Tensor, room: int
) -> Tensor:
    """(..., items) -> (..., room): rows from ``starts`` on go to where the row before ends, with
    -inf or 0 behind each of them."""
    flat, items = flat.contiguous(), flat.shape[-1]
    places = flat.new_empty(*flat.shape[:-1], room)
    many = flat.numel() // max(items, 1)
    addresses = (x.data_ptr() for x in (starts, lengths, ends, flat, places))
    rows = len(starts)
    _KERNELS[flat.dtype][0](0, rows, rows, many, items, room, int(forbidden), *addresses)
    return places


def collect(places: Tensor, starts: Tensor, lengths: Tensor, ends: Tensor, items: int) -> Tensor:
    """The inverse, (..., room) -> (..., items)."""
    places, room = places.contiguous(), places.shape[-1]
    flat = places.new_empty(*places.shape[:-1], items)
    many = places.numel() // max(room, 1)
    addresses = (x.data_ptr() for x in (starts, lengths, ends, places, flat))
    rows = len(starts)
    _KERNELS[places.dtype][1](0, rows, rows, many, items, room, *addresses)
    return flat
