"""Triton kernels for rows that fit in registers: a program has one row or several, as a tile of
rows and items.

Nothing here synchronises with the host; every loop is bounded.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher
from ksubset.kernels.cuda.moments import coins, rarer_sides
from ksubset.kernels.cuda.sampling import one_by_one
from ksubset.kernels.cuda.short import leaves
from ksubset.kernels.cuda.short.leaves import draw_counts, marks_of, toss_leaves
from ksubset.kernels.cuda.short.moments import (
    NODES,
    at_items,
    centre,
    in_lanes,
    nodes_of,
    survey,
    words,
)
from ksubset.kernels.cuda.short.tilt import tilt_rows
from ksubset.kernels.cuda.swaps import flow_of, mean_of, swapped
from ksubset.kernels.cuda.tilt import add3, add4

MAX_ITEMS = 8192
_INF = tl.constexpr(float("inf"))


@triton.jit
def _tile(counts, same, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of this program, (R, 1), which of them are real, their k, the places of their items,
    (R, BLOCK), and which of these exist."""
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    real = row < rows
    row = tl.minimum(row, rows - 1)
    k = tl.load(counts + row, real & (row * 0 + same < 0), same)
    at = tl.arange(0, BLOCK)[None, :]
    return row, real, k, row * n + at, real & (at < n)


@triton.jit(do_not_specialize=["same"])
def _tilt_kernel(logits, counts, tilted, same, n, rows, R: tl.constexpr, BLOCK: tl.constexpr):
    _row, _real, k, at, inside = _tile(counts, same, rows, n, R, BLOCK)
    t, _first, _second = tilt_rows(tl.load(logits + at, inside, -_INF), k, inside)
    tl.store(tilted + at, t, inside)


@triton.jit(do_not_specialize=["same"])
def _infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies, shared, same,
    n, rows,
    R: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, NODES: tl.constexpr,
    IN_LANES: tl.constexpr,
):  # fmt: skip
    row, real, k, at, inside = _tile(counts, same, rows, n, R, BLOCK)
    theta = tl.load(logits + at, inside, -_INF)
    t, first, second = tilt_rows(theta, k, inside)
    tl.store(tilted + at, t, inside)
    up, x, pq, skew, variance, heads, number = survey(t, k, inside)
    # The marginals' place serves as working space until they are known.
    tl.store(marginals + at, tl.where(up, -x, x), inside)
    tl.debug_barrier()
    line = marginals + row * n
    nodes = nodes_of(line, line, variance, heads, number, n, R, PARTS, NODES, True, False)
    correction, _within = at_items(
        pq, skew, nodes, shared + row * _WORDS, real, NODES, False, IN_LANES
    )
    tl.debug_barrier()
    y = rarer_sides(up, x, pq, correction)
    tl.store(marginals + at, tl.where(up, 1 - y, y), inside)
    # See coins.log_partition and Coins.entropy.
    wide = tl.log(nodes[7] / number.to(tl.float64))
    finite = tl.abs(theta) < _INF
    far = tl.where(tl.abs(t) < _INF, tl.abs(t), 0.0) * y
    log_tails, likely, cross = tl.reduce(
        (
            tl.log(1 - x.to(tl.float64)),
            tl.where(up & finite, theta, 0.0).to(tl.float64),
            tl.where(inside, far, 0.0).to(tl.float64),
        ),
        1,
        add3,
        keep_dims=True,
    )
    shift = first.to(tl.float64) + second.to(tl.float64)
    entropy = wide + cross - log_tails
    entropy = tl.where(entropy < 0, 0.0, entropy)
    tl.store(log_partition + row, wide + likely - log_tails - shift * heads, real)
    tl.store(log_mass + row, wide, real)
    tl.store(shifts + row, shift, real)
    tl.store(entropies + row, entropy, real)


_WORDS = tl.constexpr(60)


@triton.jit(do_not_specialize=["same"])
def _covariance_kernel(
    tilted, counts, vectors, product, weights, shared, same, n, rows,
    R: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, NODES: tl.constexpr,
    IN_LANES: tl.constexpr,
):  # fmt: skip
    row, real, k, at, inside = _tile(counts, same, rows, n, R, BLOCK)
    up, x, pq, skew, variance, heads, number = survey(tl.load(tilted + at, inside, -_INF), k, inside)
    v = centre(tl.load(vectors + at, inside, 0.0), pq, variance)
    tl.store(product + at, tl.where(up, -x, x), inside)
    tl.store(weights + at, pq * v, inside)
    tl.debug_barrier()
    nodes = nodes_of(
        product + row * n, weights + row * n, variance, heads, number, n,
        R, PARTS, NODES, False, True,
    )  # fmt: skip
    across, within = at_items(
        pq, skew, nodes, shared + row * _WORDS, real, NODES, True, IN_LANES
    )
    tl.debug_barrier()
    tl.store(product + at, pq * (across + v * within), inside)


@triton.jit(do_not_specialize=["same"])
def _swap_kernel(
    tilted, counts, drawn, vectors, product, shared, same, n, rows, samples,
    R: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, NODES: tl.constexpr,
    IN_LANES: tl.constexpr,
):  # fmt: skip
    row, real, k, at, inside = _tile(counts, same, rows, n, R, BLOCK)
    up, x, pq, skew, variance, heads, number = survey(tl.load(tilted + at, inside, -_INF), k, inside)
    tl.store(product + at, tl.where(up, -x, x), inside)
    tl.debug_barrier()
    line = product + row * n
    nodes = nodes_of(line, line, variance, heads, number, n, R, PARTS, NODES, False, False)
    correction, _within = at_items(
        pq, skew, nodes, shared + row * _WORDS, real, NODES, False, IN_LANES
    )
    rarer = rarer_sides(up, x, pq, correction)
    total = tl.zeros_like(x)
    for s in range(samples):
        place = at + s * (row * 0 + rows) * n
        chosen = tl.load(drawn + place, inside, 0.0) > 0.5
        v = tl.load(vectors + place, inside, 0.0)
        flow = flow_of(up, pq, rarer, chosen)
        wide = flow.to(tl.float64)
        of_v = tl.where(flow == 0, 0.0, wide * v)
        out, of_out, into, of_into = tl.reduce(
            (
                tl.where(chosen, wide, 0.0),
                tl.where(chosen, of_v, 0.0),
                tl.where(chosen, 0.0, wide),
                tl.where(chosen, 0.0, of_v),
            ),
            1,
            add4,
            keep_dims=True,
        )
        total += swapped(flow, chosen, v, mean_of(of_out, out), mean_of(of_into, into))
    tl.debug_barrier()
    tl.store(product + at, total, inside)


@triton.jit(do_not_specialize=["same"])
def _sample_kernel(
    logits, counts, keys, drawn, tilted, same, n, rows, samples,
    R: tl.constexpr, BLOCK: tl.constexpr, LEAVES: tl.constexpr, STATES: tl.constexpr,
    ROUNDS: tl.constexpr, FALLBACK: tl.constexpr,
):  # fmt: skip
    row, real, k, at, inside = _tile(counts, same, rows, n, R, BLOCK)
    t, _first, _second = tilt_rows(tl.load(logits + at, inside, -_INF), k, inside)
    tl.store(tilted + at, t, inside)
    bad = tl.max(((t != t) & inside).to(tl.int32), 1, keep_dims=True) > 0
    tl.debug_barrier()
    # Heads are the items chosen, or those left out if these are fewer.
    few = 2 * k <= n
    sign = tl.where(few, 1.0, -1.0)
    wanted = tl.where(few, k, n - k).to(tl.int32)
    leaf = tl.arange(0, LEAVES)[None, :]
    per = (n + LEAVES - 1) // LEAVES
    for s in range(samples):
        line = s * (row * 0 + rows) + row  # of many samples, more than 32 bits have room for
        key = tl.load(keys + line)
        chance, marks = toss_leaves(tilted + row * n, leaf, per, n, sign, key, LEAVES, STATES)
        missing = bad & real & (real == 0)
        if LEAVES == 1:
            heads = wanted
        else:
            heads, missing = draw_counts(
                chance, wanted, real & (bad == 0), drawn + line * n, leaf, key,
                LEAVES, STATES, ROUNDS,
            )  # fmt: skip
            tl.debug_barrier()
        chosen = marks_of(marks, heads, STATES)
        i = tl.arange(0, BLOCK // LEAVES)[None, :, None]
        item = i * LEAVES + leaf[:, None, :]
        shown = (((chosen[:, None, :] >> i) & 1) == 1) == few[:, :, None]
        z = tl.where(bad[:, :, None], float("nan"), shown.to(tl.float32))
        place = drawn + line[:, :, None] * n + item
        tl.store(place, z, real[:, :, None] & (item < n))
        if LEAVES > 1:
            if tl.max(missing.to(tl.int32)) > 0:
                tl.debug_barrier()
                one_by_one_of(
                    tilted, drawn, row, line, k, missing, key, n, R, BLOCK, FALLBACK
                )


@triton.jit
def one_by_one_of(
    tilted, drawn, row, line, k, missing, key, n,
    R: tl.constexpr, BLOCK: tl.constexpr, FALLBACK: tl.constexpr,
):  # fmt: skip
    """Rows whose tries ran out, item by item."""
    lane = tl.arange(0, R)[:, None]
    item = tl.arange(0, BLOCK)
    for r in range(R):
        mine = lane == r
        if tl.sum(tl.where(mine & missing, 1, 0)) > 0:
            here = tl.sum(tl.where(mine, row, 0))
            t = tl.load(tilted + here * n + item, item < n, -_INF)
            _up, _x, pq, _skew = coins(t, item < n)
            variance, free_count, forced = tl.reduce(
                (pq, (tl.abs(t) < _INF).to(tl.float32), (t == _INF).to(tl.float32)), 0, add3
            )
            # Wider than for moments: right also far from the mean.
            number = tl.minimum(free_count + 1, 26 + 13 * tl.sqrt(variance))
            number = 2 * tl.ceil((number - 1) * 0.5) + 1
            one_by_one(
                tilted + here * n, drawn + tl.sum(tl.where(mine, line, 0)) * n,
                tl.sum(tl.where(mine, k, 0)).to(tl.float64) - forced.to(tl.float64),
                number.to(tl.float64), free_count.to(tl.float64),
                tl.sum(tl.where(mine, key, 0)), n, FALLBACK,
            )  # fmt: skip


_infer = Launcher(_infer_kernel, "R", "BLOCK", "PARTS", "NODES", "IN_LANES")
_tilt = Launcher(_tilt_kernel, "R", "BLOCK")
_covariance = Launcher(_covariance_kernel, "R", "BLOCK", "PARTS", "NODES", "IN_LANES")
_swap = Launcher(_swap_kernel, "R", "BLOCK", "PARTS", "NODES", "IN_LANES")
_sample = Launcher(_sample_kernel, "R", "BLOCK", "LEAVES", "STATES", "ROUNDS", "FALLBACK")


def _block(n: int) -> int:
    """The width of a row's tile, a power of two."""
    return 1 << (n - 1).bit_length()


def _together(rows: int, block: int) -> tuple[int, int]:
    """How many rows a program has, and its warps."""
    if block >= 2048:
        return 1, 8
    if block >= 256:
        return 1, 4 if rows < 1024 or block >= 1024 else 2
    most = max(1, 2048 // block)
    enough = 1
    while enough < most and rows // (2 * enough) >= 256:
        enough *= 2
    return enough, max(1, min(4, enough * block // 128))


def _nodes(n: int) -> int:
    return 8 if n <= 14 else NODES


def _parts(together: int, warps: int, block: int, nodes: int) -> int:
    """Into how many parts a row's items are cut for its nodes."""
    lanes = 64 * warps
    parts = 1
    while parts < 32 and 2 * parts * together * nodes <= lanes and block // parts >= 16:
        parts *= 2
    return parts


def _moments(rows: int, n: int) -> tuple[tuple[int, ...], int]:
    """Constants of kernels of moments, and warps."""
    block = _block(n)
    together, warps = _together(rows, block)
    nodes = _nodes(n)
    parts = _parts(together, warps, block, nodes)
    return (together, block, parts, nodes, in_lanes(block)), warps


def _shared(like: Tensor, n: int) -> Tensor:
    return like.new_empty(max(1, like.shape[0] * words(_block(n))))


def _programs(rows: int, together: int) -> int:
    return -(-rows // together)


def infer(logits: Tensor, k: Tensor | int) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits = logits.contiguous()
    rows, n = logits.shape
    marginals, tilted = logits.new_empty(rows, n), logits.new_empty(rows, n)
    log_partition, entropy = (logits.new_empty(rows) for _ in range(2))
    log_mass, shift = (logits.new_empty(rows, dtype=torch.float64) for _ in range(2))
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    if rows:
        constants, warps = _moments(rows, n)
        _infer(
            _programs(rows, constants[0]), logits, k, (), (*results, _shared(logits, n)),
            (n, rows), constants, warps,
        )  # fmt: skip
    return results


def tilt(logits: Tensor, k: Tensor | int) -> Tensor:
    """The tilted logits."""
    logits = logits.contiguous()
    rows, n = logits.shape
    tilted = logits.new_empty(rows, n)
    if rows:
        block = _block(n)
        together, warps = _together(rows, block)
        _tilt(
            _programs(rows, together), logits, k, (), (tilted,), (n, rows), (together, block), warps
        )
    return tilted


def covariance_product(tilted: Tensor, k: Tensor | int, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, v = tilted.contiguous(), v.contiguous()
    rows, n = tilted.shape
    product, weights = tilted.new_empty(rows, n), tilted.new_empty(rows, n)
    if rows:
        constants, warps = _moments(rows, n)
        _covariance(
            _programs(rows, constants[0]), tilted, k, (v,),
            (product, weights, _shared(tilted, n)), (n, rows), constants, warps,
        )  # fmt: skip
    return product


def swap_product(tilted: Tensor, k: Tensor | int, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, z, v = tilted.contiguous(), z.contiguous(), v.contiguous()
    rows, n = tilted.shape
    product = tilted.new_empty(rows, n)
    if rows:
        constants, warps = _moments(rows, n)
        _swap(
            _programs(rows, constants[0]), tilted, k, (z, v), (product, _shared(tilted, n)),
            (n, rows, z.shape[0]), constants, warps,
        )  # fmt: skip
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
        block = _block(n)
        together, warps = _together(rows, block)
        number = max(1, block // leaves.ITEMS)
        per = -(-n // number)
        heads = min(k, n - k) if isinstance(k, int) else n // 2
        states = max(2, 1 + min(per, heads))
        _sample(
            _programs(rows, together), logits, k, (seeds,), (drawn, tilted), (n, rows, samples),
            (together, block, number, states, rounds, min(512, max(16, block))), warps,
        )  # fmt: skip
    return drawn, tilted
