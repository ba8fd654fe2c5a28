"""Several rows with one total, against enumeration of all choices."""

from __future__ import annotations

import itertools

import pytest
import torch
from test_exactness import FALSE_ALARM, _pearson
from torch import Tensor

import ksubset
from ksubset import SharedBudget
from ksubset.kernels import totals

INF = float("inf")
CASES = [
    (ksubset.at_most(2), (0, 2), 3),
    (ksubset.between(1, 3), (1, 3), 8),
    (ksubset.between(1, 4), (1, 4), 4),
    (ksubset.at_most(2), (0, 2), 6),
    (ksubset.at_least(0), (0, 4), 1),
    (ksubset.weighted_sizes(torch.tensor([0.0, 1.0, 1.5, 1.0])), (0, 3), 5),
]


class Listed:
    """All choices of 3 rows of 4 items, one after the other."""

    def __init__(
        self, logits: Tensor, limits: tuple[int, int], total: int, weights: Tensor
    ) -> None:
        z = torch.tensor(list(itertools.product([0.0, 1.0], repeat=12))).double().reshape(-1, 3, 4)
        sizes = z.sum(-1)
        inside = ((sizes >= limits[0]) & (sizes <= limits[1])).all(-1) & (sizes.sum(-1) == total)
        self.z = z[inside]
        finite = torch.where(logits.isfinite(), logits, 0)
        scores = (self.z * finite).sum((-1, -2)) + weights[self.z.sum(-1).long()].sum(-1)
        wrong = (self.z > 0) & (logits == -INF) | (self.z == 0) & (logits == INF)
        scores = scores.masked_fill(wrong.any(-1).any(-1), -INF)
        self.total = scores.logsumexp(0)
        self.p = (scores - self.total).exp()
        self.mu = torch.einsum("s,sri->ri", self.p, self.z)

    def covariance_product(self, v: Tensor) -> Tensor:
        value = (self.z * v).sum((-1, -2))
        return torch.einsum("s,sri->ri", self.p * (value - self.p @ value), self.z)


def listed(logits: Tensor, case: int) -> Listed:
    sizes, limits, total = CASES[case]
    weights = torch.zeros(5).double()
    if "weighted" in repr(sizes):
        weights[:4] = torch.tensor([0.0, 1.0, 1.5, 1.0])
    return Listed(logits, limits, total, weights)


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_against_enumeration(case: int, scale: float, device: torch.device) -> None:
    sizes, _, total = CASES[case]
    logits = scale * torch.randn(3, 4, dtype=torch.float64)
    truth = listed(logits, case)
    x = logits.to(device).requires_grad_()
    budget = SharedBudget(x, total, sizes)
    found = budget.log_partition()
    torch.testing.assert_close(found.cpu(), truth.total, atol=1e-11, rtol=1e-12)
    torch.testing.assert_close(budget.marginals().cpu(), truth.mu, atol=1e-12, rtol=0)
    own = torch.nn.functional.one_hot(truth.z.sum(-1).long(), 5).double()
    chances = torch.einsum("s,srj->rj", truth.p, own)
    torch.testing.assert_close(budget.size_probabilities().cpu(), chances, atol=1e-12, rtol=0)
    value = budget.log_prob(truth.z.to(device)).cpu()
    torch.testing.assert_close(value.exp(), truth.p, atol=1e-11, rtol=1e-9)
    assert budget.log_prob(torch.ones(3, 4, device=device)) == -INF
    (gradient,) = torch.autograd.grad(found, x)
    torch.testing.assert_close(gradient.cpu(), truth.mu, atol=1e-11, rtol=0)
    v = torch.randn(3, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(SharedBudget(x, total, sizes).simple(), x, v.to(device))
    torch.testing.assert_close(gradient.cpu(), truth.covariance_product(v), atol=1e-11, rtol=0)


def p_value(z: Tensor, truth: Listed) -> float:
    place = 2 ** torch.arange(12)
    observed = torch.bincount(z.cpu().flatten(-2).long() @ place, minlength=2**12)
    codes = truth.z.flatten(-2).long() @ place
    assert observed[codes].sum() == len(z), "every draw is one of the choices"
    return _pearson(observed[codes].double(), truth.p * len(z), 20)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_samples_follow_their_law(case: int, device: torch.device) -> None:
    sizes, _, total = CASES[case]
    logits = torch.randn(3, 4, dtype=torch.float64)
    z = SharedBudget(logits.to(device), total, sizes).sample((200_000,))
    assert p_value(z, listed(logits, case)) > FALSE_ALARM


def test_sizes_from_a_wrong_distribution_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of children evenly: the total is right, the law is not."""
    right = totals.sample

    def evenly(found: list[Tensor], *rest: Tensor) -> Tensor:
        return right([(level > 0) * 1.0 for level in found], *rest)

    monkeypatch.setattr(totals, "sample", evenly)
    logits = torch.randn(3, 4, dtype=torch.float64)
    sizes, _, total = CASES[0]
    z = SharedBudget(logits, total, sizes).sample((200_000,))
    assert p_value(z, listed(logits, 0)) < FALSE_ALARM


def test_infinite_logits(device: torch.device) -> None:
    logits = torch.randn(3, 4, dtype=torch.float64)
    logits[0, 1], logits[1, 2] = -INF, INF
    truth = listed(logits, 0)
    budget = SharedBudget(logits.to(device), 3, ksubset.at_most(2))
    torch.testing.assert_close(budget.marginals().cpu(), truth.mu, atol=1e-12, rtol=0)
    torch.testing.assert_close(budget.log_partition().cpu(), truth.total)
    assert p_value(budget.sample((100_000,)), truth) > FALSE_ALARM


def test_a_batch_of_many_rows(device: torch.device) -> None:
    logits = 2 * torch.randn(2, 300, 16, device=device)
    total = torch.tensor([500, 1100], device=device)
    budget = SharedBudget(logits, total, ksubset.at_most(6))
    z = budget.sample((3,))
    assert z.shape == (3, 2, 300, 16)
    assert (z.sum((-2, -1)) == total).all()
    assert z.sum(-1).max() <= 6
    mu = budget.marginals()
    torch.testing.assert_close(mu.sum((-2, -1)), total.float(), rtol=1e-5, atol=0)
    assert budget.size_probabilities().sum(-1).sub(1).abs().max() < 1e-5
    alone = SharedBudget(logits[1].double(), 1100, ksubset.at_most(6)).marginals()
    torch.testing.assert_close(mu[1].double(), alone, atol=2e-5, rtol=0)


def test_the_tree_of_long_distributions_is_that_of_short_ones() -> None:
    chances = torch.rand(1, 64, 5).double().softmax(-1)
    root = totals.levels(chances)[-1][0, 0]
    direct = torch.ones(1).double()
    for row in chances[0]:
        padded = torch.nn.functional.pad(direct, (4, 4))
        direct = (padded.unfold(0, 5, 1) * row.flip(0)).sum(-1)
    torch.testing.assert_close(root, direct, atol=1e-15, rtol=0)


def test_mistakes() -> None:
    logits = torch.randn(3, 4)
    with pytest.raises(ValueError, match=r"total must be .* add up to, 0 and 6, got 7"):
        SharedBudget(logits, 7, ksubset.at_most(2))
    with pytest.raises(ValueError, match=r"add up to, 3 and 9, got 2"):
        SharedBudget(logits, 2, ksubset.between(1, 3))
    with pytest.raises(TypeError, match=r"total must be an int .* got 2\.5"):
        SharedBudget(logits, 2.5, ksubset.at_most(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="total must broadcast to the shape"):
        SharedBudget(logits, torch.tensor([1, 2]), ksubset.at_most(2))
    with pytest.raises(ValueError, match=r"sizes must be a range .* got random_sizes"):
        SharedBudget(logits, 2, ksubset.random_sizes({1: 1.0}))
    with pytest.raises(ValueError, match=r"logits must have shape \(..., rows, n\)"):
        SharedBudget(logits[0], 2, ksubset.at_most(2))
    mask = torch.ones(3, 4).bool()
    mask[0, :3] = False
    with pytest.raises(ValueError, match=r"add up to, 0 and 5, got 6"):
        SharedBudget(logits, 6, ksubset.at_most(2), mask=mask)
