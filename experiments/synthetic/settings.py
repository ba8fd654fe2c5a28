"""What can be varied."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.command import option


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    n: int = option(10, "Items.", min=2, max=16)
    k: int = option(5, "Items chosen.", min=1)
    problems: int = option(10, "Problems, each with logits and a target of its own.", min=1)
    draws: int = option(10_000, "Gradient samples for every method and problem.", min=100)
    strength: float = option(2.5, "Lambda of simple_f, simple_b and I-MLE.", min=1e-6)
    absolute: bool = option(False, "Targets |b|, as the published code has them, not b.")
    grid: bool = option(True, "Also look for the best setting of every baseline.")
    seed: int = option(0, "Of everything random.")

    def __post_init__(self) -> None:
        if self.k >= self.n:
            raise ValueError(f"k must be less than n = {self.n}, got {self.k}")
