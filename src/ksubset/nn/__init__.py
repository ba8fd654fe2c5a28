"""Modules for networks."""

import ksubset._torch  # noqa: F401
from ksubset.nn.layer import KSubsetLayer

__all__ = ["KSubsetLayer"]
