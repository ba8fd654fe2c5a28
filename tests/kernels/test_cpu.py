"""What only the compiled kernels for CPUs could get wrong. The contract and exactness suites run
them as ``"auto"``."""

from __future__ import annotations

import pytest
import torch
from problems import INF
from torch import Tensor

from ksubset import oracle
from ksubset.kernels import cpu

SHAPES = [(70, 20, 7), (40, 1000, 10), (40, 1000, 400)]  # in lanes, with replacement, by halves


def everything(logits: Tensor, k: Tensor) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    seeds = torch.randint(1 << 60, (3, len(logits)), generator=generator)
    v = torch.randn(logits.shape, generator=generator)
    drawn, tilted = cpu.sample(logits, k, seeds)
    product = cpu.covariance_product(tilted, k, v)
    return [drawn, tilted, cpu.tilt(logits, k), product, *cpu.infer(logits, k)]


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_results_do_not_depend_on_the_number_of_threads(
    rows: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    monkeypatch.setattr(cpu, "_SHARE", 1)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(everything(logits, counts))
    for one, three in zip(*results, strict=True):
        assert torch.equal(one, three)


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_a_row_does_not_depend_on_its_neighbours(rows: int, n: int, k: int) -> None:
    """Strange ones included: infinite logits, no choice, NaN, logits far from zero."""
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    before = everything(logits, counts)
    logits[1, 2], logits[2, 2], logits[3, 2] = INF, -INF, torch.nan
    logits[4] += 1e6
    counts[5], counts[6], counts[7] = 0, n, n + 1
    after = everything(logits, counts)
    for one, other in zip(before, after, strict=True):
        rows_first = (x.movedim(1, 0) if x.dim() == 3 else x for x in (one, other))
        one, other = (x[8:] for x in rows_first)
        assert torch.equal(one, other)
    for result in after:
        bad = result.movedim(1, 0)[[3, 7]] if result.dim() == 3 else result[[3, 7]]
        assert bad.isnan().all()


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_nothing_is_read_before_it_is_written(
    rows: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    plain = everything(logits, counts)
    empty_like, new_empty = torch.empty_like, Tensor.new_empty
    monkeypatch.setattr(torch, "empty_like", lambda x: empty_like(x).fill_(torch.nan))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **b: new_empty(*a, **b).fill_(torch.nan))
    for one, other in zip(plain, everything(logits, counts), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize(("n", "k"), [(200, 10), (200, 60), (200, 190), (300, 150)])
def test_frequencies_are_the_marginals(n: int, k: int, scale: float) -> None:
    """Of items, and the variance in one direction, where subsets are too many to count."""
    generator = torch.Generator().manual_seed(n + k)
    draws = 40_000
    logits = scale * torch.randn(1, n, generator=generator)
    seeds = torch.randint(1 << 60, (draws, 1), generator=generator)
    z = cpu.sample(logits, torch.tensor([k]), seeds)[0][:, 0].double()
    assert (z.sum(-1) == k).all()
    law = oracle.LogSpaceDP(logits[0].double(), k)
    mu = torch.as_tensor(law.marginals())
    unsure = mu * (1 - mu) > 1e-3
    error = (z.mean(0) - mu)[unsure] / (mu * (1 - mu) / draws)[unsure].sqrt()
    assert error.abs().max() < 5.5
    assert abs(error.square().mean() - 1) < 5 * (2 / len(error)) ** 0.5
    # A direction's variance is what the covariance says.
    v = torch.randn(n, generator=generator).double()
    variance = float(v @ torch.as_tensor(law.covariance_product(v)))
    values = (z - mu) @ v
    assert abs(values.square().mean() / variance - 1) < 5 * (2.5 / draws) ** 0.5
