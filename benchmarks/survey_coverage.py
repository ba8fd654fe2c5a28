"""How often the 95 % interval of a survey holds the true total.

    python benchmarks/survey_coverage.py

Farms are visited with probabilities proportional to their size, exactly k of n or k of every one of
three strata. The total is estimated by Horvitz and Thompson, its variance from the visited farms
only by Sen, Yates and Grundy; the interval is 1.96 standard deviations to either side, or what
Student's t says with the degrees of freedom.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import ksubset


def stratum(size: Tensor, harvest: Tensor, k: int, samples: int) -> tuple[Tensor, Tensor]:
    """Estimates of the total, and of their variances: both (samples,)."""
    design = ksubset.KSubset.from_marginals(k * size / size.sum())
    visited = design.sample_indices((samples,))  # (samples, k)
    p = design.mean
    pairs = ksubset.pairwise_marginals(design.logits, k)
    weights = (p.unsqueeze(0) * p.unsqueeze(1) - pairs) / pairs
    ratio = (harvest / p)[visited]
    gaps = (ratio.unsqueeze(-1) - ratio.unsqueeze(-2)).square()
    variance = 0.5 * (weights[visited.unsqueeze(-1), visited.unsqueeze(-2)] * gaps).sum((-2, -1))
    return ratio.sum(-1), variance


def coverage(sizes: list[int], counts: list[int], samples: int) -> tuple[float, float, float]:
    """With 1.96, with Student's t, and how far the mean of the variances is from the truth."""
    size = [torch.distributions.LogNormal(0.0, 0.5).sample((n,)).double() for n in sizes]
    harvest = [3 * x + 0.3 * x.sqrt() * torch.randn(len(x)).double() for x in size]
    truth = sum(float(y.sum()) for y in harvest)
    parts = [
        [stratum(x, y, k, min(500, samples)) for x, y, k in zip(size, harvest, counts, strict=True)]
        for _ in range(max(1, samples // 500))
    ]
    estimate = torch.cat([torch.stack([e for e, _ in part]).sum(0) for part in parts])
    variance = torch.cat([torch.stack([v for _, v in part]).sum(0) for part in parts])
    away = (estimate - truth).abs() / variance.sqrt()
    student = _student(sum(counts) - len(counts))
    ratio = float(variance.mean() / estimate.var())
    return float((away < 1.95996).double().mean()), float((away < student).double().mean()), ratio


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t: Cornish and Fisher's expansion, good to 1e-4 from 8 on."""
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    for sizes, counts in (
        ([200], [20]),
        ([1000], [100]),
        ([60, 110, 30], [6, 11, 3]),
        ([300, 550, 150], [30, 55, 15]),
    ):
        torch.manual_seed(settings.seed)
        plain, student, ratio = coverage(sizes, counts, settings.samples)
        print(f"| {counts} of {sizes} | {plain:.4f} | {student:.4f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
