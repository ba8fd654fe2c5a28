"""Differentiable functions of the k-subset distribution."""

import ksubset._torch  # noqa: F401
from ksubset.functional.inference import (
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
)
from ksubset.functional.nested import NestedSubsets, nested_subsets
from ksubset.functional.sampling import sample, sample_indices, simple
from ksubset.functional.sizes import size_mean, size_probabilities, size_variance
from ksubset.functional.swaps import swap

__all__ = [
    "NestedSubsets",
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "kl_divergence",
    "kl_to_uniform",
    "log_partition",
    "log_prob",
    "log_prob_exactly_k",
    "log_prob_indices",
    "marginals",
    "mode",
    "nested_subsets",
    "pairwise_marginals",
    "sample",
    "sample_indices",
    "simple",
    "size_mean",
    "size_probabilities",
    "size_variance",
    "swap",
]
