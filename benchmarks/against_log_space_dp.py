"""The spectral method against the paper's algorithm 1 in log space with autodiff, one run.

    python benchmarks/against_log_space_dp.py
    python benchmarks/against_log_space_dp.py --batch 8192 --n 64 --smallest 6 --k 8

Marginals and covariance product at n = 10,000, k = 1000, batch 16, and at n = 64 with between 6
and 8 items. The baseline takes a minute and 20 GB at the former, its graph holds the whole table
several times over; in float32 its second derivative overflows to NaN at this size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import ksubset
from ksubset import oracle


def by_autodiff(
    logits: Tensor, smallest: int, k: int, v: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """mu by differentiating the log-partition, Cov v by differentiating it twice."""
    logits = logits.detach().requires_grad_()
    total = oracle.log_partition_autodiff(logits, k, smallest).sum()
    (mu,) = torch.autograd.grad(total, logits, create_graph=v is not None)
    if v is None:
        return mu, None
    (product,) = torch.autograd.grad(mu, logits, v)
    return mu.detach(), product


def by_formulas(
    logits: Tensor, smallest: int, k: int, v: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The same as the library does it: of one k by the spectral method."""
    sizes = k if smallest == k else ksubset.between(smallest, k)
    method = "spectral" if smallest == k else "auto"
    mu = ksubset.marginals(logits, sizes, method=method)
    if v is None:
        return mu, None
    return mu, ksubset.covariance_product(logits, sizes, v, method=method)


def seconds(call: Callable[[], object]) -> float:
    """Of one call, until a device has finished it."""
    start = time.perf_counter()
    call()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Time both, and compare their answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--smallest", type=int, help="the smallest size, if not k")
    parser.add_argument("--scale", type=float, default=1.0, help="of the logits")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=1, help="of the slow one")
    settings = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dtype, k = getattr(torch, settings.dtype), settings.k
    smallest = k if settings.smallest is None else settings.smallest
    logits, v = torch.randn(2, settings.batch, settings.n, dtype=dtype)
    logits, v = settings.scale * logits.to(settings.device), v.to(settings.device)
    for name, weights in (("marginals", None), ("marginals and covariance product", v)):
        given = (logits, smallest, k, weights)
        ours, theirs = by_formulas(*given), by_autodiff(*given)
        fast, slow = [], []
        for _ in range(settings.repeats):
            fast += [seconds(lambda: by_formulas(*given)) for _ in range(5)]  # noqa: B023
            slow.append(seconds(lambda: by_autodiff(*given)))  # noqa: B023
        quick, long = statistics.median(fast), statistics.median(slow)
        ratio = long / quick
        print(f"{name}: {1e3 * quick:.1f} ms, DP {long:.2f} s, {ratio:.0f} times as long")
        for left, right in zip(ours, theirs, strict=True):
            if left is not None and right is not None:
                print(f"  largest difference {float((left - right).abs().max()):.1e}")


if __name__ == "__main__":
    main()
