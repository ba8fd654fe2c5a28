"""Exact, differentiable k-subset sampling for JAX: functions of logits, with the names and meanings
of those of :mod:`ksubset`, which are written in PyTorch. Nothing here imports torch.
"""

import ksubset.jax._needed  # noqa: F401
from ksubset.jax.inference import (
    covariance_matrix,
    covariance_product,
    entropy,
    kl_divergence,
    kl_to_uniform,
    log_partition,
    log_prob,
    log_prob_exactly_k,
    marginals,
    mode,
    pairwise_marginals,
)
from ksubset.jax.sampling import sample, sample_indices, simple, swap

__all__ = [
    "covariance_matrix",
    "covariance_product",
    "entropy",
    "kl_divergence",
    "kl_to_uniform",
    "log_partition",
    "log_prob",
    "log_prob_exactly_k",
    "marginals",
    "mode",
    "pairwise_marginals",
    "sample",
    "sample_indices",
    "simple",
    "swap",
]
