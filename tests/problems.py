"""The cases every method is held to, and the tolerances: one place for both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ksubset import oracle
from ksubset.kernels import METHODS

# "auto" is the compiled kernels where a device has them.
METHOD_NAMES = ("auto", *METHODS)
DTYPES = (torch.float64, torch.float32)
INF = float("inf")


@dataclass(frozen=True)
class Tolerance:
    """Bounds on errors, as documented to users."""

    marginals: float
    covariance: tuple[float, float]  # of max |Cov v| and of max |v - mean v|
    scalar: float  # of 1 + |value|
    total: float  # of k


TOLERANCES = {
    torch.float64: Tolerance(1e-12, (1e-10, 1e-12), 1e-12, 1e-11),
    torch.float32: Tolerance(2e-6, (2e-5, 2e-6), 5e-6, 2e-5),
}


@dataclass(frozen=True)
class Problem:
    """One row of logits (held exactly by float32), a size, and the truth about it."""

    name: str
    logits: Tensor
    k: int
    log_partition: float  # over the finite logits
    marginals: Tensor
    entropy: float
    vectors: tuple[Tensor, ...]
    products: tuple[Tensor, ...]


def _vectors(n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Two with the same covariance product: float32 holds their distance of 1000 exactly."""
    plain = (torch.randn(n, generator=generator) * 2**13).round().double() / 2**13
    return plain, plain + 1000


def _centred(v: Tensor) -> Tensor:
    return v - v.mean()


def product_plan(marginals: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """Half the sum of r_ij (e_i - e_j)(v_i - v_j) with r_ij = (1 - mu_i) mu_j / Z, of one row."""
    out, into = (1 - marginals) * z, marginals * (1 - z)
    total = out.sum()
    if total == 0:
        return torch.zeros_like(v)
    rates = out.unsqueeze(1) * into / total
    weights = 0.5 * rates * (v.unsqueeze(1) - v)
    return weights.sum(1) - weights.sum(0)


def _enumerated(name: str, logits: Tensor, k: int, generator: torch.Generator) -> Problem:
    vectors = _vectors(len(logits), generator)
    covariance = oracle.covariance(logits, k)
    return Problem(
        name=name,
        logits=logits,
        k=k,
        log_partition=float(oracle.log_partition(logits, k)),
        marginals=oracle.marginals(logits, k),
        entropy=float(oracle.entropy(logits, k)),
        vectors=vectors,
        products=(covariance @ _centred(vectors[0]),) * len(vectors),
    )


def _by_dp(name: str, logits: Tensor, k: int, generator: torch.Generator) -> Problem:
    n = len(logits)
    swapped = k > n // 2  # complement, or the oracle's table has n k entries
    table = oracle.LogSpaceDP(-logits if swapped else logits, n - k if swapped else k)
    marginals = table.marginals()
    vectors = _vectors(n, generator)
    return Problem(
        name=name,
        logits=logits,
        k=k,
        log_partition=table.log_partition() + (float(logits.sum()) if swapped else 0.0),
        marginals=1 - marginals if swapped else marginals,
        entropy=table.entropy(),
        vectors=vectors,
        products=(table.covariance_product(vectors[0]),) * len(vectors),
    )


def _special(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Rows with ties and infinities."""
    normal = torch.randn(n, generator=generator)
    ties = normal.clone()
    ties[: n // 2] = ties[0]
    rows = {"equal": torch.zeros(n), "ties": ties}
    if n >= 3:
        forbidden, forced, both = normal.clone(), normal.clone(), normal.clone()
        forbidden[n // 2] = -INF
        forced[n // 3] = INF
        both[0], both[-1] = INF, -INF
        rows |= {"forbidden": forbidden, "forced": forced, "both": both}
    return rows


def _feasible(logits: Tensor, k: int) -> bool:
    return int((logits == INF).sum()) <= k <= int((logits > -INF).sum())


@cache
def small() -> tuple[Problem, ...]:
    """n <= 14, every k, several scales, shifts, ties and infinities; by enumeration."""
    generator = torch.Generator().manual_seed(0)
    problems = []
    for n in (1, 2, 3, 5, 8, 11, 14):
        rows = {}
        for scale in (0.1, 1.0, 4.0, 30.0):
            logits = scale * torch.randn(n, generator=generator)
            rows[f"scale {scale}"] = logits
            rows[f"scale {scale}, +37"] = logits + 37
            rows[f"scale {scale}, -60"] = logits - 60
        rows |= _special(n, generator)
        for name, row in rows.items():
            problems += [
                _enumerated(f"n={n} k={k} {name}", row.double(), k, generator)
                for k in range(n + 1)
                if _feasible(row, k)
            ]
    return tuple(problems)


LARGE = {1000: (1, 10, 300, 999), 10_000: (10, 1000, 9999)}


@cache
def large(n: int, scale: float) -> tuple[Problem, ...]:
    """Out of reach of enumeration; by the log-space DP in extended precision."""
    generator = torch.Generator().manual_seed(n)
    return tuple(
        _by_dp(
            f"n={n} k={k} scale {scale}",
            (scale * torch.randn(n, generator=generator)).double(),
            k,
            generator,
        )
        for k in LARGE[n]
    )
