"""Rows cut into tiles, and the board on which the programs of a row share what they found.

A row is cut into tiles, worked on several at a time: loads of many take hardly longer than of one.
Program g of the row's G takes every G-th such batch. What a whole row must know is added up tile by
tile, written to the board, and read by all programs of the row after a barrier; each adds up the
parts in the same order, so that all go on with the same numbers. A program has two boards and uses
them in turn: nobody writes on one that is being read.

Boards and the counter of the barrier are one piece of memory, of float64: to ask for two takes as
long as a small kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

_INF = tl.constexpr(float("inf"))
NODES = tl.constexpr(32)
# A program's board: eight sums, then what nodes share, then coefficients of nodes.
PHI, COEFFICIENTS, BOARD = (
    tl.constexpr(8), tl.constexpr(8 + 4 * 32), tl.constexpr(8 + 12 * 32),
)  # fmt: skip

_COUNTER = tl.constexpr(16)  # numbers: a line of the cache for itself


def words(programs: int) -> int:
    """The size of a row's workspace."""
    return programs * 2 * BOARD.value + _COUNTER.value


@triton.jit
def workspace(work, row, G: tl.constexpr):
    """The row's boards and its counter, which must be zero if there are several programs."""
    mine = work.to(tl.pointer_type(tl.float64), bitcast=True) + row * (2 * G * BOARD + _COUNTER)
    return mine, (mine + 2 * G * BOARD).to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def load_tiles(source, i, first, stride, tiles, n, TILE: tl.constexpr, WIDE: tl.constexpr):
    """The i-th WIDE of so many tiles numbered first, first + stride, ...: places, which of them
    exist, values."""
    lane = tl.arange(0, WIDE * TILE)
    tile = i * WIDE + lane // TILE
    at = (first + tile * stride) * TILE + lane % TILE
    inside = (tile < tiles) & (at < n)
    return at, inside, tl.load(source + at, inside, -_INF)


@triton.jit
def wait(counter, epoch, G: tl.constexpr):
    """All programs of the row have come this far, and what they wrote can be read."""
    tl.debug_barrier()
    epoch += G
    if G > 1:
        tl.atomic_add(counter, 1, sem="acq_rel")
        while tl.atomic_add(counter, 0, sem="acq_rel") < epoch:
            pass
        tl.debug_barrier()
    return epoch


@triton.jit
def share4(a, b, c, d, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr):
    """Four sums over the row's programs. Boards alternate: nobody writes on one being read."""
    a, b, c, d = a.to(tl.float64), b.to(tl.float64), c.to(tl.float64), d.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * BOARD)
        mine = board + side + g * BOARD
        tl.store(mine + 0, a)
        tl.store(mine + 1, b)
        tl.store(mine + 2, c)
        tl.store(mine + 3, d)
        epoch = wait(counter, epoch, G)
        who = tl.arange(0, GP)
        all_of = board + side + who * BOARD
        a = tl.sum(tl.load(all_of + 0, who < G, 0.0, volatile=True), 0)
        b = tl.sum(tl.load(all_of + 1, who < G, 0.0, volatile=True), 0)
        c = tl.sum(tl.load(all_of + 2, who < G, 0.0, volatile=True), 0)
        d = tl.sum(tl.load(all_of + 3, who < G, 0.0, volatile=True), 0)
    return a, b, c, d, epoch


@triton.jit
def share_extremes(most, least, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr):
    """The largest and the smallest."""
    most, least = most.to(tl.float64), least.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * BOARD)
        tl.store(board + side + g * BOARD, most)
        tl.store(board + side + g * BOARD + 1, least)
        epoch = wait(counter, epoch, G)
        who = tl.arange(0, GP)
        all_of = board + side + who * BOARD
        most = tl.max(tl.load(all_of, who < G, -_INF, volatile=True), 0)
        least = tl.min(tl.load(all_of + 1, who < G, _INF, volatile=True), 0)
    return most, least, epoch


@triton.jit
def share_vectors(
    a, b, c, d, board, counter, epoch, g, G: tl.constexpr, GP: tl.constexpr, SIZE: tl.constexpr
):
    """Sums of four vectors of up to 32 numbers over the row's programs."""
    a, b, c, d = a.to(tl.float64), b.to(tl.float64), c.to(tl.float64), d.to(tl.float64)
    if G > 1:
        side = ((epoch // G) % 2) * (G * BOARD) + PHI
        lane = tl.arange(0, SIZE)
        mine = board + side + g * BOARD + lane
        tl.store(mine, a)
        tl.store(mine + NODES, b)
        tl.store(mine + 2 * NODES, c)
        tl.store(mine + 3 * NODES, d)
        epoch = wait(counter, epoch, G)
        who = tl.arange(0, GP)
        use = ((who < G)[:, None]) & ((lane < SIZE)[None, :])
        all_of = board + side + who[:, None] * BOARD + lane[None, :]
        a = tl.sum(tl.load(all_of, use, 0.0, volatile=True), 0)
        b = tl.sum(tl.load(all_of + NODES, use, 0.0, volatile=True), 0)
        c = tl.sum(tl.load(all_of + 2 * NODES, use, 0.0, volatile=True), 0)
        d = tl.sum(tl.load(all_of + 3 * NODES, use, 0.0, volatile=True), 0)
    return a, b, c, d, epoch
