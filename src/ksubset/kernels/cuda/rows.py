"""Triton kernels for rows that fit in registers: one program per row, one pass over it.

A kernel computes in the type of its rows, float32 or float64. Nothing here synchronises with the
host; every loop is bounded.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher, count_of
from ksubset.kernels.cuda.leaves import draw
from ksubset.kernels.cuda.light import MOST_COLLISIONS, draw_light, odds_of, running_sums
from ksubset.kernels.cuda.moments import moments, rarer_sides
from ksubset.kernels.cuda.one_by_one import one_by_one
from ksubset.kernels.cuda.outcome import log_outcome, mode
from ksubset.kernels.cuda.swaps import flow_of, mean_of, swapped
from ksubset.kernels.cuda.tilt import add2, add3, tilt_row

__all__ = [
    "MAX_ITEMS",
    "covariance_product",
    "infer",
    "log_outcome",
    "mode",
    "sample",
    "swap_product",
    "tilt",
]

MAX_ITEMS = 8192
ITEMS = 8  # of a leaf
_INF = tl.constexpr(float("inf"))


@triton.jit(do_not_specialize=["same"])
def _tilt_kernel(logits, counts, tilted, same, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, _first, _second = tilt_row(theta, count_of(counts, same, row), inside)
    tl.store(tilted + row * n + at, t, inside)


@triton.jit(do_not_specialize=["same"])
def _infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies, same, n,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    k = count_of(counts, same, row)
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, first, second = tilt_row(theta, k, inside)
    up, x, pq, mass, correction, _product = moments(t, k, t, inside, True, False)
    y = rarer_sides(up, x, pq, correction)
    tl.store(tilted + row * n + at, t, inside)
    tl.store(marginals + row * n + at, tl.where(up, 1 - y, y), inside)
    # See coins.log_partition and Coins.entropy. Logits near the end of float64 may add up to more.
    finite = tl.abs(theta) < _INF
    scale: tl.constexpr = 2.0**-64 if theta.dtype == tl.float64 else 1.0
    far = tl.where(tl.abs(t) < _INF, tl.abs(t), 0.0) * y
    log_tails, likely, cross = tl.reduce(
        (
            tl.log(1 - x.to(tl.float64)),
            tl.where(up & finite, theta * scale, 0.0).to(tl.float64),
            tl.where(inside, far, 0.0).to(tl.float64),
        ),
        0,
        add3,
    )
    ups = tl.sum((up & inside).to(theta.dtype), 0)
    shift = first.to(tl.float64) + second.to(tl.float64)
    wide = mass.to(tl.float64)
    entropy = wide + cross - log_tails
    entropy = tl.where(entropy < 0, 0.0, entropy)
    overshoot = (ups - k.to(theta.dtype)).to(tl.float64)
    likely = (likely + shift * scale * overshoot) / scale
    tl.store(log_partition + row, wide + likely - log_tails)
    tl.store(log_mass + row, mass)
    tl.store(shifts + row, shift)
    tl.store(entropies + row, entropy)


@triton.jit(do_not_specialize=["same"])
def _covariance_kernel(tilted, counts, vectors, product, same, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    t = tl.load(tilted + row * n + at, inside, -_INF)
    v = tl.load(vectors + row * n + at, inside, 0.0)
    k = count_of(counts, same, row)
    _up, _x, pq, _mass, _correction, cov = moments(t, k, v, inside, False, True)
    tl.store(product + row * n + at, pq * cov, inside)


@triton.jit(do_not_specialize=["same"])
def _swap_kernel(
    tilted, counts, drawn, vectors, product, same, n, rows, samples, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    t = tl.load(tilted + row * n + at, inside, -_INF)
    k = count_of(counts, same, row)
    # Loaded ahead, as moments take a while.
    place = row * n + at
    chosen = tl.load(drawn + place, inside, 0.0) > 0.5
    v = tl.load(vectors + place, inside, 0.0)
    up, x, pq, _mass, correction, centre = moments(t, k, v, inside, False, False)
    rarer = rarer_sides(up, x, pq, correction)
    total = tl.zeros_like(t)
    for s in range(samples):
        if s > 0:
            place = (s * (row * 0 + rows) + row) * n + at
            chosen = tl.load(drawn + place, inside, 0.0) > 0.5
            v = tl.load(vectors + place, inside, 0.0)
            weighted, variance = tl.reduce((tl.where(pq > 0, v * pq, 0.0), pq), 0, add2)
            centre = weighted / tl.maximum(variance, 1e-37)
        flow = flow_of(up, pq, rarer, chosen)
        # Less what is typical of v: if that is far from zero, there is room for what is left.
        apart = tl.where(flow == 0, 0.0, v - centre)
        out, of_out, of_into = tl.reduce(
            (
                tl.where(chosen, flow, 0.0),
                tl.where(chosen, flow * apart, 0.0),
                tl.where(chosen, 0.0, flow * apart),
            ),
            0,
            add3,
        )
        # As much flows into the others as out of chosen items.
        total += swapped(flow, chosen, apart, mean_of(of_out, out), mean_of(of_into, out))
    tl.store(product + row * n + at, total, inside)


@triton.jit
def _draw(tilted, k, key, n, place, BLOCK: tl.constexpr, PER: tl.constexpr, ROUNDS: tl.constexpr):
    """By leaves. An item's neighbours are in other ones."""
    leaves: tl.constexpr = BLOCK // PER
    # In an order that the compiler cannot see through: it would load and store several neighbours
    # at a time, and move items between threads before and after that.
    leaf = tl.arange(0, leaves) ^ tl.where(k < 0, 1, 0)
    at = ()
    for i in tl.static_range(PER):
        at = at + (i * leaves + leaf,)
    return draw(tilted, 0.0, at, k, key, n, place, place, PER, leaves, ROUNDS)


@triton.jit(do_not_specialize=["same"])
def _sample_kernel(
    logits, counts, keys, drawn, tilted, scratch, same, n, rows, samples,
    BLOCK: tl.constexpr, PER: tl.constexpr, DRAWS: tl.constexpr, ROUNDS: tl.constexpr,
    NODES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    k = count_of(counts, same, row)
    sums = scratch.to(tl.pointer_type(tl.float64), bitcast=True) + row * n
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, _first, _second = tilt_row(theta, k, inside)
    tl.store(tilted + row * n + at, t, inside)
    bad = tl.max(((t != t) & inside).to(tl.int32), 0)
    light = bad * 0
    if DRAWS > 0:
        odds = odds_of(t, inside)
        collisions = tl.sum(odds * odds, 0)
        light = tl.where((k > 0) & (k <= DRAWS) & (collisions < MOST_COLLISIONS), 1, 0)
        whole = tl.zeros([], tl.float64)
        if light > 0:
            whole = running_sums(odds, sums, n, BLOCK)
    tl.debug_barrier()
    for s in range(samples):
        line = s * (row * 0 + rows) + row  # of many samples, more than 32 bits have room for
        key = tl.load(keys + line)
        place = drawn + line * n
        found = bad
        if DRAWS > 0:
            if light > 0:
                found = draw_light(whole, sums, k.to(tl.int32), key, place, n, BLOCK, DRAWS)
        if found == 0:
            found = _draw(tilted + row * n, k.to(tl.int32), key, n, place, BLOCK, PER, ROUNDS)
        if bad > 0:
            tl.store(place + at, t, inside)
        if found == 0:
            tl.debug_barrier()
            one_by_one(tilted + row * n, place, k, key, n, NODES)


_infer = Launcher(_infer_kernel, "BLOCK")
_tilt = Launcher(_tilt_kernel, "BLOCK")
_covariance = Launcher(_covariance_kernel, "BLOCK")
_swap = Launcher(_swap_kernel, "BLOCK")
# With more registers, eight rows of 1024 items would not be in a multiprocessor at a time.
_sample = Launcher(_sample_kernel, "BLOCK", "PER", "DRAWS", "ROUNDS", "NODES", maxnreg=128)


def _shape(on_rows: Tensor, items_per_warp: int = 256) -> tuple[int, int]:
    """The width of a program, a power of two, and its warps.

    Measured on an H200: few rows leave the chip room for more warps each, and many rows want them
    narrow. docs/decisions.md has the figures.
    """
    rows, n = on_rows.shape
    block = 1 << (n - 1).bit_length()
    if rows < 512:
        items_per_warp = 128
    most = 8
    if on_rows.dtype == torch.float64:  # twice the registers for an item
        items_per_warp, most = items_per_warp // 2, 16
    return block, min(most, max(1, block // items_per_warp))


def infer(logits: Tensor, k: Tensor | int) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits = logits.contiguous()
    rows, n = logits.shape
    marginals, tilted = logits.new_empty(rows, n), logits.new_empty(rows, n)
    log_partition, entropy = (logits.new_empty(rows) for _ in range(2))
    log_mass, shift = (logits.new_empty(rows, dtype=torch.float64) for _ in range(2))
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    if rows:
        block, warps = _shape(logits)
        _infer(rows, logits, k, (), results, (n,), (block,), warps)
    return results


def tilt(logits: Tensor, k: Tensor | int) -> Tensor:
    """The tilted logits."""
    logits = logits.contiguous()
    rows, n = logits.shape
    tilted = logits.new_empty(rows, n)
    if rows:
        block, warps = _shape(logits)
        _tilt(rows, logits, k, (), (tilted,), (n,), (block,), warps)
    return tilted


def covariance_product(tilted: Tensor, k: Tensor | int, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, v = tilted.contiguous(), v.contiguous()
    rows, n = tilted.shape
    product = tilted.new_empty(rows, n)
    if rows:
        block, warps = _shape(tilted, 512)
        _covariance(rows, tilted, k, (v,), (product,), (n,), (block,), warps)
    return product


def swap_product(tilted: Tensor, k: Tensor | int, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, z, v = tilted.contiguous(), z.contiguous(), v.contiguous()
    rows, n = tilted.shape
    if not z.shape[0]:
        return torch.zeros_like(tilted)
    product = tilted.new_empty(rows, n)
    if rows:
        block, warps = _shape(tilted, 512)
        _swap(rows, tilted, k, (z, v), (product,), (n, rows, z.shape[0]), (block,), warps)
    return product


def sample(
    logits: Tensor, k: Tensor | int, seeds: Tensor, rounds: int = 1024
) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, seeds = logits.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    samples = seeds.shape[0]
    drawn = logits.new_empty(samples, rows, n)
    tilted = logits.new_empty(rows, n)
    if rows:
        block, warps = _shape(logits, 512)
        draws = 0 if n < 64 else 64 if n <= 1024 else 512
        # Running sums of odds, in float64; without draws from them, nobody writes here.
        scratch = logits.new_empty(rows, 8 * n // logits.element_size()) if draws else tilted
        _sample(
            rows, logits, k, (seeds,), (drawn, tilted, scratch), (n, rows, samples),
            (block, min(ITEMS, block), draws, rounds, min(64, max(16, block))), warps,
        )  # fmt: skip
    return drawn, tilted
