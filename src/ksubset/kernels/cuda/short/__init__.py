"""Triton kernels for short rows, several of which a program has in registers (:mod:`.items`).

float32 only. Nothing here synchronises with the host; every loop is bounded.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ksubset.kernels.cuda.launch import Launcher
from ksubset.kernels.cuda.one_by_one import one_by_one
from ksubset.kernels.cuda.outcome import log_outcome, mode
from ksubset.kernels.cuda.short.items import counts_of, in_lanes, load_items, rows_of, store_items
from ksubset.kernels.cuda.short.leaves import draw_counts, of_count, toss_leaves
from ksubset.kernels.cuda.short.moments import moments
from ksubset.kernels.cuda.short.tilt import tilt_rows
from ksubset.kernels.cuda.swaps import flow_of, mean_of, swapped
from ksubset.kernels.cuda.tilt import add3

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

MAX_ITEMS = 128
_INF = tl.constexpr(float("inf"))


@triton.jit(do_not_specialize=["same"])
def _tilt_kernel(
    logits, counts, tilted, same, n, rows,
    R: tl.constexpr, LANES: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    each, row, real, lane = rows_of(rows, R, LANES)
    theta = load_items(logits + row * n, lane, n, -_INF, PER, LANES)
    t, _first, _second = tilt_rows(theta, counts_of(counts, same, each, lane), lane, n, PER, LANES)
    store_items(tilted + row * n, t, lane, n, real, PER, LANES)


@triton.jit(do_not_specialize=["same"])
def _infer_kernel(
    logits, counts, log_partition, marginals, tilted, log_mass, shifts, entropies, same, n, rows,
    R: tl.constexpr, LANES: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    each, row, real, lane = rows_of(rows, R, LANES)
    k = counts_of(counts, same, each, lane)
    theta = load_items(logits + row * n, lane, n, -_INF, PER, LANES)
    t, first, second = tilt_rows(theta, k, lane, n, PER, LANES)
    store_items(tilted + row * n, t, lane, n, real, PER, LANES)
    up, x, _pq, rarer, _product, mass, ups, _variance = moments(t, k, t, True, False, PER, LANES)
    # See coins.log_partition and Coins.entropy.
    mu = ()
    log_tails = (k * 0).to(tl.float64)
    likely = log_tails
    cross = log_tails
    for i in tl.static_range(PER):
        y = rarer[i]
        mu = mu + (tl.where(up[i], 1 - y, y),)
        far = tl.where(tl.abs(t[i]) < _INF, tl.abs(t[i]), 0.0) * y
        finite = tl.abs(theta[i]) < _INF
        log_tails += tl.log(1 - x[i].to(tl.float64))
        likely += tl.where(up[i] & finite, theta[i], 0.0).to(tl.float64)
        cross += tl.where(i * LANES + lane < n, far, 0.0).to(tl.float64)
    store_items(marginals + row * n, mu, lane, n, real, PER, LANES)
    log_tails, likely, cross = tl.reduce((log_tails, likely, cross), 1, add3, keep_dims=True)
    shift = first.to(tl.float64) + second.to(tl.float64)
    entropy = mass + cross - log_tails
    entropy = tl.where(entropy < 0, 0.0, entropy)
    overshoot = (ups - k.to(tl.float32)).to(tl.float64)
    real = real & (lane == 0)
    tl.store(log_partition + row, mass + likely - log_tails + shift * overshoot, real)
    tl.store(log_mass + row, mass, real)
    tl.store(shifts + row, shift, real)
    tl.store(entropies + row, entropy, real)


@triton.jit(do_not_specialize=["same"])
def _covariance_kernel(
    tilted, counts, vectors, product, same, n, rows,
    R: tl.constexpr, LANES: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    each, row, real, lane = rows_of(rows, R, LANES)
    k = counts_of(counts, same, each, lane)
    t = load_items(tilted + row * n, lane, n, -_INF, PER, LANES)
    v = load_items(vectors + row * n, lane, n, 0.0, PER, LANES)
    _up, _x, _pq, _rarer, products, _mass, _ups, _variance = moments(
        t, k, v, False, True, PER, LANES
    )
    store_items(product + row * n, products, lane, n, real, PER, LANES)


@triton.jit(do_not_specialize=["same"])
def _swap_kernel(
    tilted, counts, drawn, vectors, product, same, n, rows, samples,
    R: tl.constexpr, LANES: tl.constexpr, PER: tl.constexpr,
):  # fmt: skip
    each, row, real, lane = rows_of(rows, R, LANES)
    k = counts_of(counts, same, each, lane)
    t = load_items(tilted + row * n, lane, n, -_INF, PER, LANES)
    # Loaded ahead, as moments take a while.
    z = load_items(drawn + row * n, lane, n, 0.0, PER, LANES)
    v = load_items(vectors + row * n, lane, n, 0.0, PER, LANES)
    up, _x, pq, rarer, _product, _mass, _ups, variance = moments(t, k, t, False, False, PER, LANES)
    total = ()
    for i in tl.static_range(PER):
        total = total + (pq[i] * 0,)
    for s in range(samples):
        if s > 0:
            place = (s * (row * 0 + rows) + row) * n
            z = load_items(drawn + place, lane, n, 0.0, PER, LANES)
            v = load_items(vectors + place, lane, n, 0.0, PER, LANES)
        # Less what is typical of v: float32 has room for what is left, if v is far from zero.
        weighted = (k * 0).to(tl.float32)
        for i in tl.static_range(PER):
            weighted += tl.where(pq[i] > 0, pq[i] * v[i], 0.0)
        centre = tl.sum(weighted, 1, keep_dims=True) / tl.maximum(variance, 1e-37)
        out = weighted * 0
        of_out = out
        of_into = out
        apart = ()
        flows = ()
        for i in tl.static_range(PER):
            chosen = z[i] > 0.5
            flow = flow_of(up[i], pq[i], rarer[i], chosen)
            flows = flows + (flow,)
            apart = apart + (tl.where(flow == 0, 0.0, v[i] - centre),)
            of_v = flow * apart[i]
            out += tl.where(chosen, flow, 0.0)
            of_out += tl.where(chosen, of_v, 0.0)
            of_into += tl.where(chosen, 0.0, of_v)
        out, of_out, of_into = tl.reduce((out, of_out, of_into), 1, add3, keep_dims=True)
        # As much flows into the others as out of chosen items.
        away, towards = mean_of(of_out, out), mean_of(of_into, out)
        totals = ()
        for i in tl.static_range(PER):
            moved = swapped(flows[i], z[i] > 0.5, apart[i], away, towards)
            totals = totals + (total[i] + moved,)
        total = totals
    store_items(product + row * n, total, lane, n, real, PER, LANES)


@triton.jit(do_not_specialize=["same"])
def _sample_kernel(
    logits, counts, keys, drawn, tilted, same, n, rows, samples,
    R: tl.constexpr, LANES: tl.constexpr, PER: tl.constexpr, STATES: tl.constexpr,
    ROUNDS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    each, row, real, lane = rows_of(rows, R, LANES)
    k = counts_of(counts, same, each, lane)
    theta = load_items(logits + row * n, lane, n, -_INF, PER, LANES)
    t, _first, _second = tilt_rows(theta, k, lane, n, PER, LANES)
    store_items(tilted + row * n, t, lane, n, real, PER, LANES)
    # NaN in one is NaN in all of them, and the first lane has one.
    bad = tl.max((t[0] != t[0]).to(tl.int32), 1, keep_dims=True) + lane * 0 > 0
    # Heads are the items chosen, or those left out if these are fewer.
    few = 2 * k <= n
    sign = tl.where(few, 1.0, -1.0)
    wanted = tl.where(few, k, n - k).to(tl.int32)
    most: tl.constexpr = min(PER, STATES - 1)
    for s in range(samples):
        line = s * (row * 0 + rows) + row  # of many samples, more than 32 bits have room for
        key = in_lanes(tl.load(keys + s * (each * 0 + rows) + each), lane)
        chance, marks = toss_leaves(t, sign, lane, n, key, PER, LANES, STATES)
        heads = wanted
        missing = bad & (bad == 0)
        if LANES > 1:
            heads, missing = draw_counts(
                chance, wanted, real & (bad == 0), lane, key, LANES, most, ROUNDS
            )
        mark = of_count(marks, heads, most)
        for i in tl.static_range(PER):
            shown = (((mark >> i) & 1) > 0) == few
            z = tl.where(bad, float("nan"), shown.to(tl.float32))
            at = i * LANES + lane
            tl.store(drawn + line * n + at, z, real & (at < n))
        if LANES > 1:
            if tl.max(missing.to(tl.int32)) > 0:
                tl.debug_barrier()
                _one_by_one(tilted, drawn, row, line, k, missing, key, n, R, NODES)


@triton.jit
def _one_by_one(tilted, drawn, row, line, k, missing, key, n, R: tl.constexpr, NODES: tl.constexpr):
    """Rows whose tries ran out, item by item."""
    which = tl.arange(0, R)
    row, line = tl.max(row, 1), tl.max(line, 1)
    k, key = tl.max(k, 1), tl.max(key, 1)
    missing = tl.max(missing.to(tl.int32), 1)
    for r in range(R):
        if tl.max(tl.where(which == r, missing, 0), 0) > 0:
            here = tl.sum(tl.where(which == r, row, 0), 0)
            there = tl.sum(tl.where(which == r, line, 0), 0)
            one_by_one(
                tilted + here * n, drawn + there * n, tl.sum(tl.where(which == r, k, 0), 0),
                tl.sum(tl.where(which == r, key, 0), 0), n, NODES,
            )  # fmt: skip


_TILE = ("R", "LANES", "PER")
# Whatever the number of warps, a row's lanes are in one of them (see launch.py).
_OPTIONS = {"enable_fp_fusion": False}
_infer = Launcher(_infer_kernel, *_TILE, **_OPTIONS)
_tilt = Launcher(_tilt_kernel, *_TILE, **_OPTIONS)
_covariance = Launcher(_covariance_kernel, *_TILE, **_OPTIONS)
_swap = Launcher(_swap_kernel, *_TILE, **_OPTIONS)
_sample = Launcher(_sample_kernel, *_TILE, "STATES", "ROUNDS", "NODES", **_OPTIONS)

WARPS = {"sample": 1, "moments": 1}  # of a program
ITEMS = {"sample": 8, "moments": 8}  # of a lane, at most
# Few rows have more lanes each, until there are so many threads.
THREADS = {"sample": 0, "moments": 16_384}


def _shape(rows: int, n: int, what: str) -> tuple[int, tuple[int, int, int], int]:
    """Programs; rows of a program, lanes of a row and items of a lane; warps.

    Every thread has one lane of one row.
    """
    warps = WARPS[what]
    lanes = 1
    while lanes < 32 and (lanes * ITEMS[what] < n or (lanes < n and rows * lanes < THREADS[what])):
        lanes *= 2
    together = 32 * warps // lanes
    return -(-rows // together), (together, lanes, max(1, -(-n // lanes))), warps


def infer(logits: Tensor, k: Tensor | int) -> tuple[Tensor, ...]:
    """See :func:`ksubset.kernels.infer`; and the entropy."""
    logits = logits.contiguous()
    rows, n = logits.shape
    marginals, tilted = logits.new_empty(rows, n), logits.new_empty(rows, n)
    log_partition, entropy = (logits.new_empty(rows) for _ in range(2))
    log_mass, shift = (logits.new_empty(rows, dtype=torch.float64) for _ in range(2))
    results = (log_partition, marginals, tilted, log_mass, shift, entropy)
    if rows:
        programs, tile, warps = _shape(rows, n, "moments")
        _infer(programs, logits, k, (), results, (n, rows), tile, warps)
    return results


def tilt(logits: Tensor, k: Tensor | int) -> Tensor:
    """The tilted logits."""
    logits = logits.contiguous()
    rows, n = logits.shape
    tilted = logits.new_empty(rows, n)
    if rows:
        programs, tile, warps = _shape(rows, n, "sample")
        _tilt(programs, logits, k, (), (tilted,), (n, rows), tile, warps)
    return tilted


def covariance_product(tilted: Tensor, k: Tensor | int, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, v = tilted.contiguous(), v.contiguous()
    rows, n = tilted.shape
    product = tilted.new_empty(rows, n)
    if rows:
        programs, tile, warps = _shape(rows, n, "moments")
        _covariance(programs, tilted, k, (v,), (product,), (n, rows), tile, warps)
    return product


def swap_product(tilted: Tensor, k: Tensor | int, z: Tensor, v: Tensor) -> Tensor:
    """sum_s L(z_s) v_s for samples (samples, rows, n): see :func:`ksubset.kernels.swap_product`."""
    tilted, z, v = tilted.contiguous(), z.contiguous(), v.contiguous()
    rows, n = tilted.shape
    if not z.shape[0]:
        return torch.zeros_like(tilted)
    product = tilted.new_empty(rows, n)
    if rows:
        programs, tile, warps = _shape(rows, n, "moments")
        _swap(programs, tilted, k, (z, v), (product,), (n, rows, z.shape[0]), tile, warps)
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
        programs, tile, warps = _shape(rows, n, "sample")
        heads = max(1, min(k, n - k)) if isinstance(k, int) else max(1, n // 2)
        states = 1 + min(tile[2], heads)
        _sample(
            programs, logits, k, (seeds,), (drawn, tilted), (n, rows, samples),
            (*tile, states, rounds, 64), warps,
        )  # fmt: skip
    return drawn, tilted
