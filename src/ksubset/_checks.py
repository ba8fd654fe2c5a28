"""Checks of arguments that ask nothing of an array library, and what their errors say."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple


class Names(NamedTuple):
    """What the caller calls its arguments, for messages."""

    logits: str = "logits"
    k: str = "k"
    mask: str = "mask"


def integer(value: Any) -> int:
    """Raise a TypeError for what is not an integer of any type."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def k_out_of_range(name: str, n: int, k: int) -> str:
    """What an error says of a k that no row has."""
    return f"{name} must be between 0 and the number of items n = {n}, got {k}"


PLANS = ("product", "exact")  # of swaps


def check_plan(plan: str) -> None:
    """Raise unless there is such a plan of swaps."""
    if plan not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(map(repr, PLANS))}, got {plan!r}")


def check_sample_shape(sample_shape: Any, integer: Any = integer) -> tuple[int, ...]:
    """The sizes as integers of Python's (or of the compiler's)."""
    try:
        sizes = tuple([integer(size) for size in sample_shape])
    except TypeError:
        sizes = (-1,)
    if sizes and min(sizes) < 0:
        raise ValueError(f"sample_shape must be a sequence of sizes >= 0, got {sample_shape!r}")
    return sizes
