"""Exact, differentiable k-subset sampling.

Choose exactly k of n items at random, by learned logits, and train through the choice.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksubset import estimators, explain, nn, oracle, regression
    from ksubset.budget import SharedBudget
    from ksubset.distributions import KSubset, SimpleKSubset, k_hot
    from ksubset.functional import (
        NestedSubsets,
        covariance_matrix,
        covariance_product,
        entropy,
        kl_divergence,
        kl_to_uniform,
        log_partition,
        log_prob,
        log_prob_exactly_k,
        log_prob_indices,
        marginals,
        mode,
        nested_subsets,
        pairwise_marginals,
        sample,
        sample_indices,
        simple,
        size_mean,
        size_probabilities,
        size_variance,
        swap,
    )
    from ksubset.ragged import Ragged
    from ksubset.sizes import (
        Sizes,
        at_least,
        at_most,
        between,
        exactly,
        random_sizes,
        weighted_sizes,
    )

__version__ = "0.1.0"

__all__ = [
    "KSubset",
    "NestedSubsets",
    "Ragged",
    "SharedBudget",
    "SimpleKSubset",
    "Sizes",
    "at_least",
    "at_most",
    "between",
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "estimators",
    "exactly",
    "explain",
    "k_hot",
    "kl_divergence",
    "kl_to_uniform",
    "log_partition",
    "log_prob",
    "log_prob_exactly_k",
    "log_prob_indices",
    "marginals",
    "mode",
    "nested_subsets",
    "nn",
    "oracle",
    "pairwise_marginals",
    "random_sizes",
    "regression",
    "sample",
    "sample_indices",
    "simple",
    "size_mean",
    "size_probabilities",
    "size_variance",
    "swap",
    "weighted_sizes",
]

# Where a name comes from. It is loaded when it is first used (SPEC 1 of Scientific Python), so that
# users of ksubset.jax need no torch: nothing here may be imported by this file itself.
_MODULES = {
    "budget",
    "distributions",
    "estimators",
    "explain",
    "functional",
    "kernels",
    "nn",
    "oracle",
    "ragged",
    "regression",
    "sizes",
}
_HOMES = {
    "ksubset.budget": ("SharedBudget",),
    "ksubset.distributions": ("KSubset", "SimpleKSubset", "k_hot"),
    "ksubset.ragged": ("Ragged",),
    "ksubset.sizes": (
        "Sizes",
        "at_least",
        "at_most",
        "between",
        "exactly",
        "random_sizes",
        "weighted_sizes",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULES and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("ksubset._torch")
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        value = getattr(importlib.import_module(_HOME.get(name, "ksubset.functional")), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(globals().keys() | set(__all__))
