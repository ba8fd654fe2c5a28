"""Exact, differentiable k-subset sampling.

Choose exactly k of n items at random, by learned logits, and train through the choice.
"""

from ksubset import estimators, explain, nn, oracle, regression
from ksubset.distributions import KSubset, SimpleKSubset, k_hot
from ksubset.functional import (
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
    pairwise_marginals,
    sample,
    sample_indices,
    simple,
    swap,
)

__version__ = "0.1.0"

__all__ = [
    "KSubset",
    "SimpleKSubset",
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "estimators",
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
    "nn",
    "oracle",
    "pairwise_marginals",
    "regression",
    "sample",
    "sample_indices",
    "simple",
    "swap",
]
