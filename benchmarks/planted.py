"""Regression problems with known features: equicorrelated and autoregressive designs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def planted(
    seed: int, m: int, n: int, k: int, design: str, snr: float, correlation: float = 0.5
) -> tuple[Array, Array, Array]:
    """X (m, n), y (m,) and the k true features, ascending.

    Args:
        seed: of everything.
        m: observations.
        n: features.
        k: true features, with coefficients ±U(0.5, 1.5).
        design: "equal", all features have the same correlation; "chain", neighbours have it, and it
            falls geometrically with the distance.
        snr: the variance of the signal over that of the noise.
        correlation: of features.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((m, n))
    places = np.sort(random.choice(n, k, replace=False))
    coefficients = random.uniform(0.5, 1.5, k) * random.choice([-1, 1], k)
    if design == "equal":
        shared = random.standard_normal((m, 1))
        x = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * x
        covariance = np.full((k, k), correlation) + (1 - correlation) * np.eye(k)
    else:
        for j in range(1, n):
            x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
        covariance = correlation ** np.abs(np.subtract.outer(places, places))
    variance = coefficients @ covariance @ coefficients
    noise = np.sqrt(variance / snr) * random.standard_normal(m)
    return x, x[:, places] @ coefficients + noise, places
