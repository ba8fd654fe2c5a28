"""Counter-based random numbers: uniforms as a pure function of a seed and a counter.

Samplers take their seeds as a tensor, one per drawn row, so that drawing is a function of
its inputs: the same under vmap, opcheck and graph capture, independent of the batch a row
stands in and of the number of threads. The generator is the SplitMix64 output function
(Steele, Lea and Flood 2014): a seed is mixed into a key, the key plus a counter into a number.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of a signed 64-bit integer."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def keys(seeds: Tensor, purpose: int = 0) -> Tensor:
    """Well mixed 64-bit keys from seeds; different purposes give unrelated keys."""
    # Zero is a fixed point of the mixing, so that neither seed nor purpose may be added as it is.
    return _mix(_mix(seeds + _GOLDEN) + _signed((purpose + 1) * 0xD1B54A32D192ED03 % (1 << 64)))


def uniform(keys: Tensor, start: int, width: int, dtype: torch.dtype) -> Tensor:
    """(..., width) uniforms in [0, 1): those numbered start ... start + width - 1 of each key."""
    counters = torch.arange(start, start + width, device=keys.device)
    bits = _mix(keys.unsqueeze(-1) + counters * _GOLDEN)
    # 63 bits, so that small values keep their relative precision: with the 24 of a float32
    # mantissa, an item of probability 1e-20 would be chosen once in 2^24 tosses. Rounding may
    # reach 1, which even a certain item (p = 1) must exceed.
    return (_shifted(bits, 1).to(dtype) * 2.0**-63).clamp_max(1 - torch.finfo(dtype).eps / 2)


def following(seed: Tensor, shape: tuple[int, int]) -> Tensor:
    """(samples, rows) seeds: one, a scalar, and those that follow it. They are mixed into keys, so
    that neighbours are as unrelated as any two."""
    return seed + torch.arange(shape[0] * shape[1], device=seed.device).reshape(shape)
