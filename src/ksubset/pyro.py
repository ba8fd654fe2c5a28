"""The k-subset distribution for Pyro (extra ``pyro``): ``pyro.sample`` calls distributions."""

from __future__ import annotations

from ksubset import distributions

try:
    from pyro.distributions.torch_distribution import TorchDistributionMixin
except ImportError as error:
    raise ImportError("ksubset.pyro needs Pyro: pip install 'ksubset[pyro]'") from error

__all__ = ["KSubset", "SimpleKSubset"]


class KSubset(distributions.KSubset, TorchDistributionMixin):
    """:class:`ksubset.KSubset`, as a site of a model."""


class SimpleKSubset(distributions.SimpleKSubset, TorchDistributionMixin):
    """:class:`ksubset.SimpleKSubset`, as a site of a guide: its samples have SIMPLE's gradient."""
