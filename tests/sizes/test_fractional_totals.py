"""Designs whose marginals do not sum to a whole number: two neighbouring sizes."""

from __future__ import annotations

import pytest
import torch

import ksubset
from ksubset import KSubset


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_marginals_are_matched(dtype: torch.dtype, device: torch.device) -> None:
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    for n in (2, 5, 40, 1000):
        wanted = torch.rand(4, n, dtype=dtype, device=device)
        wanted[0] /= wanted[0].sum()  # one row with a whole number
        design = KSubset.from_marginals(wanted)
        torch.testing.assert_close(design.mean, wanted, atol=tolerance, rtol=0)
        total = wanted.double().sum(-1)
        floor = total.floor().long().cpu()
        for row in range(1, 4):
            chance = design.size_probabilities[row, floor[row] + 1]
            part = (total[row] - floor[row]).to(dtype)
            torch.testing.assert_close(chance, part, atol=n * tolerance, rtol=0)
        z = design.sample((100,))
        assert (z[:, 0].sum(-1) == 1).all()
        assert ((z.sum(-1) - total).abs() < 1).all()


def test_one_row_reads_well() -> None:
    wanted = torch.full((10,), 0.73, dtype=torch.float64)
    design = KSubset.from_marginals(wanted)
    assert repr(design) == "KSubset(k: between(7, 8), logits: (10,))"
    torch.testing.assert_close(design.size_probabilities[7:9], torch.tensor([0.7, 0.3]).double())


def test_certain_and_impossible_units() -> None:
    wanted = torch.tensor([1.0, 0.0, 0.5, 0.4, 0.3, 1.0], dtype=torch.float64)
    design = KSubset.from_marginals(wanted)
    torch.testing.assert_close(design.mean, wanted)
    whole = KSubset.from_marginals(torch.tensor([0.5, 0.2, 0.3]))
    assert whole._static_k is None
    assert not isinstance(whole.k, ksubset.Sizes)


def test_it_has_the_largest_entropy() -> None:
    """A mixture of other designs of both sizes with the same marginals has less."""
    wanted = torch.tensor([0.9, 0.6, 0.5, 0.3], dtype=torch.float64)  # 2.3
    design = KSubset.from_marginals(wanted)
    support = design.enumerate_support()
    assert len(support) == 10
    p = design.log_prob(support).exp()
    # Move along all directions that change neither marginals nor the total probability.
    constraints = torch.cat([support.T, torch.ones(1, len(support)).double()])
    free = torch.linalg.svd(constraints).Vh[torch.linalg.matrix_rank(constraints) :]
    for direction in free:
        for step in (1e-3, -1e-3):
            q = p + step * direction
            assert (q > 0).all()
            assert torch.special.entr(q).sum() < design.entropy()
