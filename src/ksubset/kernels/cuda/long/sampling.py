"""Exact samples of long rows (docs/mathematics.md, section 6).

A row is cut into chunks, and a chunk into leaves (:mod:`..leaves`). In launches, none of which has
to wait for another program:

* :func:`count_kernel`: how many heads the chunks show in each of several tries;
* :func:`accept_kernel`: one unit of chunks is set aside. It takes what the others leave it, and
  accepts the first try for which its chance of that, over its largest chance, is large enough. Then
  it is tilted to what it has to show. A unit of several chunks goes through both kernels again, as
  if it were the row, until one chunk is left: these are the levels;
* :func:`toss_kernel`: every chunk draws the counts of its leaves once more, those of the try that
  was accepted, and then its items; the last chunk as a row in registers would.

What a level hands on is the state of a line, one row of one sample: the first chunk and the one
after the last, the shift of the logits, how many items are wanted, and the number of the level's
try.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda import series
from ksubset.kernels.cuda.angles import rotation
from ksubset.kernels.cuda.launch import count_of
from ksubset.kernels.cuda.leaves import chances, draw_counts, four_counts, store, sums_of, tables
from ksubset.kernels.cuda.long.board import NODES, load_tiles, workspace
from ksubset.kernels.cuda.long.nodes import spectrum
from ksubset.kernels.cuda.long.tilt import solve
from ksubset.kernels.cuda.moments import coins, nodes_for
from ksubset.kernels.cuda.one_by_one import one_by_one
from ksubset.kernels.cuda.random import GOLDEN, wide_uniform
from ksubset.kernels.cuda.tilt import add4

_INF = tl.constexpr(float("inf"))
# Counts beyond N / 2 of the unit that accepts are rejected: N is so many times what tails reach.
TIMES, DECAY = tl.constexpr(2), tl.constexpr(19.0)
_ACCEPT = tl.constexpr(0x7FFFFF00)  # where the counters of these numbers start
_STATE = tl.constexpr(5)
_CHUNKS = tl.constexpr(16)  # whose counts are added up at a time


@triton.jit
def _store_state(states, line, level, lines, first, end, base, wanted):
    """Store the state at the start of a level."""
    place = states + (level * lines + line) * _STATE
    tl.store(place, first)
    tl.store(place + 1, end)
    tl.store(place + 2, base)
    tl.store(place + 3, wanted)


@triton.jit
def _load_state(states, line, level, lines):
    place = states + (level * lines + line) * _STATE
    return (
        tl.load(place).to(tl.int32), tl.load(place + 1).to(tl.int32),
        tl.load(place + 2).to(tl.float32), tl.load(place + 3),
    )  # fmt: skip


@triton.jit
def _nan_or(source, k):
    """k, or NaN where a row is: as a whole or not at all."""
    t = tl.load(source)
    return tl.where(t == t, k.to(tl.float64), float("nan"))


@triton.jit
def _key_of(key, level, chunk):
    """Chunks have random numbers of their own at every level."""
    return key + ((chunk * 8 + level).to(tl.int64) + 1) * GOLDEN


@triton.jit
def _items(chunk, CHUNK: tl.constexpr, PER: tl.constexpr):
    """Leaves, and places of their items: an item's neighbours are in other leaves."""
    leaves: tl.constexpr = CHUNK // PER
    # In an order that the compiler cannot see through: it would load and store several neighbours
    # at a time, and move items between threads before and after that.
    leaf = tl.arange(0, leaves) ^ tl.where(chunk < 0, 1, 0)
    at = ()
    for i in tl.static_range(PER):
        at = at + (chunk * CHUNK + i * leaves + leaf,)
    return leaf, at


@triton.jit
def _count(
    source, base, chunk, n, key, first, calls, place, CHUNK: tl.constexpr, PER: tl.constexpr
):  # fmt: skip
    """Store how many heads a chunk shows in 4 calls tries. Returns its variance."""
    leaf, at = _items(chunk, CHUNK, PER)
    chance, spread = chances(source, base, at, n, leaf, PER)
    table, _relative = tables(chance, PER)
    for call in range(calls):
        c0, c1, c2, c3 = four_counts(table, leaf, first + call, key, PER, CHUNK // PER)
        c0, c1, c2, c3 = sums_of(c0, c1, c2, c3)
        tl.store(place + 4 * call, c0)
        tl.store(place + 4 * call + 1, c1)
        tl.store(place + 4 * call + 2, c2)
        tl.store(place + 4 * call + 3, c3)
    return tl.sum(spread, 0)


@triton.jit(do_not_specialize=["same"])
def count_kernel(
    tilted, counts, keys, states, sums, spreads, same, n, rows, chunks, calls,
    CHUNK: tl.constexpr, PER: tl.constexpr, LEVEL: tl.constexpr,
):  # fmt: skip
    """Counts of the chunks of a level."""
    line = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = tl.program_id(0) % chunks
    lines = tl.num_programs(0) // chunks
    base = 0.0
    own = line * chunks + chunk
    if LEVEL > 0:
        first, _end, base, _wanted = _load_state(states, line, LEVEL, lines)
        chunk += first
    key = _key_of(tl.load(keys + line), LEVEL, chunk)
    spread = _count(
        tilted + (line % rows) * n, base, chunk, n, key, 0, calls, sums + own * (4 * calls),
        CHUNK, PER,
    )  # fmt: skip
    tl.store(spreads + own, spread)


@triton.jit
def _survey(source, base, first, tiles, n, TILE: tl.constexpr, WIDE: tl.constexpr):
    """Of the coins of tiles: variance, expectation from the likely heads, likely heads, how many
    can fall both ways, and how many cannot fall tails."""
    spread = tl.zeros([WIDE * TILE], tl.float32)
    signed = tl.zeros([WIDE * TILE], tl.float32)
    likely = tl.zeros([WIDE * TILE], tl.int32)
    marks = tl.zeros([WIDE * TILE], tl.int32)
    for i in range(0, (tiles + WIDE - 1) // WIDE):
        _at, inside, t = load_tiles(source, i, first, 1, tiles, n, TILE, WIDE)
        up, x, pq, _skew = coins(t + base, inside)
        free = inside & (tl.abs(t) < _INF)
        spread += pq
        signed += tl.where(up, -x, x)
        likely += (up & free).to(tl.int32)
        marks += free.to(tl.int32) + ((inside & (t == _INF)).to(tl.int32) << 16)
    variance, mean, ups, count = tl.reduce(
        (
            spread.to(tl.float64), signed.to(tl.float64), likely.to(tl.float64),
            (marks & 0xFFFF).to(tl.float64),
        ),
        0,
        add4,
    )  # fmt: skip
    return variance, mean, ups, count, tl.sum((marks >> 16).to(tl.float64), 0)


@triton.jit
def _power_sums(source, base, first, tiles, n, TILE: tl.constexpr, WIDE: tl.constexpr):
    """Of the coins of tiles that can fall both ways: sum p^2, ..., sum p^12, the likely heads, and
    the largest p."""
    zero = tl.zeros([WIDE * TILE], tl.float32)
    s2, s3, s4, s5, s6, s7 = zero, zero, zero, zero, zero, zero
    s8, s9, s10, s11, s12, sure, top = zero, zero, zero, zero, zero, zero, zero
    for i in range(0, (tiles + WIDE - 1) // WIDE):
        _at, inside, t = load_tiles(source, i, first, 1, tiles, n, TILE, WIDE)
        up, x, _pq, _skew = coins(t + base, inside)
        p = series.heads(up, x)
        p2 = p * p
        p3, p4 = p2 * p, p2 * p2
        p6, p8 = p4 * p2, p4 * p4
        s2 += p2
        s3 += p3
        s4 += p4
        s5 += p4 * p
        s6 += p6
        s7 += p4 * p3
        s8 += p8
        s9 += p8 * p
        s10 += p8 * p2
        s11 += p8 * p3
        s12 += p8 * p4
        sure += (up & (x > 0)).to(tl.float32)
        top = tl.maximum(top, p)
    sums = tl.reduce((s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, sure), 0, series.add12)
    return sums, tl.max(top, 0)


@triton.jit
def _characteristic(
    source, base, first, tiles, n, number, variance, mean, board, counter,
    TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """E exp(i omega S) of the coins of tiles, S counted from the likely heads, twice but at the
    first node: from power sums, or node by node."""
    powers, top = _power_sums(source, base, first, tiles, n, TILE, WIDE)
    sure = powers[11].to(tl.float64)
    expected = sure + mean
    if series.serves(top, expected.to(tl.float32), variance.to(tl.float32), DECAY, 12):
        real, imag, _a, _b = series.spectrum(
            powers, number, variance, DECAY, sure, expected, 12, NODES
        )
    else:
        real, imag, _s, _c, _dr, _di, _nodes, _epoch = spectrum(
            source, base, tiles, first, 1, n, number, variance, DECAY, source, base, base,
            board, counter, tl.zeros([], tl.int32), 0, 1, 1, TILE, WIDE, False,
        )  # fmt: skip
    return real, imag


@triton.jit
def accept(
    count, mean, least, reach, real, imag, number, key, turn, used,
    NODES: tl.constexpr, TRIES: tl.constexpr,
):  # fmt: skip
    """The first of TRIES tries that the unit set aside accepts, or TRIES.

    count: what it has to show in each of them, counted like mean, its expectation, from its likely
    heads; least, reach: it can show least to least + reach; real, imag: (NODES,) its characteristic
    function, twice but at its first node.
    """
    lane = tl.arange(0, TRIES)
    node = tl.arange(0, NODES).to(tl.float64)
    turn_real, turn_imag = rotation(count[:, None] * node[None, :], number)
    mass = tl.sum(real[None, :] * turn_real + imag[None, :] * turn_imag, 1)
    # The most likely counts are the floor and the ceiling of the mean.
    most_likely = tl.floor(mean) + tl.arange(0, 2).to(tl.float64)
    turn_real, turn_imag = rotation(most_likely[:, None] * node[None, :], number)
    most = tl.max(tl.sum(real[None, :] * turn_real + imag[None, :] * turn_imag, 1), 0)
    u = wide_uniform(key, turn * TRIES + lane + _ACCEPT)
    # Counts further out than half of N are those of aliases, unless N covers all counts; and what
    # the unit cannot show has a mass of rounding errors.
    inside = tl.where(reach < number, 0.0, 2 * tl.abs(count - mean)) < number
    inside = inside & (count >= least) & (count <= least + reach) & used
    return tl.min(tl.where(inside & (u * most < mass), lane, TRIES), 0)


@triton.jit
def _heads(sums, chunks, calls, kept, end, TRIES: tl.constexpr):
    """How many heads the chunks of a level show in each try, but for those from kept to end."""
    lane = tl.arange(0, TRIES)
    which = tl.arange(0, _CHUNKS)
    heads = tl.zeros([_CHUNKS, TRIES], tl.int32)
    for i in range(0, chunks, _CHUNKS):
        chunk = i + which
        use = (chunk < chunks) & ((chunk < kept) | (chunk >= end))
        place = sums + chunk[:, None] * (4 * calls) + lane[None, :]
        heads += tl.load(place, use[:, None] & (lane < 4 * calls)[None, :], 0)
    return tl.sum(heads, 0)


@triton.jit(do_not_specialize=["same"])
def accept_kernel(
    tilted, counts, keys, drawn, states, sums, spreads, work, same, n, rows, chunks, calls, unit,
    rounds,
    CHUNK: tl.constexpr, PER: tl.constexpr, LEVEL: tl.constexpr, TRIES: tl.constexpr,
    UNITS: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The try of a level, and the state at the start of the next one. A level has at most UNITS."""
    line = tl.program_id(0).to(tl.int64)
    lines = tl.num_programs(0)
    source = tilted + (line % rows) * n
    start, base = tl.zeros([], tl.int32), 0.0
    k = count_of(counts, same, line % rows)
    wanted = _nan_or(source, k)
    if LEVEL > 0:
        start, _end, base, wanted = _load_state(states, line, LEVEL, lines)
    sums += line * chunks * 4 * calls
    _store_state(states, line, LEVEL + 1, lines, 0.0, 0.0, 0.0, wanted)
    if wanted >= 0:
        lane = tl.arange(0, UNITS)
        variances = tl.zeros([UNITS], tl.float32)
        for i in range(unit):
            chunk = lane * unit + i
            variances += tl.load(spreads + line * chunks + chunk, chunk < chunks, 0.0)
        kept = tl.argmax(variances, 0) * unit
        end = tl.minimum(kept + unit, chunks)
        per_chunk: tl.constexpr = CHUNK // TILE
        first = (start + kept) * per_chunk
        tiles = (end - kept) * per_chunk

        variance, mean, ups, count, forced = _survey(source, base, first, tiles, n, TILE, WIDE)
        number = nodes_for(variance, count, TIMES)
        board, counter = workspace(work, line, 1)
        real, imag = _characteristic(
            source, base, first, tiles, n, number, variance, mean, board, counter, TILE, WIDE
        )

        key = tl.load(keys + line)
        used = tl.arange(0, TRIES) < 4 * calls
        which = tl.full([], TRIES, tl.int32)
        shown = wanted * 0
        turn = tl.zeros([], tl.int32)
        searching = turn < rounds
        while searching:
            if turn > 0:
                # Further tries, by this program alone. Few rows need them.
                for i in range(chunks):
                    chunk = start + i
                    own = _key_of(key, LEVEL, chunk)
                    _count(
                        source, base, chunk, n, own, turn * calls, calls, sums + i * (4 * calls),
                        CHUNK, PER,
                    )  # fmt: skip
                tl.debug_barrier()
            heads = _heads(sums, chunks, calls, kept, end, TRIES).to(tl.float64)
            which = accept(
                wanted - heads - (ups + forced), mean, -ups, count, real, imag, number,
                _key_of(key, LEVEL, turn * 0 - 1), turn, used, NODES, TRIES,
            )  # fmt: skip
            shown = tl.sum(tl.where(tl.arange(0, TRIES) == which, heads, 0.0), 0)
            turn += 1
            searching = (which == TRIES) & (turn < rounds)
        if which == TRIES:
            tl.debug_barrier()
            one_by_one(source, drawn + line * n, k, key, n, 64)
            _store_state(states, line, LEVEL + 1, lines, 0.0, 0.0, 0.0, -1.0)
        else:
            tl.store(states + (LEVEL * lines + line) * _STATE + 4, (turn - 1) * 4 * calls + which)
            left = wanted - shown
            # Tilt the unit to its own count, from one step of Newton's on. What is certain stays.
            chosen = left - forced
            is_open = tl.where((chosen > 0) & (chosen < count), 1.0, 0.0)
            reach = chosen * 0 + 64.0
            shift, _deviation, _epoch = solve(
                source, base, tiles, first, 1, n,
                tl.where(is_open > 0, chosen, 1.0), tl.where(is_open > 0, count, 2.0),
                (chosen - ups - mean) / tl.maximum(variance, 1e-37), -reach, reach, is_open,
                board, counter, turn * 0, 0, 1, 1, TILE, WIDE,
            )  # fmt: skip
            # No choice left: everything or nothing of what is free.
            shift = tl.where(is_open > 0, shift, tl.where(chosen > 0, 1e30, -1e30))
            _store_state(
                states, line, LEVEL + 1, lines, start + kept, start + end, base + shift, left
            )  # fmt: skip


@triton.jit(do_not_specialize=["same"])
def toss_kernel(
    tilted, counts, keys, drawn, states, relatives, same, n, rows, chunks,
    CHUNK: tl.constexpr, PER: tl.constexpr, LEVELS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Every item of a chunk."""
    line = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = tl.program_id(0) % chunks
    lines = tl.num_programs(0) // chunks
    source = tilted + (line % rows) * n
    place = drawn + line * n
    # A chunk was tossed at the last level that it takes part in.
    depth = tl.zeros([], tl.int32)
    base = 0.0
    wanted = _nan_or(source, count_of(counts, same, line % rows))
    bad = wanted != wanted
    for level in tl.static_range(1, LEVELS + 1):
        first, end, shift, left = _load_state(states, line, level, lines)
        here = (chunk >= first) & (chunk < end)
        depth = tl.where(here, level, depth)
        base = tl.where(here, shift, base)
        wanted = tl.where(here | (left < 0), left, wanted)
    if bad:
        at = chunk * CHUNK + tl.arange(0, CHUNK)
        tl.store(place + at, tl.full([CHUNK], float("nan"), tl.float32), at < n)
    elif wanted >= 0:
        key = _key_of(tl.load(keys + line), depth, chunk)
        leaf, at = _items(chunk, CHUNK, PER)
        chance, spread = chances(source, base, at, n, leaf, PER)
        found = tl.full([], 1, tl.int32)
        if depth == LEVELS:
            shown, found = draw_counts(
                chance, spread, wanted.to(tl.int32), leaf, key, relatives + line * (PER + 1),
                PER, CHUNK // PER, ROUNDS,
            )  # fmt: skip
        else:
            which = tl.load(states + (depth * lines + line) * _STATE + 4).to(tl.int32)
            table, _relative = tables(chance, PER)
            c0, c1, c2, c3 = four_counts(table, leaf, which // 4, key, PER, CHUNK // PER)
            of = which % 4
            shown = tl.where(of == 0, c0, tl.where(of == 1, c1, tl.where(of == 2, c2, c3)))
        tl.debug_barrier()
        store(source, base, at, n, leaf, shown, key, place, PER, CHUNK // PER)
        if found == 0:
            tl.debug_barrier()
            before = chunk * CHUNK
            one_by_one(
                source + before, place + before, wanted, key, tl.minimum(n - before, CHUNK), 64
            )
