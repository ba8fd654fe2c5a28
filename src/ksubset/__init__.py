"""Exact, differentiable k-subset sampling.

Choose exactly k of n items at random, by learned logits, and train through the choice.
"""

from ksubset import estimators, explain, nn, oracle, regression
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
