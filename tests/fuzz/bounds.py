"""How far off results may be: one table, for the precision that the work is done in.

An error is measured in units of its own *scale*, which is what rounding acts on:

==================  ==============================================================================
marginals           1
covariance, third   the largest standard deviation of an item, times its (centred) vector entries
cumulant            and the standard deviations of their sums
value               1 + |value|
divergence          1e-1 + |value|: small divergences count; gradients of differences of logits are
                    also rounded at the size of these, 1e-4 |difference|
==================  ==============================================================================

Half precision is computed in float32, and rounded once more when it is returned.
"""

from __future__ import annotations

import torch

BOUNDS = {
    torch.float32: {
        "marginals": 2e-6,
        "covariance": 2e-5,
        "third cumulant": 2e-5,
        "value": 5e-6,
        "divergence": 1e-5,
    },
    torch.float64: {
        "marginals": 1e-12,
        "covariance": 1e-11,
        "third cumulant": 1e-11,
        "value": 1e-12,
        "divergence": 1e-11,
    },
}
# Small marginals are accurate absolutely only on CUDA, and divergences from distributions that find
# them far less likely show it.
ON_CUDA = {"divergence": 5}
