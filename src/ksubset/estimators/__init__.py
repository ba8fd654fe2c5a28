"""Estimators of the gradient of an expected loss over k-subsets, behind one interface.

    >>> import torch
    >>> logits = torch.zeros(10, requires_grad=True)
    >>> target = torch.linspace(-1, 1, 10)
    >>> estimator = create("swap")
    >>> loss = estimator.surrogate(lambda z: (z - target).square().sum(-1), logits, 5)
    >>> loss.backward()

Use "swap" unless docs/estimators.md names your case as an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import ksubset._torch  # noqa: F401
from ksubset.estimators.base import Estimator, Pathwise
from ksubset.estimators.corrected_swap import CorrectedSwap
from ksubset.estimators.double_control import DoubleControl
from ksubset.estimators.exact import Exact
from ksubset.estimators.gapped import GappedStraightThrough
from ksubset.estimators.imle import IMLE, AdaptiveIMLE
from ksubset.estimators.muprop import MuProp
from ksubset.estimators.reinmax import ReinMax
from ksubset.estimators.reinmax_rao import ReinMaxRao
from ksubset.estimators.removal import Removal
from ksubset.estimators.score import Score
from ksubset.estimators.simple import AtMarginals, Simple, SimpleBackward, SimpleForward
from ksubset.estimators.softsub import L2X, SoftSub
from ksubset.estimators.straight_through import (
    DecoupledStraightThrough,
    StraightThrough,
    StraightThroughGumbel,
)
from ksubset.estimators.swap import SparseSwap, Swap
from ksubset.estimators.unordered_set import UnorderedSet

__all__ = [
    "ESTIMATORS",
    "IMLE",
    "L2X",
    "AdaptiveIMLE",
    "AtMarginals",
    "CorrectedSwap",
    "DecoupledStraightThrough",
    "DoubleControl",
    "Estimator",
    "Exact",
    "GappedStraightThrough",
    "MuProp",
    "Pathwise",
    "ReinMax",
    "ReinMaxRao",
    "Removal",
    "Score",
    "Simple",
    "SimpleBackward",
    "SimpleForward",
    "SoftSub",
    "SparseSwap",
    "StraightThrough",
    "StraightThroughGumbel",
    "Swap",
    "UnorderedSet",
    "create",
]

ESTIMATORS: MappingProxyType[str, Callable[..., Estimator]] = MappingProxyType(
    {
        "exact": Exact,
        "swap": Swap,
        "sparse_swap": SparseSwap,
        "removal": Removal,
        "corrected_swap": CorrectedSwap,
        "simple": Simple,
        "simple_f": SimpleForward,
        "simple_b": SimpleBackward,
        "marginals": AtMarginals,
        "imle": IMLE,
        "aimle": AdaptiveIMLE,
        "softsub": SoftSub,
        "l2x": L2X,
        "st_gumbel": StraightThroughGumbel,
        "st_decoupled": DecoupledStraightThrough,
        "st_gapped": GappedStraightThrough,
        "ste": StraightThrough,
        "score": Score,
        "muprop": MuProp,
        "double_control": DoubleControl,
        "unordered_set": UnorderedSet,
        "reinmax": ReinMax,
        "reinmax_rao": ReinMaxRao,
    }
)
"""The estimators by name, read-only, for :func:`create` and :class:`ksubset.nn.KSubsetLayer`.

Examples:
    >>> from ksubset.estimators import ESTIMATORS
    >>> sorted(ESTIMATORS)[:4]
    ['aimle', 'corrected_swap', 'double_control', 'exact']
    >>> sorted(name for name, kind in ESTIMATORS.items() if not kind.pathwise)
    ['corrected_swap', 'double_control', 'exact', 'muprop', 'removal', 'score', 'unordered_set']
"""


def create(name: str, **options: Any) -> Estimator:
    """Create an estimator by name.

    Args:
        name: a key of :data:`ESTIMATORS`.
        **options: the settings of its class.

    Returns:
        An :class:`Estimator`; most are :class:`Pathwise`.

    Examples:
        >>> create("imle", noise="gumbel", strength=2.5)
        IMLE(strength=2.5, noise='gumbel', temperature=1.0, terms=10)
    """
    if name not in ESTIMATORS:
        known = ", ".join(repr(key) for key in ESTIMATORS)
        raise ValueError(f"estimator must be one of {known}, got {name!r}")
    return ESTIMATORS[name](**options)
