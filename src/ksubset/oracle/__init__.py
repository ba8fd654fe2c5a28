"""The truth everything else is tested against: slow, obvious, float64 or better.

Two independent ways to the same numbers, both on the CPU:

* *Enumeration* lists all C(n, k) subsets. Nothing can be wrong with it but its cost.
* :class:`LogSpaceDP` is the paper's dynamic programme in log space, for sizes out of
  reach of enumeration, in the widest floating point type numpy has on the machine
  (80-bit on x86). No tilt, no spectral formula, no autodiff: it shares no code and no
  idea with the fast methods.

:class:`SizedEnumeration` lists the subsets of all sizes that have a weight. A third way,
:func:`log_partition_autodiff`, is the paper's algorithm 1 as one would write it in PyTorch and
differentiate automatically; it is the baseline of benchmarks.

All of them take one row of logits (shape ``(n,)``) and an integer ``k`` or weights over sizes.
Logits may be ``-inf`` (the item is never chosen) and ``+inf`` (always chosen); distribution and
formulas are then the limits, and a log-partition counts the finite part only.
"""

import ksubset._torch  # noqa: F401
from ksubset.oracle._dp import LogSpaceDP
from ksubset.oracle._exact import (
    covariance,
    entropy,
    kl_divergence,
    log_partition,
    log_partition_autodiff,
    log_probabilities,
    marginals,
    support,
    swap_rates,
    third_cumulant,
)
from ksubset.oracle._sizes import SizedEnumeration

__all__ = [
    "LogSpaceDP",
    "SizedEnumeration",
    "covariance",
    "entropy",
    "kl_divergence",
    "log_partition",
    "log_partition_autodiff",
    "log_probabilities",
    "marginals",
    "support",
    "swap_rates",
    "third_cumulant",
]
