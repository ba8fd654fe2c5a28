"""The k-subset distribution for Pyro (extra ``pyro``): ``pyro.sample`` calls distributions."""

from __future__ import annotations

from ksubset import distributions

try:
    from pyro.distributions.torch_distribution import TorchDistributionMixin
except ImportError as error:
    raise ImportError("ksubset.pyro needs Pyro: pip install 'ksubset[pyro]'") from error

__all__ = ["KSubset", "SimpleKSubset"]


class KSubset(distributions.KSubset, TorchDistributionMixin):
    """:class:`ksubset.KSubset`, as a site of a model.

    Args:
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        logits: (..., n).
        probs: the probabilities of the independent coins, instead of logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values.

    Examples:
        >>> import pyro
        >>> import ksubset.pyro
        >>> pyro.sample("z", ksubset.pyro.KSubset(2, logits=torch.zeros(3, 5)).to_event(1)).sum(-1)
        tensor([2., 2., 2.])
    """


class SimpleKSubset(distributions.SimpleKSubset, TorchDistributionMixin):
    """:class:`ksubset.SimpleKSubset`, as a site of a guide: its samples have SIMPLE's gradient.

    Args:
        k: an int, integers broadcast over the batch, or sizes such as ``between(2, 5)``.
        logits: (..., n).
        probs: the probabilities of the independent coins, instead of logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": algorithms that give the same result.
        validate_args: check values.

    Examples:
        >>> import ksubset.pyro
        >>> ksubset.pyro.SimpleKSubset(2, logits=torch.zeros(5)).has_rsample
        True
    """
