"""Samples of several sizes follow their law, by chi-square against enumeration."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, KINDS
from torch import Tensor

import ksubset
from ksubset.functional import _sized
from ksubset.oracle import SizedEnumeration

FALSE_ALARM = 1e-6
DRAWS = 400_000


def p_value(draws: Tensor, truth: SizedEnumeration) -> float:
    """Of Pearson's statistic over all subsets; cells with few expected draws are pooled."""
    assert ((draws == 0) | (draws == 1)).all()
    place = 2 ** torch.arange(draws.shape[-1])
    observed = torch.bincount(draws.cpu().long() @ place, minlength=len(truth.sizes))
    observed = observed[truth.support.long() @ place].double()
    expected = truth.probabilities * len(draws)
    assert not observed[expected == 0].any(), "impossible subsets are never drawn"
    rare = expected < 20
    observed = torch.cat([observed[~rare], observed[rare].sum().unsqueeze(0)])
    expected = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    kept = expected >= 1
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = kept.sum().double() - 1
    return 1.0 if freedom == 0 else float(torch.special.gammaincc(freedom / 2, statistic / 2))


@pytest.mark.parametrize("method", ["auto", "dp"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_their_law(kind: str, method: str, device: torch.device) -> None:
    logits = torch.stack([torch.randn(8), 2 * torch.randn(8)])
    logits[1, 3], logits[1, 6] = (-0.5, 0.5) if KINDS[kind].random else (-INF, INF)
    sizes = KINDS[kind].make(8)
    if kind == "between, by row":
        sizes = ksubset.between(sizes.low.to(device), sizes.high.to(device))
    z = ksubset.sample(logits.to(device), sizes, (DRAWS,), method=method)
    for row in range(2):
        assert p_value(z[:, row], KINDS[kind].oracle(logits[row].double())) > FALSE_ALARM


def test_sizes_differ_from_row_to_row(device: torch.device) -> None:
    logits = torch.randn(3, 7)
    low, high = torch.tensor([0, 2, 5]), torch.tensor([3, 4, 7])
    sizes = ksubset.between(low.to(device), high.to(device))
    z = ksubset.sample(logits.to(device), sizes, (DRAWS,))
    for row in range(3):
        j = torch.arange(8)
        weights = torch.where((j >= low[row]) & (j <= high[row]), 0.0, -INF)
        truth = SizedEnumeration(logits[row].double(), weights)
        assert p_value(z[:, row], truth) > FALSE_ALARM


def test_sizes_from_a_wrong_distribution_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """One size in fifty, or every one, drawn evenly."""
    logits, sizes = 1.5 * torch.randn(7), ksubset.at_most(7)
    truth = SizedEnumeration(logits.double(), torch.zeros(8))
    right = _sized.draw_sizes

    def even(chances: Tensor, first: int, seeds: Tensor) -> Tensor:
        mixed = 0.98 * chances + 0.02 * (chances > 0) / (chances > 0).sum(-1, keepdim=True)
        return right(mixed, first, seeds)

    def drawn() -> Tensor:
        return ksubset.sample(logits, sizes, (DRAWS,), method="spectral")

    assert p_value(drawn(), truth) > FALSE_ALARM
    for wrong in (even, lambda chances, first, seeds: right((chances > 0) * 1.0, first, seeds)):
        monkeypatch.setattr(_sized, "draw_sizes", wrong)
        assert p_value(drawn(), truth) < FALSE_ALARM


def test_samples_of_slightly_other_weights_fail() -> None:
    """A size that weighs three per cent more."""
    logits, sizes = 1.5 * torch.randn(7), ksubset.at_most(6)
    z = ksubset.sample(logits, sizes, (DRAWS,))
    weights = torch.zeros(8)
    weights[7] = -INF
    assert p_value(z, SizedEnumeration(logits.double(), weights)) > FALSE_ALARM
    chances = ksubset.size_probabilities(logits, sizes)
    weights[chances.argmax()] += 0.03
    assert p_value(z, SizedEnumeration(logits.double(), weights)) < FALSE_ALARM


def test_a_seed_gives_the_same_samples(device: torch.device) -> None:
    logits, sizes = torch.randn(5, 9, device=device), ksubset.between(1, 6)
    one, other = (
        ksubset.sample(logits, sizes, (3,), generator=torch.Generator(device).manual_seed(4))
        for _ in range(2)
    )
    assert torch.equal(one, other)


def test_the_gradient_of_samples_is_that_of_the_marginals(device: torch.device) -> None:
    logits = torch.randn(2, 6, dtype=torch.float64, device=device, requires_grad=True)
    sizes, v = ksubset.at_most(3), torch.randn(4, 2, 6, dtype=torch.float64, device=device)
    z = ksubset.simple(logits, sizes, (4,))
    (gradient,) = torch.autograd.grad(z, logits, v)
    truth = ksubset.covariance_product(logits.detach(), sizes, v.sum(0))
    torch.testing.assert_close(gradient, truth)


def test_indices_are_filled_up() -> None:
    logits = torch.randn(6, 9)
    generators = (torch.Generator().manual_seed(1) for _ in range(2))
    z = ksubset.sample(logits, ksubset.between(2, 4), (50,), generator=next(generators))
    found = ksubset.sample_indices(logits, ksubset.between(2, 4), (50,), generator=next(generators))
    assert found.shape == (50, 6, 4)
    hot = torch.zeros(50, 6, 10).scatter(-1, found.where(found >= 0, torch.tensor(9)), 1.0)
    assert torch.equal(hot[..., :9], z)
    assert (found.ge(0).sum(-1) == z.sum(-1)).all()
