"""Modules for networks."""

from ksubset.nn.layer import KSubsetLayer

__all__ = ["KSubsetLayer"]
