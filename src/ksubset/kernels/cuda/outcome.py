"""Triton kernels that look at rows once, several short ones to a program: log-probabilities of
given subsets, and the most likely subset."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher

_INF = tl.constexpr(float("inf"))
_LANES = 1024  # items that a program has before it
MOST_FOR_MODE = 8192  # items of a row that fit in registers


@triton.jit
def _counts_of(counts, same, row):
    """launch.count_of for several rows."""
    same = row * 0 + same
    return tl.load(counts + row, same < 0, same)


@triton.jit(do_not_specialize=["same"])
def _outcome_kernel(
    tilted, counts, masses, drawn, values, same, n, rows, lines, ROWS: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """log p(z) = sum of the coins' log-probabilities of their outcomes in z, less log P(S = k)."""
    line = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = line < lines
    row = tl.where(here, line % rows, 0)
    k = _counts_of(counts, same, row)
    value = -tl.load(masses + row)
    ones = value * 0
    strange = tl.zeros([ROWS], tl.int32)
    first = 0
    while first < n:
        at = first + tl.arange(0, TILE)
        inside = here[:, None] & (at < n)[None, :]
        t = tl.load(tilted + row[:, None] * n + at[None, :], inside, -_INF)
        z = tl.load(drawn + line[:, None] * n + at[None, :], inside, 0.0)
        # The likelier side of every coin; and what it costs to show the other one.
        far = tl.abs(t).to(tl.float64)
        likely = -tl.log(1 + tl.exp(-far))
        value += tl.sum(likely - tl.where((z > 0) != (t > 0), far, 0.0), 1)
        ones += tl.sum(z.to(tl.float64), 1)
        strange += tl.sum(((z != 0) & (z != 1)).to(tl.int32), 1)
        first += TILE
    value = tl.where((value == value) & (ones != k.to(tl.float64)), -_INF, value)
    value = tl.where(strange > 0, float("nan"), value)
    tl.store(values + line, value, here)


@triton.jit(do_not_specialize=["same"])
def _mode_kernel(
    logits, counts, chosen, same, n, rows, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The k largest of a row: the k-th largest is found bit by bit, as the largest number that k
    items reach. Of items equal to it, those that come first are taken."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    at = tl.arange(0, BLOCK)
    inside = here[:, None] & (at < n)[None, :]
    place = row[:, None] * n + at[None, :]
    k = _counts_of(counts, same, tl.where(here, row, 0)).to(tl.int32)
    theta = tl.load(logits + place, inside, -_INF) + 0.0  # no negative zeros
    # As integers in the same order: below zero, larger magnitudes are smaller numbers.
    width: tl.constexpr = theta.dtype.primitive_bitwidth
    whole: tl.constexpr = tl.int64 if width == 64 else tl.int32
    bits = theta.to(whole, bitcast=True)
    key = tl.where(bits < 0, bits ^ ((1 << (width - 1)) - 1), bits)
    # From the sign on; adding to the smallest integer overflows into zero, as it should.
    at_least_zero = tl.sum((inside & (key >= 0)).to(tl.int32), 1) >= k
    reached = tl.where(at_least_zero, 0, -(1 << (width - 1))).to(whole)
    bit = tl.full([], 1 << (width - 2), whole)
    while bit > 0:
        higher = reached + bit
        enough = tl.sum((inside & (key >= higher[:, None])).to(tl.int32), 1) >= k
        reached = tl.where(enough, higher, reached)
        bit = bit >> 1
    above = inside & (key > reached[:, None])
    equal = (inside & (key == reached[:, None])).to(tl.int32)
    left = k - tl.sum(above.to(tl.int32), 1)
    taken = above | ((equal > 0) & (tl.cumsum(equal, 1) <= left[:, None]))
    taken = taken & (k > 0)[:, None]
    bad = tl.sum((inside & (theta != theta)).to(tl.int32), 1)
    allowed = tl.sum((inside & (theta > -_INF)).to(tl.int32), 1)
    forced = tl.sum((inside & (theta == _INF)).to(tl.int32), 1)
    possible = (bad == 0) & (k >= forced) & (k <= allowed)
    z = tl.where(possible[:, None], taken.to(theta.dtype), float("nan"))
    tl.store(chosen + place, z, inside)


_outcome = Launcher(_outcome_kernel, "ROWS", "TILE")
_mode = Launcher(_mode_kernel, "ROWS", "BLOCK")


def _together(n: int, most: int) -> tuple[int, int, int]:
    """Rows of a program, items of each at a time, and warps."""
    tile = min(most, 1 << (n - 1).bit_length())
    together = max(1, _LANES // tile)
    return together, tile, max(1, min(8, together * tile // 256))


def log_outcome(tilted: Tensor, log_mass: Tensor, k: Tensor | int, z: Tensor) -> Tensor:
    """See :func:`ksubset.kernels.log_outcome`."""
    tilted, log_mass, z = tilted.contiguous(), log_mass.contiguous(), z.contiguous()
    samples, rows, n = z.shape
    values = tilted.new_empty(samples, rows)
    if lines := samples * rows:
        together, tile, warps = _together(n, 2048)
        programs = -(-lines // together)
        given, numbers = (log_mass, z), (n, rows, lines)
        _outcome(programs, tilted, k, given, (values,), numbers, (together, tile), warps)
    return values


def mode(logits: Tensor, k: Tensor | int) -> Tensor:
    """See :func:`ksubset.kernels.mode`."""
    logits = logits.contiguous()
    rows, n = logits.shape
    chosen = torch.empty_like(logits)
    if rows:
        together, block, warps = _together(n, MOST_FOR_MODE)
        programs = -(-rows // together)
        _mode(programs, logits, k, (), (chosen,), (n, rows), (together, block), warps)
    return chosen
