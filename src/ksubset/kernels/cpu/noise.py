"""The numbers of kernels/random.py, one at a time or, as 64 bits, in the lanes of a vector."""

from __future__ import annotations

import numpy as np

from ksubset.kernels.cpu.compile import part

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_PURPOSE = np.uint64(0xD1B54A32D192ED03)


@part
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@part
def key(seed):
    """A well mixed key from an unsigned seed."""
    return _mix(_mix(seed + _GOLDEN) + _PURPOSE)


@part
def key_of_size(seed):
    """The same for another purpose: to draw a size (functional/_sized.py)."""
    return _mix(_mix(seed + _GOLDEN) + _PURPOSE * np.uint64(3))


@part
def random_bits(key, counter):
    """64 of them."""
    return _mix(key + counter * _GOLDEN)


@part
def uniform(key, counter):
    """In (0, 1), with 63 bits: never 0, so that what has no chance is never chosen."""
    bits = random_bits(key, np.uint64(counter)) >> np.uint64(1)
    return (np.float64(np.int64(bits)) + 0.5) * 2.0**-63
