"""Products with the rates of the exact plan of swaps."""

from __future__ import annotations

from jax import Array


def exchange(t: Array, k: Array, z: Array, v: Array) -> Array:
    raise NotImplementedError
