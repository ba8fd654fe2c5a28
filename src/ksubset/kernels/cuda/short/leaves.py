"""An exact sample of rows in registers.

The items of a row are dealt out to leaves: item i LEAVES + l is the i-th of leaf l. Every leaf is
one lane, which tosses its items one after the other and keeps, for each number j of items chosen so
far, the chance of j and a sample of which items these are (:func:`toss_leaves`). How many items
each leaf chooses is drawn from these chances until the leaves together choose k
(:func:`draw_counts`): a try costs a lane one random number for all of its items.
docs/mathematics.md, section 6, has the proof.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.tilt import add2

ITEMS = 16  # of a leaf, at most; a bit each in its marks
_INF = tl.constexpr(float("inf"))
# Where the counters of Philox start for the counts of leaves and for the last leaf's acceptance;
# those of items start at 0.
_COUNTS, _ACCEPT = tl.constexpr(0x20000000), tl.constexpr(0x60000000)
# Twice the bits of 0.5: chances from 0.5 on are ordered by how far they are from 1.
_TOP = tl.constexpr(0x7E000000)


@triton.jit
def _fraction(bits, more):
    """In (0, 1], from 32 random bits and, for small numbers, further ones. Other numbers may be made
    of the same further bits, as they do not count where the first are not all zero."""
    low = (more | 1).to(tl.float32) * 5.421010862427522e-20
    return bits.to(tl.float32) * 2.3283064365386963e-10 + low


@triton.jit
def _random(key, counter):
    r0, r1, r2, r3 = tl.randint4x(key, counter)
    return (
        r0.to(tl.uint32, bitcast=True), r1.to(tl.uint32, bitcast=True),
        r2.to(tl.uint32, bitcast=True), r3.to(tl.uint32, bitcast=True),
    )  # fmt: skip


@triton.jit
def _toss_item(chance, marks, p, q, up, u, bit, STATES: tl.constexpr):
    """The chances of j = 0 ... STATES - 1 heads and their samples after one more coin."""
    chances = (q * chance[0],)
    samples = (marks[0],)
    for j in tl.static_range(1, STATES):
        heads = p * chance[j - 1]
        tails = q * chance[j]
        total = heads + tails
        # Compared with the chance of the rarer side, of which no digit is lost.
        rarer = u * total < tl.where(up, tails, heads)
        chances = chances + (total,)
        samples = samples + (tl.where(rarer != up, marks[j - 1] | bit, marks[j]),)
    return chances, samples


@triton.jit
def toss_leaves(tilted, leaf, per, n, sign, key, LEAVES: tl.constexpr, STATES: tl.constexpr):
    """Chances of 0 ... STATES - 1 heads, each (R, LEAVES), and for each a sample of the heads, as
    bits. tilted points at rows' first items, (R, 1); heads are chosen items where sign is 1, and
    those left out where it is -1."""
    none = (leaf + sign * 0).to(tl.int32) * 0
    chance = (none.to(tl.float32) + 1.0,)
    marks = (none,)
    for _ in tl.static_range(1, STATES):
        chance = chance + (none.to(tl.float32),)
        marks = marks + (none,)
    for i in range(0, per, 4):
        random = _random(key, leaf + LEAVES * i)
        for b in tl.static_range(4):
            at = (i + b) * LEAVES + leaf
            t = tl.load(tilted + at, at < n, -_INF)
            t = tl.where(at < n, t * sign, -_INF)
            up = t > 0
            e = tl.exp(-tl.abs(t))
            x = e / (1 + e)
            chance, marks = _toss_item(
                chance, marks, tl.where(up, 1 - x, x), tl.where(up, x, 1 - x), up,
                _fraction(random[b], random[(b + 1) % 4]), 1 << (i + b), STATES,
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
def _tables(chance, STATES: tl.constexpr):
    """P(count <= j) for j = 0 ... STATES - 2, ordered."""
    total = chance[0]
    for j in tl.static_range(1, STATES):
        total += chance[j]
    scale = 1 / tl.maximum(total, 1e-37)
    above = (chance[STATES - 1] * scale,)
    for j in tl.static_range(1, STATES - 1):
        above = (above[0] + chance[STATES - 1 - j] * scale,) + above
    below = chance[0] * scale
    table = (_ordered(below, above[0]),)
    for j in tl.static_range(1, STATES - 1):
        below += chance[j] * scale
        table = table + (_ordered(below, above[j]),)
    return table


@triton.jit
def _count(table, bits, more, STATES: tl.constexpr):
    """A count drawn from a table."""
    u = _fraction(bits, more)
    v = _fraction(~bits, more)
    x = tl.where(
        bits < 0x80000000,
        u.to(tl.int32, bitcast=True),
        -v.to(tl.int32, bitcast=True) + _TOP,
    )
    count = (x >= table[0]).to(tl.int32)
    for j in tl.static_range(1, STATES - 1):
        count += (x >= table[j]).to(tl.int32)
    return count


@triton.jit
def draw_counts(
    chance, wanted, is_open, scratch, leaf, key,
    LEAVES: tl.constexpr, STATES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """How many items each leaf chooses, (R, LEAVES), given that all together choose so many, (R, 1).
    Also which rows still lack them after so many rounds of four tries.

    Leaf 0 takes what the others leave it, and accepts that with its chance over the largest of its
    chances. These are kept in scratch, which points at room for STATES numbers of each row.
    """
    most = chance[0]
    for j in tl.static_range(1, STATES):
        most = tl.maximum(most, chance[j])
    most = 1 / tl.maximum(most, 1e-37)
    mine = (leaf == 0) & (is_open | True)
    for j in tl.static_range(STATES):
        tl.store(scratch + j + leaf * 0, chance[j] * most, mine)
    table = _tables(chance, STATES)
    tl.debug_barrier()
    counts = (leaf + wanted * 0).to(tl.int32) * 0
    missing = is_open
    turn = tl.zeros([], tl.int32)
    running = tl.max(missing.to(tl.int32)) > 0
    while running:
        random = _random(key, leaf + turn * LEAVES + _COUNTS)
        c0 = _count(table, random[0], random[1], STATES)
        c1 = _count(table, random[1], random[2], STATES)
        c2 = _count(table, random[2], random[3], STATES)
        c3 = _count(table, random[3], random[0], STATES)
        # Two sums of 16 bits in one number.
        n01, n23 = tl.reduce(
            (tl.where(leaf > 0, c0 | (c1 << 16), 0), tl.where(leaf > 0, c2 | (c3 << 16), 0)),
            1, add2, keep_dims=True,
        )  # fmt: skip
        random = _random(key, wanted * 0 + turn + _ACCEPT)
        l0, l1 = wanted - (n01 & 0xFFFF), wanted - ((n01 >> 16) & 0xFFFF)
        l2, l3 = wanted - (n23 & 0xFFFF), wanted - ((n23 >> 16) & 0xFFFF)
        a0 = _accepts(scratch, l0, random[0], random[1], missing, STATES)
        a1 = _accepts(scratch, l1, random[1], random[2], missing, STATES)
        a2 = _accepts(scratch, l2, random[2], random[3], missing, STATES)
        a3 = _accepts(scratch, l3, random[3], random[0], missing, STATES)
        c = tl.where(a0, c0, tl.where(a1, c1, tl.where(a2, c2, c3)))
        left = tl.where(a0, l0, tl.where(a1, l1, tl.where(a2, l2, l3)))
        found = missing & (a0 | a1 | a2 | a3)
        counts = tl.where(found, tl.where(leaf > 0, c, left), counts)
        missing = missing & (found == 0)
        turn += 1
        running = (tl.max(missing.to(tl.int32)) > 0) & (turn < ROUNDS)
    return counts, missing


@triton.jit
def _accepts(scratch, left, bits, more, missing, STATES: tl.constexpr):
    """Whether leaf 0 accepts what is left to it."""
    possible = missing & (left >= 0) & (left < STATES)
    return _fraction(bits, more) <= tl.load(scratch + left, possible, 0.0)


@triton.jit
def marks_of(marks, counts, STATES: tl.constexpr):
    """The samples of so many heads."""
    chosen = marks[0]
    for j in tl.static_range(1, STATES):
        chosen = tl.where(counts == j, marks[j], chosen)
    return chosen
