"""torch.distributions for k-subsets."""

import ksubset._torch  # noqa: F401
from ksubset.distributions.constraints import k_hot
from ksubset.distributions.ksubset import KSubset
from ksubset.distributions.simple import SimpleKSubset

__all__ = ["KSubset", "SimpleKSubset", "k_hot"]
