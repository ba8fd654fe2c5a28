"""How many nodes the spectral method needs (docs/mathematics.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Precision:
    """How many nodes a floating point type needs: N so large that S is further than that from
    its mean with probability exp(-tail) at most, and no node where the characteristic function is
    below exp(-decay)."""

    tail: float
    decay: float
    most: int  # nodes ever used, for when the device may not be asked

    def number(self, variance: Any) -> Any:
        """N by Bernstein's inequality, for an array of variances."""
        third = self.tail / 3
        return third + (third**2 + 2 * self.tail * variance) ** 0.5


SINGLE = Precision(tail=16, decay=16, most=13)
DOUBLE = Precision(tail=39, decay=41, most=30)
