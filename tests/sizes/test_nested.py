"""Every prefix of an ordering is an exact k-subset, and so is every pair of neighbours' overlap."""

from __future__ import annotations

import itertools

import pytest
import torch
from test_exactness import FALSE_ALARM, _pearson, p_value
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.kernels import nested

DRAWS = 200_000
INF = float("inf")


def prefixes(logits: Tensor, draws: int = DRAWS) -> Tensor:
    """(n, draws, n): the subsets of sizes 1 ... n."""
    n = logits.shape[-1]
    order, subsets = ksubset.nested_subsets(logits, range(1, n + 1), (draws,))
    assert torch.equal(order.sort(-1).values, torch.arange(n, device=order.device).expand(draws, n))
    return subsets.movedim(-2, 0)


@pytest.mark.parametrize(("n", "scale"), [(3, 1.0), (5, 2.0), (8, 0.5), (8, 3.0)])
def test_every_prefix_is_a_k_subset(n: int, scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(n)
    z = prefixes(logits.to(device))
    for k in range(1, n):
        assert p_value(z[k - 1], logits.double(), k) > FALSE_ALARM
    assert (z[1:] >= z[:-1]).all()


def test_neighbouring_prefixes_follow_the_coupling(device: torch.device) -> None:
    """The joint law of two prefixes, by running the sequential sampler on all random numbers: P(i
    is added to z_k) is the difference of marginals."""
    logits = 1.5 * torch.randn(6)
    z = prefixes(logits.to(device)).cpu()
    for k in range(1, 6):
        added = (z[k] - z[k - 1]).sum(0).double()
        expected = oracle.marginals(logits, k + 1) - oracle.marginals(logits, k)
        assert _pearson(added, expected * DRAWS, 20) > FALSE_ALARM
        kept = torch.einsum("si,sj->ij", z[k - 1], z[k]).flatten().double() / DRAWS
        low, high = oracle.marginals(logits, k), oracle.marginals(logits, k + 1)
        # z_k is within z_(k+1): P(i in z_k and i in z_(k+1)) is P(i in z_k).
        torch.testing.assert_close(
            kept.reshape(6, 6).diagonal(), low, atol=5 * 0.5 / DRAWS**0.5, rtol=0
        )
        assert (high >= low - 1e-12).all()


def test_orders_of_a_batch(device: torch.device) -> None:
    logits = torch.randn(2, 3, 40, device=device)
    order, subsets = ksubset.nested_subsets(logits, [3, 10], (5,))
    assert order.shape == (5, 2, 3, 10)
    assert subsets.shape == (5, 2, 3, 2, 40)
    hot = torch.zeros(5, 2, 3, 40, device=device).scatter(-1, order[..., :3], 1.0)
    assert torch.equal(hot, subsets[..., 0, :])
    assert (subsets.sum(-1) == torch.tensor([3.0, 10.0], device=device)).all()
    one = ksubset.nested_subsets(logits, 4)
    assert one.subsets.shape == (2, 3, 40)
    again = (ksubset.nested_subsets(logits, 4, generator=_seeded(device)) for _ in range(2))
    first, second = again
    assert torch.equal(first.order, second.order)


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(7)


def test_infinite_logits(device: torch.device) -> None:
    logits = torch.randn(7, device=device)
    logits[2], logits[4], logits[5] = INF, -INF, INF
    order, _ = ksubset.nested_subsets(logits, 6, (2000,))
    assert (order[:, :2].sort(-1).values.cpu() == torch.tensor([2, 5])).all()
    assert not (order == 4).any()
    z = ksubset.nested_subsets(logits, 4, (DRAWS // 4,)).subsets
    assert p_value(z, logits.double().cpu(), 4) > FALSE_ALARM


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_compiled_kernel_and_torch_agree(dtype: torch.dtype) -> None:
    """The same random numbers, the same orderings."""
    compiled = pytest.importorskip("ksubset.kernels.cpu.nested")
    for n, most in ((2, 1), (5, 5), (40, 3), (40, 39), (200, 30), (300, 4)):
        for scale in (0.1, 1.0, 4.0):
            logits = scale * torch.randn(6, n, dtype=dtype)
            if n > most + 1:
                logits[2, 1] = logits[3, -1] = -INF
            seeds = torch.arange(24).reshape(4, 6)
            *found, left = compiled.order(logits, most, seeds)
            kept = torch.arange(6)
            if left is not None:
                assert scale == 4.0
                kept = kept[~torch.isin(kept, left)]
                assert len(kept)
            order, rank = nested._order(logits, most, seeds)
            assert torch.equal(found[0][:, kept], order[:, kept])
            assert torch.equal(found[1][:, kept], rank[:, kept])


def test_rows_that_are_left_to_torch() -> None:
    compiled = pytest.importorskip("ksubset.kernels.cpu.nested")
    logits = torch.randn(5, 50).double()
    logits[1] *= 300
    logits[2, 4] = INF
    logits[3, 4:] = -INF
    seeds = torch.arange(10).reshape(2, 5)
    assert compiled.order(logits, 20, seeds)[2].tolist() == [1, 2, 3]
    for one, other in zip(
        nested.order(logits, 20, seeds), nested._order(logits, 20, seeds), strict=True
    ):
        assert torch.equal(one[:, [0, 1, 2, 4]], other[:, [0, 1, 2, 4]])


def test_mistakes() -> None:
    for sizes in (-1, [], [2, 1.5], "3"):
        with pytest.raises(ValueError, match="sizes must be an int or a sequence of ints"):
            ksubset.nested_subsets(torch.randn(4), sizes)
    with pytest.raises(ValueError, match="k must be between 0 and the number of items n = 4"):
        ksubset.nested_subsets(torch.randn(4), [2, 5])
    bad = torch.randn(2, 4)
    bad[0, :3] = -INF
    found = ksubset.nested_subsets(bad, 2, validate_args=False)
    assert (found.order[0] == -1).all()
    assert found.subsets[0].isnan().all()
    assert found.subsets[1].sum() == 2


def test_a_plain_ordering_fails() -> None:
    """Items one by one, each by its weight among those left: the prefixes of Gumbel top-k."""
    logits = 1.5 * torch.randn(6)
    noise = -torch.log(-torch.log(torch.rand(DRAWS, 6)))
    order = (logits + noise).argsort(-1, descending=True)
    z = torch.zeros(DRAWS, 6).scatter_(1, order[:, :3], 1.0)
    assert p_value(z, logits.double(), 3) < FALSE_ALARM


def test_codes_are_decoded() -> None:
    """Every permutation has one code, and comes out of it."""
    for places in itertools.permutations(range(4)):
        code = [sum(later < place for later in places[i + 1 :]) for i, place in enumerate(places)]
        found = nested._decoded(torch.tensor([code]), 4)
        assert found[0].tolist() == list(places)
