"""What can be varied."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.command import option

SIZES = ((10, 5), (100, 10), (1000, 100))  # n, k


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    largest: int = option(1000, "Leave out rows with more items than this.", min=10)
    problems: int = option(8, "Problems for every size and loss.", min=2)
    rounds: int = option(10, "Batches of gradients for every method.", min=3)
    rows: int = option(4096, "Rows of a batch, at most, over all problems.", min=2)
    truth: int = option(
        32_768, "Samples behind the exact gradient of a network, where n > 10.", min=256
    )
    seed: int = option(0, "Of everything random.")

    def sizes(self) -> list[tuple[int, int]]:
        """The sizes (n, k) to measure."""
        return [size for size in SIZES if size[0] <= self.largest]
