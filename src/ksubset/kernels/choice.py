"""Which method ``"auto"`` stands for: measured crossovers, in one place.

The figures are those of ``benchmarks/crossover.py``; docs/decisions.md has the table. k is not
asked for: reading it would synchronise with the device.
"""

from __future__ import annotations

# Below: the tree's samples cost less than the halving sampler's for any k; above, at most 1.4
# times less for small k and ever more for large k.
_TREE_ITEMS = 8192
# A step per item is cheap when there are few of them for many rows to share.
_DP_ITEMS, _DP_ROWS = 32, 1000


def for_moments(rows: int, n: int) -> str:
    """Marginals, entropy, covariance products and third cumulants. At the measured shapes at
    most 1.5 times the best of the others (many rows, small k), and up to seventeen times less."""
    return "spectral"


def for_samples(samples: int, rows: int, n: int) -> str:
    """Samples."""
    if n <= _DP_ITEMS and samples * rows >= _DP_ROWS:
        return "dp"
    return "tree" if n <= _TREE_ITEMS else "spectral"
