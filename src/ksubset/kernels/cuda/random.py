"""Random numbers by Philox, and tosses of coins."""

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x1E3779B97F4A7C15)


@triton.jit
def thresholds(p):
    """p as a number of 64 bits, in two halves: a chance below 2^-32 is not lost."""
    below: tl.constexpr = 4294967295.0 if p.dtype == tl.float64 else 4294967040.0
    scaled = p * 4294967296.0
    whole = tl.floor(tl.minimum(scaled, below))
    high = whole.to(tl.uint32)
    low = ((scaled - whole) * 4294967296.0).to(tl.uint32)
    certain = p >= 1
    return (
        tl.where(certain, 0xFFFFFFFF, high).to(tl.uint32),
        tl.where(certain, 0xFFFFFFFF, low).to(tl.uint32),
    )


@triton.jit
def _heads(bits, more, high, low):
    # Only a tie looks at the second number, which serves another try as its first.
    return (bits < high) | ((bits == high) & (more < low))


@triton.jit
def toss4(key, counter, high, low):
    """Four tosses of every coin: which fall heads."""
    r0, r1, r2, r3 = tl.randint4x(key, counter)
    r0, r1 = r0.to(tl.uint32, bitcast=True), r1.to(tl.uint32, bitcast=True)
    r2, r3 = r2.to(tl.uint32, bitcast=True), r3.to(tl.uint32, bitcast=True)
    return (
        _heads(r0, r1, high, low),
        _heads(r1, r2, high, low),
        _heads(r2, r3, high, low),
        _heads(r3, r0, high, low),
    )


@triton.jit
def wide_uniform(key, counter):
    """In [0, 1) with 53 bits."""
    r0, r1, _r2, _r3 = tl.randint4x(key, counter)
    high = (r0.to(tl.uint32, bitcast=True) >> 5).to(tl.float64)
    low = (r1.to(tl.uint32, bitcast=True) >> 6).to(tl.float64)
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
