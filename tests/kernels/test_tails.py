"""What samplers leave out that toss most coins and have the others accept the outcome.

These know how likely they show a count from a Fourier sum over N nodes, which is right up to
multiples of N; counts beyond N / 2 from the mean are rejected. How much that changes the law no
sample could show, but it can be added up.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_exactness import heads, lacking

from ksubset.kernels import halving
from ksubset.kernels.cpu import sampling
from ksubset.kernels.cpu.moments import MOST_NODES


def nodes(variance: float, tail: float, times: float) -> int:
    """N, as all samplers choose it: so many times what tails reach."""
    number = times * (tail / 3 + math.sqrt(tail * tail / 9 + 2 * tail * variance))
    return 2 * math.ceil((number - 1) / 2) + 1


def left_out(n: int, p: float, parts: int, tail: float, times: float) -> float:
    """How far the law of what one of several equal parts takes is from what it should be, if all
    of them together are to show as many heads as they are likeliest to."""
    kept, tossed = heads(n * [p]), heads((parts - 1) * n * [p])
    counts = np.arange(n + 1)
    given = lacking(tossed, round(parts * n * p), n)
    number = nodes(n * p * (1 - p), tail, times)
    folded = np.zeros(n + 1)
    for other in (counts + turn * number for turn in range(-2, 3)):
        there = (other >= 0) & (other <= n)
        folded[there] += kept[other[there]]
    seen = np.where((2 * abs(counts - n * p) < number) | (n < number), folded, 0.0)
    right, wrong = given * kept, given * seen
    return float(0.5 * abs(right / right.sum() - wrong / wrong.sum()).sum())


def worst(parts: int, tail: float, times: float = 1) -> float:
    sizes = [(n, p) for n in (40, 200, 1000, 3000) for p in (0.5, 0.1)]
    return max(left_out(n, p, parts, tail, times) for n, p in sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_halves(dtype: torch.dtype) -> None:
    assert worst(2, halving._PRECISIONS[dtype].tail) < 10 * torch.finfo(dtype).eps


def test_on_cpus() -> None:
    assert worst(sampling.PARTS, sampling.TAIL) < 10 * np.finfo(np.float64).eps


def test_on_cuda_devices() -> None:
    cuda = pytest.importorskip("ksubset.kernels.cuda.long.sampling")
    from ksubset.kernels.cuda import long, moments

    for parts in (2, 8, long.MOST):
        left = worst(parts, moments.TAIL.value, cuda.TIMES.value)
        assert left < np.finfo(np.float32).eps / 10


def test_as_much_as_rounding_would_be_noticed() -> None:
    """The tails of halves do not do for less."""
    assert worst(8, 30) > 1e-5
    assert worst(8, 85) > 1e-14
    assert worst(8, 16, times=1.5) > 1e-6


def most_nodes(tail: float, decay: float, times: float = 1) -> int:
    """Of those that are not negligible."""
    found = 0
    for variance in (*np.linspace(0.1, 40, 400), 1e3, 1e6):
        number = nodes(variance, tail, times)
        angles = np.pi * np.arange(number // 2 + 1) / number
        found = max(found, int((2 * variance * np.sin(angles) ** 2 < decay).sum()))
    return found


def test_there_is_room_for_all_nodes() -> None:
    assert most_nodes(sampling.TAIL, sampling.DECAY) <= MOST_NODES
    cuda = pytest.importorskip("ksubset.kernels.cuda.long.sampling")
    from ksubset.kernels.cuda import moments
    from ksubset.kernels.cuda.long import board

    assert most_nodes(moments.TAIL.value, cuda.DECAY.value, cuda.TIMES.value) <= board.NODES.value
