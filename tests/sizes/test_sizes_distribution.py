"""KSubset with sizes in place of k."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.distributions import kl_divergence

import ksubset
from ksubset import KSubset, SimpleKSubset


@pytest.mark.parametrize(
    "sizes",
    [
        ksubset.between(2, 4),
        ksubset.weighted_sizes({1: 0.0, 4: 1.0}),
        ksubset.random_sizes({2: 0.25, 3: 0.75}),
    ],
    ids=repr,
)
def test_is_a_distribution(sizes: ksubset.Sizes, device: torch.device) -> None:
    logits = torch.randn(3, 6, dtype=torch.float64, device=device)
    d = KSubset(sizes, logits=logits)
    assert repr(d) == f"KSubset(k: {sizes!r}, logits: (3, 6))"
    assert repr(d.support) == f"k_hot(k={sizes!r})"
    z = d.sample((50,))
    assert d.support.check(z).all()
    assert not d.support.check(torch.ones(6, device=device))
    support = d.enumerate_support()
    probabilities = d.log_prob(support).exp()
    torch.testing.assert_close(probabilities.sum(0), torch.ones_like(probabilities[0]))
    torch.testing.assert_close((probabilities.unsqueeze(-1) * support).sum(0), d.mean)
    torch.testing.assert_close(-(probabilities * probabilities.log()).sum(0), d.entropy())
    torch.testing.assert_close(d.covariance_matrix.diagonal(dim1=-2, dim2=-1), d.variance)
    torch.testing.assert_close(d.size_probabilities.sum(-1), torch.ones(3).to(logits))
    assert d.mode.shape == (3, 6)
    wide = d.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide.sample((4,)).shape == (4, 2, 3, 6)
    index = d.sample_indices((5,))
    assert d.log_prob_indices(index).isfinite().all()
    for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert torch.equal(other.mean, d.mean)
    q = KSubset(sizes, logits=logits.flip(0))
    expected = (probabilities * (d.log_prob(support) - q.log_prob(support))).sum(0)
    torch.testing.assert_close(kl_divergence(d, q), expected)


def test_one_size_is_k() -> None:
    logits = torch.randn(4, 5)
    d = KSubset(ksubset.between(2, 2), logits=logits)
    assert repr(d) == "KSubset(k: 2, logits: (4, 5))"
    assert torch.equal(d.mean, KSubset(2, logits=logits).mean)


def test_mistakes() -> None:
    logits = torch.randn(2, 5)
    with pytest.raises(ValueError, match=r"k must not go beyond .* got between\(2, 9\)"):
        KSubset(ksubset.between(2, 9), logits=logits)
    d = KSubset(ksubset.between(2, 3), logits=logits, validate_args=True)
    with pytest.raises(ValueError, match="within the support"):
        d.log_prob(torch.ones(2, 5))
    rows = KSubset(ksubset.between(torch.tensor([1, 2]), 3), logits=logits)
    with pytest.raises(NotImplementedError, match="differ between rows"):
        rows.enumerate_support()


def test_samples_with_a_gradient() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    d = SimpleKSubset(ksubset.at_most(3), logits=logits)
    v = torch.randn(3, 5)
    (gradient,) = torch.autograd.grad(d.rsample(), logits, v)
    product = ksubset.covariance_product(logits, ksubset.at_most(3), v)
    torch.testing.assert_close(gradient, product)
