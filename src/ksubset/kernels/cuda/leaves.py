"""An exact sample of a row in registers, by leaves (docs/mathematics.md, section 6).

A row is dealt out to LEAVES leaves of PER items each: a quantity of items is a tuple of PER tensors
(LEAVES,). Every leaf tosses its items one after the other and keeps, for each number of heads, the
chance of it and a sample of which items these are. How many heads each leaf shows is drawn from
these chances, until the leaves together show as many as are wanted: a try costs a random number
for PER items.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ksubset.kernels.cuda.tilt import add2

_INF = tl.constexpr(float("inf"))
# Where the counters of Philox start for each kind of number; those of items start at 0.
_COUNTS, _ACCEPT = tl.constexpr(0x10000000), tl.constexpr(0x30000000)
_FURTHER = tl.constexpr(0x08000000)  # from there on, for digits of doubles
# Twice the bits of 0.5: chances from 0.5 on are ordered by how far they are from 1.
_TOP, _TOP_OF_DOUBLES = tl.constexpr(0x7E000000), tl.constexpr(0x7FC0000000000000)


@triton.jit
def _four(key, counter):
    r0, r1, r2, r3 = tl.randint4x(key, counter)
    return (
        r0.to(tl.uint32, bitcast=True), r1.to(tl.uint32, bitcast=True),
        r2.to(tl.uint32, bitcast=True), r3.to(tl.uint32, bitcast=True),
    )  # fmt: skip


@triton.jit
def _random(key, counter, DOUBLES: tl.constexpr):
    """Four numbers of 32 random bits, and further bits of each. The digits of float32 look at these
    only where the first bits are all zero: there they are another number's first ones."""
    bits = _four(key, counter)
    if DOUBLES:
        more = _four(key, counter + _FURTHER)
    else:
        more = (bits[1], bits[2], bits[3], bits[0])
    return bits, more


@triton.jit
def _fraction(bits, more, DOUBLES: tl.constexpr):
    """In (0, 1]."""
    real: tl.constexpr = tl.float64 if DOUBLES else tl.float32
    low = (more | 1).to(real) * 5.421010862427522e-20
    return bits.to(real) * 2.3283064365386963e-10 + low


@triton.jit
def _rank(bits, more, DOUBLES: tl.constexpr):
    """A fraction in the order of :func:`_ordered`."""
    whole: tl.constexpr = tl.int64 if DOUBLES else tl.int32
    top: tl.constexpr = _TOP_OF_DOUBLES if DOUBLES else _TOP
    below = bits < 0x80000000
    x = _fraction(tl.where(below, bits, ~bits), more, DOUBLES).to(whole, bitcast=True)
    return tl.where(below, x, top - x)


@triton.jit
def _ordered(below, above):
    """Chances in their order, as integers: of small ones and of those close to 1 all digits."""
    doubles: tl.constexpr = below.dtype == tl.float64
    whole: tl.constexpr = tl.int64 if doubles else tl.int32
    top: tl.constexpr = _TOP_OF_DOUBLES if doubles else _TOP
    return tl.where(below < 0.5, below.to(whole, bitcast=True), top - above.to(whole, bitcast=True))


@triton.jit
def _coin(source, base, at, n):
    """Chances of heads and of tails, and which is likelier."""
    t = tl.load(source + at, at < n, -_INF) + base
    up = t > 0
    e = tl.exp(-tl.abs(t))
    x = e / (1 + e)
    return tl.where(up, 1 - x, x), tl.where(up, x, 1 - x), up


@triton.jit
def chances(source, base, at, n, leaf, PER: tl.constexpr):
    """Chances of 0, ..., PER heads, and the variance."""
    chance = ((leaf * 0).to(source.dtype.element_ty) + 1,)
    spread = chance[0] * 0
    for i in tl.static_range(PER):
        p, q, _up = _coin(source, base, at[i], n)
        spread += p * q
        longer = (q * chance[0],)
        for j in tl.static_range(1, i + 1):
            longer = longer + (p * chance[j - 1] + q * chance[j],)
        chance = longer + (p * chance[i],)
    return chance, spread


@triton.jit
def _toss(source, base, at, n, leaf, key, PER: tl.constexpr, LEAVES: tl.constexpr):
    """A sample for each of 0, ..., PER heads, as bits."""
    doubles: tl.constexpr = source.dtype.element_ty == tl.float64
    chance = ((leaf * 0).to(source.dtype.element_ty) + 1,)
    marks = (leaf * 0,)
    bits, more = _random(key, leaf, doubles)
    for i in tl.static_range(PER):
        if i > 0 and i % 4 == 0:
            bits, more = _random(key, leaf + LEAVES * i, doubles)
        p, q, up = _coin(source, base, at[i], n)
        u = _fraction(bits[i % 4], more[i % 4], doubles)
        longer = (q * chance[0],)
        samples = (marks[0],)
        for j in tl.static_range(1, i + 1):
            heads, tails = p * chance[j - 1], q * chance[j]
            total = heads + tails
            # Compared with the chance of the rarer side, of which no digit is lost.
            rarer = u * total < tl.where(up, tails, heads)
            longer = longer + (total,)
            samples = samples + (tl.where(rarer != up, marks[j - 1] | (1 << i), marks[j]),)
        chance = longer + (p * chance[i],)
        marks = samples + (marks[i] | (1 << i),)
    return marks


@triton.jit
def tables(chance, PER: tl.constexpr):
    """P(count <= j) for j = 0, ..., PER - 1, ordered; and chances over the largest."""
    total = chance[0]
    largest = chance[0]
    for j in tl.static_range(1, PER + 1):
        total += chance[j]
        largest = tl.maximum(largest, chance[j])
    scale = 1 / tl.maximum(total, 1e-37)
    above = (chance[PER] * scale,)
    for j in tl.static_range(1, PER):
        above = (above[0] + chance[PER - j] * scale,) + above
    inverse = 1 / tl.maximum(largest, 1e-37)
    relative = (chance[0] * inverse,)
    below = chance[0] * scale
    table = (_ordered(below, above[0]),)
    for j in tl.static_range(1, PER + 1):
        relative = relative + (chance[j] * inverse,)
        if j < PER:
            below += chance[j] * scale
            table = table + (_ordered(below, above[j]),)
    return table, relative


@triton.jit
def four_counts(table, leaf, call, key, PER: tl.constexpr, LEAVES: tl.constexpr):
    """Counts drawn from a table, of four tries."""
    doubles: tl.constexpr = table[0].dtype == tl.int64
    bits, more = _random(key, leaf + call * LEAVES + _COUNTS, doubles)
    counts = ()
    for i in tl.static_range(4):
        rank = _rank(bits[i], more[i], doubles)
        count = (rank >= table[0]).to(tl.int32)
        for j in tl.static_range(1, PER):
            count += (rank >= table[j]).to(tl.int32)
        counts = counts + (count,)
    return counts


@triton.jit
def sums_of(a, b, c, d):
    """The sums of four tries over all leaves."""
    # Two of 16 bits in one number
    ab, cd = tl.reduce((a | (b << 16), c | (d << 16)), 0, add2)
    return ab & 0xFFFF, (ab >> 16) & 0xFFFF, cd & 0xFFFF, (cd >> 16) & 0xFFFF


@triton.jit
def draw_counts(
    chance, spread, wanted, leaf, key, relatives,
    PER: tl.constexpr, LEAVES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """How many heads each leaf shows, given that all together show so many; and 1, or 0 if tries
    ran out.

    The leaf of the largest variance takes what the others leave it, and accepts that with its
    chance over the largest of its chances, of which all read the table in memory. Of several tries
    at a time, the first that is accepted counts.
    """
    doubles: tl.constexpr = chance[0].dtype == tl.float64
    accepting = leaf == tl.argmax(spread, 0)
    table, relative = tables(chance, PER)
    for j in tl.static_range(PER + 1):
        tl.store(relatives + j + leaf * 0, relative[j], accepting)
    tl.debug_barrier()
    counts = leaf * 0
    turn = tl.zeros([], tl.int32)
    found = turn * 0
    searching = turn < ROUNDS
    while searching:
        drawn = four_counts(table, leaf, turn, key, PER, LEAVES)
        others = ()
        for i in tl.static_range(4):
            others = others + (tl.where(accepting, 0, drawn[i]),)
        sums = sums_of(others[0], others[1], others[2], others[3])
        bits, more = _random(key, turn + _ACCEPT, doubles)
        for i in tl.static_range(3, -1, -1):
            left = wanted - sums[i]
            share = tl.load(relatives + left, (left >= 0) & (left <= PER), 0.0)
            accepted = _fraction(bits[i], more[i], doubles) <= share
            counts = tl.where(accepted, tl.where(accepting, left, drawn[i]), counts)
            found = tl.where(accepted, 1, found)
        turn += 1
        searching = (found == 0) & (turn < ROUNDS)
    return counts, found


@triton.jit
def store(
    source, base, at, n, leaf, counts, key, place, PER: tl.constexpr, LEAVES: tl.constexpr
):  # fmt: skip
    """Store a sample of the coins source + base, of which each leaf shows so many heads, at those
    places that are below n."""
    marks = _toss(source, base, at, n, leaf, key, PER, LEAVES)
    mark = marks[0]
    for j in tl.static_range(1, PER + 1):
        mark = tl.where(counts == j, marks[j], mark)
    for i in tl.static_range(PER):
        shown = (mark >> i) & 1
        tl.store(place + at[i], shown.to(place.dtype.element_ty), at[i] < n)


@triton.jit
def draw(
    source, base, at, wanted, key, n, place, scratch,
    PER: tl.constexpr, LEAVES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Store a sample of the coins source + base at those places that are below n, of which so many
    show heads. Returns 1, or 0 if tries ran out. scratch: PER + 1 numbers of the type of the coins;
    may be at place.

    Coins are read twice, for the chances and for the samples. (From one reading, the compiler puts
    the samples off until the counts are known, and keeps what they are made of in registers.)
    """
    leaf = tl.arange(0, LEAVES)
    if LEAVES == 1:
        counts, found = leaf * 0 + wanted, tl.full([], 1, tl.int32)
    else:
        chance, spread = chances(source, base, at, n, leaf, PER)
        counts, found = draw_counts(chance, spread, wanted, leaf, key, scratch, PER, LEAVES, ROUNDS)
    tl.debug_barrier()
    store(source, base, at, n, leaf, counts, key, place, PER, LEAVES)
    return found
