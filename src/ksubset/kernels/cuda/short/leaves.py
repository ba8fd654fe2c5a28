"""An exact sample of several short rows in registers.

A row's lanes (:mod:`.items`) are its leaves. Every leaf tosses its items one after the other and
keeps, for each number j of heads so far, the chance of j and a sample of which items these are
(:func:`toss_leaves`). How many heads each leaf shows is drawn from these chances until the leaves
together show as many as are wanted (:func:`draw_counts`): a try costs a lane one random number for
all of its items. docs/mathematics.md, section 6, has the proof.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.tilt import add2

_INF = tl.constexpr(float("inf"))
# Where the counters of Philox start for the counts of leaves; those of items start at 0.
_COUNTS = tl.constexpr(0x20000000)
# Twice the bits of 0.5: chances from 0.5 on are ordered by how far they are from 1.
_TOP = tl.constexpr(0x7E000000)


@triton.jit
def _fraction(bits, more):
    """In (0, 1], from 32 random bits and, for small numbers, further ones. Other numbers may be
    made of the same further bits, as they do not count where the first are not all zero."""
    low = (more | 1).to(tl.float32) * 5.421010862427522e-20
    return tl.fma(bits.to(tl.float32), tl.full(bits.shape, 2.3283064365386963e-10, tl.float32), low)


@triton.jit
def _random(key, counter):
    r0, r1, r2, r3 = tl.randint4x(key, counter)
    return (
        r0.to(tl.uint32, bitcast=True), r1.to(tl.uint32, bitcast=True),
        r2.to(tl.uint32, bitcast=True), r3.to(tl.uint32, bitcast=True),
    )  # fmt: skip


@triton.jit
def _toss_item(chance, marks, p, q, up, u, i: tl.constexpr, STATES: tl.constexpr):
    """The chances of j = 0, 1, ... heads and their samples after one more coin, the i-th."""
    most: tl.constexpr = min(i + 1, STATES - 1)  # heads among i + 1 coins, as far as they count
    chances = (q * chance[0],)
    samples = (marks[0],)
    for j in tl.static_range(1, most + 1):
        heads = p * chance[j - 1]
        if j <= i:
            tails = q * chance[j]
            total = heads + tails
            # Compared with the chance of the rarer side, of which no digit is lost.
            rarer = u * total < tl.where(up, tails, heads)
            chances = chances + (total,)
            samples = samples + (tl.where(rarer != up, marks[j - 1] | (1 << i), marks[j]),)
        else:  # all of them
            chances = chances + (heads,)
            samples = samples + (marks[j - 1] | (1 << i),)
    return chances, samples


@triton.jit
def toss_leaves(
    t, sign, lane, n, key, PER: tl.constexpr, LANES: tl.constexpr, STATES: tl.constexpr
):  # fmt: skip
    """Chances of 0, ..., min(PER, STATES - 1) heads, each (R, LANES), and for each a sample of the
    heads, as bits. Heads are chosen items where sign is 1, and those left out where it is -1; where
    there are no items, there are none."""
    none = lane * 0
    chance = (none.to(tl.float32) + 1.0,)
    marks = (none,)
    random = (none, none, none, none)
    for i in tl.static_range(PER):
        if i % 4 == 0:
            random = _random(key, lane + LANES * i)
        s = tl.where(i * LANES + lane < n, t[i] * sign, -_INF)
        up = s > 0
        e = tl.exp(-tl.abs(s))
        x = e / (1 + e)
        chance, marks = _toss_item(
            chance, marks, tl.where(up, 1 - x, x), tl.where(up, x, 1 - x), up,
            _fraction(random[i % 4], random[(i + 1) % 4]), i, STATES,
        )  # fmt: skip
    return chance, marks


@triton.jit
def _ordered(below, above):
    """Chances in their order, as integers: of small ones and of those close to 1 all digits."""
    return tl.where(
        below < 0.5,
        below.to(tl.int32, bitcast=True),
        -above.to(tl.int32, bitcast=True) + _TOP,
    )


@triton.jit
def _tables(chance, MOST: tl.constexpr):
    """P(count <= j) for j = 0, ..., MOST - 1, ordered; and chances over the largest."""
    total = chance[0]
    largest = chance[0]
    for j in tl.static_range(1, MOST + 1):
        total += chance[j]
        largest = tl.maximum(largest, chance[j])
    scale = 1 / tl.maximum(total, 1e-37)
    level = 1 / tl.maximum(largest, 1e-37)
    relative = (chance[0] * level,)
    above = (chance[MOST] * scale,)
    for j in tl.static_range(1, MOST):
        above = (tl.fma(chance[MOST - j], scale, above[0]),) + above
    below = chance[0] * scale
    table = (_ordered(below, above[0]),)
    for j in tl.static_range(1, MOST + 1):
        relative = relative + (chance[j] * level,)
        if j < MOST:
            below = tl.fma(chance[j], scale, below)
            table = table + (_ordered(below, above[j]),)
    return table, relative


@triton.jit
def _count(table, bits, more, MOST: tl.constexpr):
    """A count drawn from a table."""
    u = _fraction(bits, more)
    v = _fraction(~bits, more)
    x = tl.where(
        bits < 0x80000000,
        u.to(tl.int32, bitcast=True),
        -v.to(tl.int32, bitcast=True) + _TOP,
    )
    count = (x >= table[0]).to(tl.int32)
    for j in tl.static_range(1, MOST):
        count += (x >= table[j]).to(tl.int32)
    return count


@triton.jit
def of_count(values, count, MOST: tl.constexpr):
    """The value of so many heads."""
    value = values[0]
    for j in tl.static_range(1, MOST + 1):
        value = tl.where(count == j, values[j], value)
    return value


@triton.jit
def draw_counts(
    chance, wanted, is_open, lane, key,
    LANES: tl.constexpr, MOST: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """How many heads each leaf shows, at most MOST, given that all together show so many.
    Also which rows still lack them after so many rounds of four tries.

    Leaf 0 takes what the others leave it, and accepts that with its chance over the largest of its
    chances.
    """
    table, relative = _tables(chance, MOST)
    counts = lane * 0
    missing = is_open
    turn = tl.zeros([], tl.int32)
    running = (tl.max(missing.to(tl.int32)) > 0) & (turn < ROUNDS)
    while running:
        random = _random(key, lane + turn * LANES + _COUNTS)
        c0 = _count(table, random[0], random[1], MOST)
        c1 = _count(table, random[1], random[2], MOST)
        c2 = _count(table, random[2], random[3], MOST)
        c3 = _count(table, random[3], random[0], MOST)
        # Two sums of 16 bits in one number.
        n01, n23 = tl.reduce(
            (tl.where(lane > 0, c0 | (c1 << 16), 0), tl.where(lane > 0, c2 | (c3 << 16), 0)),
            1, add2, keep_dims=True,
        )  # fmt: skip
        l0, l1 = wanted - (n01 & 0xFFFF), wanted - ((n01 >> 16) & 0xFFFF)
        l2, l3 = wanted - (n23 & 0xFFFF), wanted - ((n23 >> 16) & 0xFFFF)
        # In lane 0, which has drawn no counts and has its random numbers left.
        a0 = _accepts(relative, l0, random[0], random[1], MOST)
        a1 = _accepts(relative, l1, random[1], random[2], MOST)
        a2 = _accepts(relative, l2, random[2], random[3], MOST)
        a3 = _accepts(relative, l3, random[3], random[0], MOST)
        first = tl.where(a0, 0, tl.where(a1, 1, tl.where(a2, 2, tl.where(a3, 3, 4))))
        first = tl.max(tl.where(lane > 0, 0, first), 1, keep_dims=True)
        c = tl.where(first == 0, c0, tl.where(first == 1, c1, tl.where(first == 2, c2, c3)))
        left = tl.where(first == 0, l0, tl.where(first == 1, l1, tl.where(first == 2, l2, l3)))
        found = missing & (first < 4)
        counts = tl.where(found, tl.where(lane > 0, c, left), counts)
        missing = missing & (found == 0)
        turn += 1
        running = (tl.max(missing.to(tl.int32)) > 0) & (turn < ROUNDS)
    return counts, missing


@triton.jit
def _accepts(relative, left, bits, more, MOST: tl.constexpr):
    """Whether a leaf accepts what is left to it."""
    possible = (left >= 0) & (left <= MOST)
    return possible & (_fraction(bits, more) <= of_count(relative, left, MOST))
