"""The spectral method against the paper's algorithm 1 in log space with autodiff, one run.

    python benchmarks/against_log_space_dp.py

Marginals and covariance product at n = 10,000, k = 1000, batch 16. The baseline takes a minute
and 20 GB, its graph holds the whole table several times over; in float32 its second derivative
overflows to NaN at this size.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

import ksubset
from ksubset import oracle


def by_autodiff(logits: Tensor, k: int, v: Tensor) -> tuple[Tensor, Tensor]:
    """mu and Cov v by differentiating the log-partition twice."""
    logits = logits.detach().requires_grad_()
    total = oracle.log_partition_autodiff(logits, k).sum()
    (mu,) = torch.autograd.grad(total, logits, create_graph=True)
    (product,) = torch.autograd.grad(mu, logits, v)
    return mu.detach(), product


def spectrally(logits: Tensor, k: int, v: Tensor) -> tuple[Tensor, Tensor]:
    """The same by formulas."""
    return (
        ksubset.marginals(logits, k, method="spectral"),
        ksubset.covariance_product(logits, k, v, method="spectral"),
    )


def main() -> None:
    """Time both, and compare their answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    settings = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logits, v = torch.randn(2, settings.batch, settings.n, dtype=getattr(torch, settings.dtype))
    spectrally(logits, settings.k, v)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        ours = spectrally(logits, settings.k, v)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    theirs = by_autodiff(logits, settings.k, v)
    slow = time.perf_counter() - start
    fast = statistics.median(times)
    print(f"log-space DP with autodiff {slow:.2f} s")
    print(f"spectral {1e3 * fast:.1f} ms, {slow / fast:.0f} times faster")
    for name, left, right in zip(("marginals", "product"), ours, theirs, strict=True):
        print(f"largest difference of the {name}: {float((left - right).abs().max()):.1e}")


if __name__ == "__main__":
    main()
