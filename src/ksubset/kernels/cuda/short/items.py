"""Several short rows in one program: a row has LANES lanes, each with PER items in registers.

A quantity of items is a tuple of PER tensors (R, LANES), of which the i-th has the items
i LANES, ..., i LANES + LANES - 1; a quantity of rows is a tensor (R, LANES) with the same number in
all lanes of a row. Sums go over the tuple first, and then once over the lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rows_of(rows, R: tl.constexpr, LANES: tl.constexpr):
    """This program's rows (R,), the last one again in place of those that do not exist; and
    (R, LANES): the rows, which of them exist, and lanes."""
    none = tl.zeros([R, LANES], tl.int32)
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    real = (row < rows)[:, None] & (none == 0)
    row = tl.minimum(row, rows - 1)
    return row, row[:, None] + none, real, tl.arange(0, LANES)[None, :] + none


@triton.jit
def in_lanes(values, lane):
    """(R,) in all lanes, (R, LANES).

    What rows have one number of is loaded as (R,): the compiler lays a tensor out as it is loaded,
    and the lanes of a row should stay side by side.
    """
    return values[:, None] + (lane * 0).to(values.dtype)


@triton.jit
def counts_of(counts, same, row, lane):
    """launch.count_of for several rows."""
    same = row * 0 + same
    return in_lanes(tl.load(counts + row, same < 0, same), lane)


@triton.jit
def load_items(source, lane, n, other, PER: tl.constexpr, LANES: tl.constexpr):
    """source points at the rows' first items, (R, LANES)."""
    values = ()
    for i in tl.static_range(PER):
        at = i * LANES + lane
        values = values + (tl.load(source + at, at < n, other),)
    return values


@triton.jit
def store_items(target, values, lane, n, real, PER: tl.constexpr, LANES: tl.constexpr):
    """Of the rows that are real."""
    for i in tl.static_range(PER):
        at = i * LANES + lane
        tl.store(target + at, values[i], real & (at < n))
