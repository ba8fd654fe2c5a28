"""The mistakes of published code, each with a test that would catch it here."""

from __future__ import annotations

import math

import pytest
import torch
from problems import METHOD_NAMES
from torch import Tensor

import ksubset
from ksubset import oracle


def law(draws: Tensor, n: int, k: int) -> Tensor:
    place = 2.0 ** torch.arange(n, dtype=torch.float64)
    counts = torch.bincount((draws.double() @ place).long(), minlength=1 << n)
    return counts[(oracle.support(n, k) @ place).long()] / len(draws)


def test_gumbel_top_k_is_another_law() -> None:
    """Total variation 0.03 to 0.14 at n = 8, k = 3; ours is within sampling noise."""
    logits = 1.5 * torch.randn(8, generator=torch.Generator().manual_seed(3))
    truth = oracle.log_probabilities(logits.double(), 3).exp()
    count = 400_000
    noise = -torch.log(-torch.log(torch.rand(count, 8)))
    chosen = (logits + noise).topk(3).indices
    gumbel = law(torch.zeros(count, 8).scatter_(1, chosen, 1.0), 8, 3)
    chosen = (torch.nn.functional.logsigmoid(logits) + noise).topk(3).indices
    published = law(torch.zeros(count, 8).scatter_(1, chosen, 1.0), 8, 3)
    ours = law(ksubset.sample(logits, 3, (count,)), 8, 3)
    assert 0.03 < 0.5 * (gumbel - truth).abs().sum() < 0.14
    assert 0.5 * (published - truth).abs().sum() > 0.14
    assert 0.5 * (ours - truth).abs().sum() < 0.01


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_no_part_of_the_outer_derivative_is_detached(method: str) -> None:
    """Holding log q fixed scales the gradient by 1 - sigmoid(theta)."""
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    v = torch.randn(6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((ksubset.simple(logits, 2, method=method) * v).sum(), logits)
    truth = oracle.covariance(logits, 2) @ v
    torch.testing.assert_close(gradient, truth)
    assert not torch.allclose(gradient, truth * (1 - torch.sigmoid(logits)))


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_no_sentinel_breaks_the_invariance_to_shifts(method: str) -> None:
    """With a sentinel of -300, n = 350 and k = 10, marginals sum to 11 after adding 1."""
    logits = torch.randn(350, dtype=torch.float64)
    mu = ksubset.marginals(logits, 10, method=method)
    for shift in (1.0, -50.0, 1000.0):
        shifted = ksubset.marginals(logits + shift, 10, method=method)
        torch.testing.assert_close(shifted, mu, rtol=1e-9, atol=1e-12)
        assert abs(shifted.sum() - 10) < 1e-10


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_entropy_recurrence_starts_at_the_first_item(method: str) -> None:
    """Started at i = k it gives 7.507 here."""
    bits = ksubset.entropy(torch.zeros(20, dtype=torch.float64), 10, method=method)
    assert abs(float(bits) - math.log(math.comb(20, 10))) < 1e-12


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_float32_does_not_underflow(method: str) -> None:
    """Without a tilt, a complex64 transform gives -11.8 for log P(sum = k) = -762 or so."""
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0)) + 1.2
    value = ksubset.log_prob_exactly_k(logits, 10, method=method)
    truth = oracle.LogSpaceDP(logits.double(), 10).log_partition()
    truth -= float(torch.nn.functional.softplus(logits.double()).sum())
    assert truth < -500
    assert abs(float(value) - truth) < 5e-6 * (1 + abs(truth))


def test_no_softplus_that_turns_linear() -> None:
    """torch's softplus drops exp(-20) = 2e-9 beyond its threshold of 20."""
    row = [36.600693933096025, -119.7398016763637, -14.45638248349514, -20.347326545927626]
    logits = torch.tensor([*row, -19.30735596626422], dtype=torch.float64)
    truth = oracle.log_partition(logits, 4) - torch.logaddexp(logits, torch.zeros(5)).sum()
    value = ksubset.log_prob_exactly_k(logits, 4)
    torch.testing.assert_close(value, truth, rtol=1e-12, atol=1e-12)


def test_ties_do_not_select_more_than_k() -> None:
    tied = torch.zeros(4, 9)
    assert (ksubset.mode(tied, 3).sum(-1) == 3).all()
    assert (ksubset.sample(tied, 3).sum(-1) == 3).all()


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_samples_are_not_reversed(method: str) -> None:
    logits = torch.tensor([9.0, 9.0, 0.0, 0.0, 0.0, -9.0])
    frequency = ksubset.sample(logits, 3, (2000,), method=method).mean(0)
    assert frequency[:2].min() > 0.9
    assert frequency[-1] < 0.1


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_marginals_are_not_less_the_coins_probabilities(method: str) -> None:
    """The gradient of log P(sum = k) is mu - sigmoid(theta); the marginals are mu."""
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    mu = ksubset.marginals(logits, 3, method=method)
    assert abs(mu.sum() - 3) < 1e-12
    value = ksubset.log_prob_exactly_k(logits, 3, method=method)
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(gradient, mu - torch.sigmoid(logits))


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_second_derivatives_survive_infinities_and_gaps(method: str) -> None:
    """logaddexp gives NaN Hessian-vector products once a gap overflows exp."""
    logits = torch.tensor([800.0, 0.0, 0.0, -800.0, -torch.inf, 0.5], dtype=torch.float64)
    logits.requires_grad_()
    (first,) = torch.autograd.grad(
        ksubset.log_partition(logits, 2, method=method), logits, create_graph=True
    )
    v = torch.randn(6, dtype=torch.float64)
    (second,) = torch.autograd.grad(first @ v, logits)
    torch.testing.assert_close(second, oracle.covariance(logits, 2) @ v)


def test_the_baseline_of_the_paper_agrees() -> None:
    """Algorithm 1 in log space with autodiff, the benchmark's baseline, is right itself."""
    logits = torch.randn(3, 9, dtype=torch.float64, requires_grad=True)
    value = oracle.log_partition_autodiff(logits, 4)
    torch.testing.assert_close(value, ksubset.log_partition(logits, 4))
    (mu,) = torch.autograd.grad(value.sum(), logits, create_graph=True)
    torch.testing.assert_close(mu, ksubset.marginals(logits, 4))
    v = torch.randn_like(logits)
    (product,) = torch.autograd.grad((mu * v).sum(), logits)
    torch.testing.assert_close(product, ksubset.covariance_product(logits, 4, v))
