"""Triton kernels for rows that do not fit in registers: in tiles, by several programs per row
(:mod:`.board`).

One launch does everything: no step waits for the host. Where a row has several programs all of them
must be on the chip at once, which a cooperative launch guarantees.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher, count_of
from ksubset.kernels.cuda.light import MOST_COLLISIONS, draw_light
from ksubset.kernels.cuda.long.board import wait, words, workspace
from ksubset.kernels.cuda.long.moments import fill, moments
from ksubset.kernels.cuda.long.sampling import draw_row, survey_odds
from ksubset.kernels.cuda.long.swaps import swap_product as swap_row
from ksubset.kernels.cuda.long.tilt import tilt as tilt_row
from ksubset.kernels.cuda.outcome import log_outcome
from ksubset.kernels.cuda.sampling import one_by_one

__all__ = ["covariance_product", "infer", "log_outcome", "sample", "swap_product", "tilt"]


class Shape(NamedTuple):
    """How a row is cut up."""

    tile: int  # items
    wide: int  # tiles worked on at a time
    warps: int


MOMENTS = Shape(tile=2048, wide=1, warps=16)
SAMPLES = Shape(tile=256, wide=8, warps=16)
_PER_BLOCK = 8  # items whose odds are added up in one (light.py)


@triton.jit(do_not_specialize=["same"])
def infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies,
    work, same, n,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """See kernels.infer."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    board, counter, _rest = workspace(work, row, 0, G)
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
    board, counter, _rest = workspace(work, row, 0, G)
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
    board, counter, _rest = workspace(work, row, 0, G)
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
    board, counter, _rest = workspace(work, row, 0, G)
    first = tl.load(tilted + row * n)
    if first == first:
        swap_row(
            tilted + row * n, count_of(counts, same, row), drawn + row * n, vectors + row * n,
            flows + row * n, product + row * n, n, (row * 0 + rows) * n, samples,
            board, counter, tl.zeros([], tl.int32), g, G, GP, TILE, WIDE, ONE,
        )  # fmt: skip
    else:
        fill(product + row * n, float("nan"), n, g, G, TILE)


@triton.jit(do_not_specialize=["same"])
def sample_kernel(
    logits, counts, keys, drawn, tilted, work, same, n, rows, samples,
    G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    LANES: tl.constexpr, PER: tl.constexpr, DRAWS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Samples, and the tilted logits."""
    row = (tl.program_id(0) // G).to(tl.int64)
    g = tl.program_id(0) % G
    # Only a row's lone program draws with replacement.
    blocks = (n + PER - 1) // PER if G == 1 else 0
    board, counter, sums = workspace(work, row, blocks, G)
    k = count_of(counts, same, row)
    epoch = tl.zeros([], tl.int32)
    valid, chosen, _shift, epoch = tilt_row(
        logits + row * n, k, tilted + row * n, n, board, counter, epoch, g, G, GP, TILE, WIDE
    )
    epoch = wait(counter, epoch, G)
    light = tl.zeros([], tl.int32)
    whole = tl.zeros([], tl.float64)
    if G == 1:
        if (k > 0) & (k <= DRAWS):
            whole, collisions = survey_odds(tilted + row * n, sums, n, TILE, WIDE, PER)
            light = tl.where(collisions < MOST_COLLISIONS, 1, 0)
            tl.debug_barrier()
    for s in range(samples):
        line = s * (row * 0 + rows) + row  # of many samples, more than 32 bits have room for
        place = drawn + line * n
        key = tl.load(keys + line)
        if valid > 0:
            found = light * 0
            if G == 1:
                if light > 0:
                    found = draw_light(
                        whole, tilted + row * n, sums, k.to(tl.int32), key, place, n,
                        TILE * WIDE, DRAWS, PER,
                    )  # fmt: skip
            if found == 0:
                found, epoch = draw_row(
                    tilted + row * n, chosen, key, place, n, board, counter, epoch, g,
                    G, GP, TILE, WIDE, LANES, ROUNDS,
                )  # fmt: skip
            if (found == 0) & (g == 0):
                tl.debug_barrier()
                one_by_one(tilted + row * n, place, k, key, n, 64)
        else:
            fill(place, float("nan"), n, g, G, TILE)


_CONSTANTS = ("G", "GP", "TILE", "WIDE")
_infer = Launcher(infer_kernel, *_CONSTANTS)
_tilt_alone = Launcher(tilt_kernel, *_CONSTANTS)
_covariance = Launcher(covariance_kernel, *_CONSTANTS)
_swap = Launcher(swap_kernel, *_CONSTANTS, "ONE")
_sample = Launcher(sample_kernel, *_CONSTANTS, "LANES", "PER", "DRAWS", "ROUNDS")


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
    more: int = 0,
) -> None:
    """With a workspace, which has ``more`` numbers for every row that has one program."""
    rows, n = on_rows.shape
    if not rows:
        return
    per_row = _programs(rows, n, cut.tile * cut.wide, on_rows.get_device())
    alone = per_row == 1
    # Of twice as many float32: a type of its own costs time.
    work = on_rows.new_empty(2 * rows * words(per_row, more if alone else 0))
    if not alone:
        work.zero_()
    power = 1 << (per_row - 1).bit_length()
    launcher(
        rows * per_row, on_rows, k, given, (*made, work), (n, *numbers),
        (per_row, power, cut.tile, cut.wide, *constants), cut.warps, not alone,
    )  # fmt: skip


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


def sample(
    logits: Tensor, k: Tensor | int, seeds: Tensor, rounds: int = 1024
) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, seeds = logits.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    drawn = logits.new_empty(len(seeds), rows, n)
    tilted = logits.new_empty(logits.shape)
    _launch(
        _sample, SAMPLES, logits, k, (seeds,), (drawn, tilted), (rows, len(seeds)),
        (128 * SAMPLES.warps, _PER_BLOCK, 512, rounds), -(-n // _PER_BLOCK),
    )  # fmt: skip
    return drawn, tilted
