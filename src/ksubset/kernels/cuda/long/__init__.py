"""Triton kernels for rows that do not fit in registers: in tiles, by several programs per row
(:mod:`.board`).

No step waits for the host. Where a row has several programs that wait for each other, all of them
must be on the chip at once, which a cooperative launch guarantees; samples are drawn in launches of
programs that do not (:mod:`.sampling`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher, count_of
from ksubset.kernels.cuda.long.board import wait, words, workspace
from ksubset.kernels.cuda.long.moments import fill, moments
from ksubset.kernels.cuda.long.sampling import accept_kernel, count_kernel, toss_kernel
from ksubset.kernels.cuda.long.swaps import swap_product as swap_row
from ksubset.kernels.cuda.long.tilt import tilt as tilt_row
from ksubset.kernels.cuda.outcome import log_outcome

__all__ = ["covariance_product", "infer", "log_outcome", "sample", "swap_product", "tilt"]


class Shape(NamedTuple):
    """How a row is cut up."""

    tile: int  # items
    wide: int  # tiles worked on at a time
    warps: int


MOMENTS = Shape(tile=2048, wide=1, warps=16)
SAMPLES = Shape(tile=256, wide=8, warps=16)  # a chunk's
ITEMS, WARPS = 8, 8  # items of a leaf; warps of a program that draws a chunk
MOST = 32  # chunks of which a single one accepts


@triton.jit(do_not_specialize=["same"])
def infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies,
    work, same, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """See kernels.infer."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = workspace(work, row, G)
    k = count_of(counts, same, row)
    epoch = tl.zeros([], tl.int32)
    valid, _chosen, shift, epoch = tilt_row(
        logits + row * n, k, tilted + row * n, n, board, counter, epoch, g, G, GP, TILE, WIDE
    )
    epoch = wait(counter, epoch, G)
    if valid > 0:
        mass, tails, likely, cross, ups, epoch = moments(
            tilted + row * n, k, logits, marginals + row * n, marginals, logits + row * n, n,
            board, counter, epoch, g, G, GP, TILE, WIDE, True,
        )  # fmt: skip
        if g == 0:
            entropy = mass + cross - tails
            entropy = tl.where(entropy < 0, 0.0, entropy)
            tl.store(log_partition + row, mass + likely - tails + shift * (ups - k))
            tl.store(log_mass + row, mass)
            tl.store(shifts + row, shift)
            tl.store(entropies + row, entropy)
    else:
        fill(marginals + row * n, float("nan"), n, g, G, TILE)
        if g == 0:
            tl.store(log_partition + row, float("nan"))
            tl.store(log_mass + row, float("nan"))
            tl.store(shifts + row, float("nan"))
            tl.store(entropies + row, float("nan"))


@triton.jit(do_not_specialize=["same"])
def tilt_kernel(
    logits, counts, tilted, work, same, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The tilted logits alone."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = workspace(work, row, G)
    tilt_row(
        logits + row * n, count_of(counts, same, row), tilted + row * n, n,
        board, counter, tl.zeros([], tl.int32), g, G, GP, TILE, WIDE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["same"])
def covariance_kernel(
    tilted, counts, vectors, product, work, same, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Cov v."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = workspace(work, row, G)
    # A row is NaN as a whole or not at all.
    first = tl.load(tilted + row * n)
    if first == first:
        moments(
            tilted + row * n, count_of(counts, same, row), vectors + row * n, product,
            product + row * n, tilted, n, board, counter, tl.zeros([], tl.int32), g,
            G, GP, TILE, WIDE, False,
        )  # fmt: skip
    else:
        fill(product + row * n, float("nan"), n, g, G, TILE)


@triton.jit(do_not_specialize=["same"])
def swap_kernel(
    tilted, counts, drawn, vectors, product, flows, work, same, n, rows, samples,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """sum_s L(z_s) v_s."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter = workspace(work, row, G)
    first = tl.load(tilted + row * n)
    if first == first:
        swap_row(
            tilted + row * n, count_of(counts, same, row), drawn + row * n, vectors + row * n,
            flows + row * n, product + row * n, n, (row * 0 + rows) * n, samples,
            board, counter, tl.zeros([], tl.int32), g, G, GP, TILE, WIDE, ONE,
        )  # fmt: skip
    else:
        fill(product + row * n, float("nan"), n, g, G, TILE)


_CONSTANTS = ("G", "GP", "TILE", "WIDE")
_infer = Launcher(infer_kernel, *_CONSTANTS)
_tilt_alone = Launcher(tilt_kernel, *_CONSTANTS)
_covariance = Launcher(covariance_kernel, *_CONSTANTS)
_swap = Launcher(swap_kernel, *_CONSTANTS, "ONE")
_count = Launcher(count_kernel, "CHUNK", "PER", "LEVEL")
_accept = Launcher(accept_kernel, "CHUNK", "PER", "LEVEL", "TRIES", "UNITS", "TILE", "WIDE")
_toss = Launcher(toss_kernel, "CHUNK", "PER", "LEVELS", "ROUNDS")


@cache
def _programs(rows: int, n: int, width: int, device: int) -> int:
    """Programs per row: as many as fill the chip with all rows, but one where rows do that, or
    where waiting for each other would take longer than a few batches of tiles."""
    if device < 0 or rows >= 64:
        return 1
    chip = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(n // (4 * width), chip // max(rows, 1)))


def _launch(
    launcher: Launcher,
    cut: Shape,
    on_rows: Tensor,
    k: Tensor | int,
    given: tuple[Tensor, ...],
    made: tuple[Tensor, ...],
    numbers: tuple[int, ...] = (),
    constants: tuple[int, ...] = (),
) -> None:
    """With a workspace."""
    rows, n = on_rows.shape
    if not rows:
        return
    per_row = _programs(rows, n, cut.tile * cut.wide, on_rows.get_device())
    alone = per_row == 1
    # Of twice as many float32: a type of its own costs time.
    work = on_rows.new_empty(2 * rows * words(per_row))
    if not alone:
        work.zero_()
    launcher(
        rows * per_row, on_rows, k, given, (*made, work), (n, *numbers),
        (per_row, _power(per_row), cut.tile, cut.wide, *constants), cut.warps, not alone,
    )  # fmt: skip


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def infer(logits: Tensor, k: Tensor | int) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits = logits.contiguous()
    rows, n = logits.shape
    marginals, tilted = logits.new_empty(rows, n), logits.new_empty(rows, n)
    log_partition, entropy = (logits.new_empty(rows) for _ in range(2))
    log_mass, shift = (logits.new_empty(rows, dtype=torch.float64) for _ in range(2))
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    _launch(_infer, MOMENTS, logits, k, (), results)
    return results


def tilt(logits: Tensor, k: Tensor | int) -> Tensor:
    """The tilted logits."""
    logits = logits.contiguous()
    tilted = logits.new_empty(logits.shape)
    _launch(_tilt_alone, MOMENTS, logits, k, (), (tilted,))
    return tilted


def covariance_product(tilted: Tensor, k: Tensor | int, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, v = tilted.contiguous(), v.contiguous()
    product = tilted.new_empty(tilted.shape)
    _launch(_covariance, MOMENTS, tilted, k, (v,), (product,))
    return product


def swap_product(tilted: Tensor, k: Tensor | int, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, z, v = tilted.contiguous(), z.contiguous(), v.contiguous()
    samples = z.shape[0]
    if not samples:
        return torch.zeros_like(tilted)
    product = tilted.new_empty(tilted.shape)
    flows = product if samples == 1 else tilted.new_empty(tilted.shape)
    numbers = (tilted.shape[0], samples)
    _launch(_swap, MOMENTS, tilted, k, (z, v), (product, flows), numbers, (samples == 1,))
    return product


def _levels(chunks: int, lines: int) -> list[tuple[int, int, int]]:
    """Of every level: its chunks, those of the unit that accepts, and the calls for four tries.

    A unit of u out of c chunks accepts about sqrt(u / c) of all tries. There are so many of them
    that in one of twenty samples some line needs more, which its program has to make by itself.
    """
    levels = []
    while chunks > 1:
        unit = 1 if chunks <= MOST else math.isqrt(chunks)
        rejected = 1 - math.sqrt(unit / chunks)
        levels.append((chunks, unit, math.ceil(math.log(20 * lines) / -math.log(rejected) / 4)))
        chunks = unit
    return levels


def sample(
    logits: Tensor, k: Tensor | int, seeds: Tensor, rounds: int = 1024
) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, seeds = logits.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    drawn = logits.new_empty(len(seeds), rows, n)
    tilted = tilt(logits, k)
    lines = drawn.shape[0] * rows
    if not lines:
        return drawn, tilted
    cut = SAMPLES
    size = cut.tile * cut.wide
    leaf = min(ITEMS, size)
    chunks = -(-n // size)
    levels = _levels(chunks, lines)
    states = logits.new_empty((len(levels) + 1) * lines * 5, dtype=torch.float64)
    for level, (parts, unit, calls) in enumerate(levels):
        sums = logits.new_empty(lines * parts * 4 * calls, dtype=torch.int32)
        spreads = logits.new_empty(lines * parts)
        work = logits.new_empty(2 * lines * words(1))
        counted, numbers = (sums, spreads), (n, rows, parts, calls)
        _count(
            lines * parts, tilted, k, (seeds,), (states, *counted), numbers,
            (size, leaf, level), WARPS,
        )  # fmt: skip
        _accept(
            lines, tilted, k, (seeds,), (drawn, states, *counted, work), (*numbers, unit, rounds),
            (
                size, leaf, level, _power(4 * calls), _power(-(-parts // unit)),
                cut.tile, cut.wide,
            ),
            cut.warps,
        )  # fmt: skip
    relatives = logits.new_empty(lines * (leaf + 1))
    _toss(
        lines * chunks, tilted, k, (seeds,), (drawn, states, relatives), (n, rows, chunks),
        (size, leaf, len(levels), rounds), WARPS,
    )  # fmt: skip
    return drawn, tilted
