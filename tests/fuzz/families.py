"""Random rows of logits: the kinds that break numerics, and a few that users have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Random = np.random.Generator


def normal(rng: Random, n: int) -> Array:
    return 10 ** rng.uniform(-6, 4) * rng.normal(size=n)


def plain(rng: Random, n: int) -> Array:
    return rng.uniform(0.5, 3) * rng.normal(size=n)


def ties(rng: Random, n: int) -> Array:
    levels = rng.normal(size=rng.integers(1, 4)) * 10 ** rng.uniform(-2, 2)
    return rng.choice(levels, size=n)


def clusters(rng: Random, n: int) -> Array:
    centres = rng.normal(size=rng.integers(2, 5)) * 10 ** rng.uniform(0, 3)
    return rng.choice(centres, size=n) + 10 ** rng.uniform(-4, 0) * rng.normal(size=n)


def ramp(rng: Random, n: int) -> Array:
    values = 10 ** rng.uniform(-3, 2) * np.arange(n, dtype=float)
    return rng.choice([-1, 1]) * values


def one_dominant(rng: Random, n: int) -> Array:
    values = rng.normal(size=n)
    values[rng.integers(n)] += rng.choice([-1, 1]) * 10 ** rng.uniform(0, 4)
    return values


def shifted(rng: Random, n: int) -> Array:
    return rng.normal(size=n) + rng.choice([-1, 1]) * 10 ** rng.uniform(1, 8)


def infinite(rng: Random, n: int) -> Array:
    values = plain(rng, n)
    values[rng.random(n) < 0.2] = -np.inf
    values[rng.random(n) < 0.1] = np.inf
    return values


def large_negative_masks(rng: Random, n: int) -> Array:
    """As users write them, where a mask would be right."""
    values = plain(rng, n)
    values[rng.random(n) < 0.4] = rng.choice([-1e9, -1e4, -300.0])
    return values


FAMILIES: dict[str, Callable[[Random, int], Array]] = {
    function.__name__: function
    for function in (
        normal, plain, ties, clusters, ramp, one_dominant, shifted, infinite, large_negative_masks,
    )
}  # fmt: skip


def neighbour(rng: Random, row: Array) -> Array:
    """Logits to take the divergence to: one close by, the row shifted, stretched or flattened, or
    another one."""
    kind = rng.integers(5)
    noise = rng.normal(size=len(row))
    if kind == 0:
        return row + 10 ** rng.uniform(-6, 1) * noise
    if kind == 1:
        return row + 10 ** rng.uniform(-3, 4)
    if kind == 2:
        return np.where(np.isfinite(row), 0.0, row)
    if kind == 3:
        return row * 10 ** rng.uniform(0, 4)
    return np.where(np.isfinite(row), rng.uniform(0.1, 5) * noise, row)


def size(rng: Random, row: Array) -> int:
    """A k that the row admits: small, large, anywhere."""
    low, high = int((row == np.inf).sum()), int((row > -np.inf).sum())
    kind = rng.integers(4)
    if kind == 0:
        return int(rng.integers(low, high + 1))
    near = min(high - low, int(rng.integers(0, 4)))
    return low + near if kind < 3 else high - near
