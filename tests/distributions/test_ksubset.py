from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from problems import INF
from torch.distributions import kl_divergence

import ksubset
from ksubset import KSubset, SimpleKSubset, oracle


def test_is_a_distribution(device: torch.device) -> None:
    logits = torch.randn(3, 8, device=device)
    d = KSubset(3, logits=logits)
    assert d.batch_shape == (3,)
    assert d.event_shape == (8,)
    assert not d.has_rsample
    z = d.sample((5,))
    assert z.shape == (5, 3, 8)
    assert d.support.check(z).all()
    assert d.log_prob(z).shape == (5, 3)
    assert d.mean.shape == d.variance.shape == d.mode.shape == (3, 8)
    assert d.stddev.shape == (3, 8)
    assert d.covariance_matrix.shape == (3, 8, 8)
    torch.testing.assert_close(d.covariance_matrix.diagonal(dim1=-2, dim2=-1), d.variance)
    assert d.entropy().shape == (3,)
    assert d.perplexity().shape == (3,)
    assert d.log_prob(d.mode).shape == (3,)
    assert d.sample_indices((5,)).shape == (5, 3, 3)
    with pytest.raises(
        NotImplementedError, match=r"samples of KSubset have no gradient: .* SimpleK"
    ):
        d.rsample()
    assert repr(d) == "KSubset(k: 3, logits: (3, 8))"


def test_enumeration() -> None:
    d = KSubset(3, logits=torch.randn(2, 6, dtype=torch.float64))
    z = d.enumerate_support()
    assert z.shape == (math.comb(6, 3), 2, 6)
    assert d.enumerate_support(expand=False).shape == (20, 1, 6)
    log_prob = d.log_prob(z)
    torch.testing.assert_close(log_prob.exp().sum(0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close((log_prob.exp().unsqueeze(-1) * z).sum(0), d.mean)
    torch.testing.assert_close(-(log_prob.exp() * log_prob).sum(0), d.entropy())
    for k in (0, 6):
        assert KSubset(k, logits=torch.zeros(6)).enumerate_support().shape == (1, 6)
    same = KSubset(torch.tensor([2, 2]), logits=torch.zeros(2, 4))
    assert same.enumerate_support().shape == (6, 2, 4)
    with pytest.raises(NotImplementedError, match="differs between rows"):
        KSubset(torch.tensor([1, 2]), logits=torch.zeros(2, 4)).enumerate_support()
    with pytest.raises(NotImplementedError, match="differs between rows"):
        KSubset(torch.tensor([1, 2]), logits=torch.zeros(2, 4)).sample_indices()


def test_probs_are_coins_conditioned() -> None:
    probs = torch.rand(7, dtype=torch.float64, requires_grad=True)
    d = KSubset(3, probs=probs)
    z = oracle.support(7, 3)
    joint = torch.where(z > 0, probs, 1 - probs).prod(-1)
    torch.testing.assert_close(d.log_prob(z).exp(), joint / joint.sum())
    torch.testing.assert_close(d.probs, probs)
    (gradient,) = torch.autograd.grad(d.entropy(), probs)
    assert gradient.isfinite().all()
    probs = torch.tensor([0.0, 1.0, 0.5, 0.5], requires_grad=True)
    certain = KSubset(2, probs=probs)
    assert certain.mean.tolist() == [0.0, 1.0, 0.5, 0.5]
    (gradient,) = torch.autograd.grad(certain.mean[2], probs)
    assert gradient.tolist() == [0.0, 0.0, 1.0, -1.0]
    with pytest.raises(ValueError, match=r"probs must be in \[0, 1\], got values from -1"):
        KSubset(1, probs=torch.tensor([-1.0, 0.5]), validate_args=True)
    with pytest.raises(ValueError, match="exactly one of logits and probs"):
        KSubset(1, probs=torch.rand(3), logits=torch.rand(3))
    with pytest.raises(ValueError, match="exactly one of logits and probs"):
        KSubset(1)
    with pytest.raises(TypeError, match="probs must be a tensor, got list"):
        KSubset(1, probs=[0.5, 0.5])


def test_validation_follows_torch() -> None:
    # Explicitly: torch.compile switches torch.distributions' default off, process-wide.
    d = KSubset(2, logits=torch.zeros(4), validate_args=True)
    with pytest.raises(ValueError, match="support"):
        d.log_prob(torch.tensor([1.0, 1.0, 1.0, 0.0]))
    relaxed = KSubset(2, logits=torch.zeros(4), validate_args=False)
    assert relaxed.log_prob(torch.tensor([1.0, 1.0, 1.0, 0.0])) == -INF
    with pytest.raises(ValueError, match="NaN"):
        KSubset(2, logits=torch.full((4,), torch.nan), validate_args=True)
    assert KSubset(2, logits=torch.full((4,), torch.nan), validate_args=False).mean.isnan().all()


def test_half_precision_counts_beyond_256() -> None:
    logits = torch.zeros(1000, dtype=torch.bfloat16)
    d = KSubset(301, logits=logits, validate_args=True)
    assert d.log_prob(d.sample()).isfinite()
    assert ksubset.log_prob(logits, 301, d.sample()).isfinite()
    with pytest.raises(ValueError, match="support"):
        d.log_prob(KSubset(300, logits=logits).sample())


def test_impossible_values_have_no_probability() -> None:
    d = KSubset(2, logits=torch.tensor([0.0, 0.0, -INF, INF]))
    assert d.log_prob(torch.tensor([1.0, 0.0, 0.0, 1.0])).exp() == 0.5
    assert d.log_prob(torch.tensor([0.0, 0.0, 1.0, 1.0])) == -INF
    assert d.log_prob(torch.tensor([1.0, 1.0, 0.0, 0.0])) == -INF


def test_kl(device: torch.device) -> None:
    p = KSubset(2, logits=torch.randn(3, 5, device=device))
    q = KSubset(2, logits=torch.randn(5, device=device))
    z = p.enumerate_support()
    by_hand = (p.log_prob(z).exp() * (p.log_prob(z) - q.log_prob(z))).sum(0)
    torch.testing.assert_close(kl_divergence(p, q), by_hand, rtol=1e-5, atol=1e-5)
    assert (kl_divergence(p, p) == 0).all()
    assert (kl_divergence(p, KSubset(3, logits=torch.zeros(5, device=device))) == INF).all()
    simple = SimpleKSubset(2, logits=p.logits)
    torch.testing.assert_close(kl_divergence(simple, q), kl_divergence(p, q))
    with pytest.raises(ValueError, match="same number of items, got 5 and 6"):
        kl_divergence(p, KSubset(2, logits=torch.zeros(6, device=device)))


@pytest.mark.parametrize("cls", [KSubset, SimpleKSubset])
def test_expand_copy_and_pickle(cls: type[KSubset]) -> None:
    mask = torch.tensor([True, True, False, True, True])
    d = cls(torch.tensor([[1], [2]]), logits=torch.randn(2, 1, 5), mask=mask, method="dp")
    wide = d.expand((3, 2, 4))
    assert type(wide) is cls
    assert wide.batch_shape == (3, 2, 4)
    assert d.expand((3, -1, 4)).batch_shape == (3, 2, 4)
    torch.testing.assert_close(wide.mean[1, :, 2], d.mean[:, 0])
    assert wide.sample((2,)).shape == (2, 3, 2, 4, 5)
    torch.testing.assert_close(wide.log_prob(wide.mode), d.log_prob(d.mode).expand(3, 2, 4))
    for twin in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert type(twin) is cls
        torch.testing.assert_close(twin.mean, d.mean)
        assert not twin.sample()[..., 2].any()


def test_simple_reparametrises() -> None:
    logits = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    d = SimpleKSubset(2, logits=logits)
    assert d.has_rsample
    z = d.rsample((3,))
    v = torch.randn(3, 2, 6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((z * v).sum(), logits)
    torch.testing.assert_close(gradient, ksubset.covariance_product(logits, 2, v.sum(0)))
    assert not d.sample().requires_grad
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert torch.equal(d.sample(generator=generators[0]), d.rsample(generator=generators[1]))


@pytest.mark.parametrize("cls", [KSubset, SimpleKSubset])
def test_from_weights(cls: type[KSubset]) -> None:
    weights = torch.tensor([[2.0, 0.0, 3.0, 1.0], [INF, 1.0, 1.0, 0.0]], requires_grad=True)
    d = cls.from_weights(2, weights, method="dp")
    assert type(d) is cls
    assert d.batch_shape == (2,)
    products = torch.tensor([[6.0, 2.0, 3.0], [1.0, 1.0, 0.0]])  # of {0, 2}, {0, 3}, {2, 3}
    z = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    torch.testing.assert_close(d.log_prob(z[:, None]).exp()[:, 0], products[0] / 11)
    assert d.mean[1].tolist() == [1.0, 0.5, 0.5, 0.0]
    d.mean[:, 2].sum().backward()
    # 9 / 11 = (6 + 3) / (6 + 2 + 3), and 1/2 = 1 / (1 + 1)
    expected = [[-3 / 121, 0.0, 6 / 121, -12 / 121], [0.0, -0.25, 0.25, 0.0]]
    torch.testing.assert_close(weights.grad, torch.tensor(expected))
    mask = torch.tensor([True, True, False, True])
    assert cls.from_weights(torch.tensor([1, 2]), torch.ones(4), mask=mask).mean[0, 2] == 0


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (
            torch.tensor([-1.0, 0.5, 1.0]),
            ValueError,
            "weights must be at least 0, got values from -1",
        ),
        (
            torch.tensor([torch.nan, 0.5]),
            ValueError,
            "weights must be at least 0, got values from nan",
        ),
        (torch.tensor([0.0, 0.0, 1.0]), ValueError, "number of allowed items, 1, got 2"),
        (torch.tensor([1, 2, 3]), TypeError, "weights must be float16, .* got torch.int64"),
        ([1.0, 2.0], TypeError, "weights must be a tensor, got list"),
        (torch.ones(()), ValueError, "weights must have shape"),
    ],
)
def test_bad_weights(weights: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KSubset.from_weights(2, weights, validate_args=True)


def test_unchecked_weights_give_nan() -> None:
    for bad in (-1.0, torch.nan):
        weights = torch.tensor([bad, 1.0, 1.0])
        assert KSubset.from_weights(1, weights, validate_args=False).mean.isnan().all()


class TestFromMarginals:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
    @pytest.mark.parametrize(("n", "k", "scale"), [(5, 2, 1.0), (100, 30, 3.0), (1000, 10, 2.0)])
    def test_round_trip(self, n: int, k: int, scale: float, dtype: torch.dtype) -> None:
        logits = scale * torch.randn(4, n, dtype=dtype)
        mu = ksubset.marginals(logits, k)
        d = KSubset.from_marginals(mu)
        assert (d.k == k).all()
        assert d.logits.dtype == dtype
        assert (d.mean - mu).abs().max() < (1e-13 if dtype == torch.float64 else 5e-7)
        shift = d.logits - logits
        centred = shift - shift.mean(-1, keepdim=True)
        assert centred.abs().max() < (1e-6 if dtype == torch.float64 else 0.2)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
    @pytest.mark.parametrize("scale", [10.0, 37.0, 60.0])
    def test_marginals_near_zero_and_one(self, scale: float, dtype: torch.dtype) -> None:
        """Newton's method does not converge for one row in ten of these."""
        for n in (2, 3, 7, 20, 39, 150):
            k = torch.randint(1, n, (20,))
            mu = ksubset.marginals(scale * torch.randn(20, n, dtype=dtype), k)
            error = (KSubset.from_marginals(mu).mean - mu).abs().max()
            assert error < (1e-12 if dtype == torch.float64 else 1e-6)

    def test_rows_of_unequal_difficulty(self) -> None:
        mu = torch.tensor([[0.9, 0.9, 0.1, 0.1], [1 - 1e-6, 1e-6, 0.5, 0.5]])
        assert (KSubset.from_marginals(mu).mean - mu).abs().max() < 1e-6
        hard = torch.tensor([1 - 1e-12, 1e-12])
        assert KSubset.from_marginals(hard).mean.tolist() == [1.0, pytest.approx(0, abs=1e-11)]
        many = ksubset.marginals(torch.randn(64, 50), 7)
        assert (KSubset.from_marginals(many).mean - many).abs().max() < 1e-6

    def test_zeros_and_ones(self) -> None:
        d = KSubset.from_marginals(torch.tensor([[0.0, 1.0, 0.5, 0.5], [0.0, 1.0, 1.0, 0.0]]))
        assert d.k.tolist() == [2, 2]
        torch.testing.assert_close(
            d.mean, torch.tensor([[0.0, 1.0, 0.5, 0.5], [0.0, 1.0, 1.0, 0.0]])
        )

    def test_has_the_largest_entropy(self) -> None:
        """Of two designs with the same inclusion probabilities."""
        mu = torch.tensor([0.75, 0.5, 0.5, 0.25], dtype=torch.float64)
        d = KSubset.from_marginals(mu)
        other = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0]]).double()
        weights = torch.tensor([0.25, 0.25, 0.25, 0.25], dtype=torch.float64)
        torch.testing.assert_close(weights @ other, mu)
        assert d.entropy() > math.log(4)

    @pytest.mark.parametrize(
        ("marginals", "error", "message"),
        [
            (torch.tensor([1.5, 0.5]), ValueError, r"must be in \[0, 1\], got values from 0.5 to"),
            (torch.tensor([torch.nan, 0.5]), ValueError, r"must be in \[0, 1\]"),
            (torch.tensor([1, 0]), TypeError, "must be a floating point tensor"),
            ([0.5, 0.5], TypeError, "must be a floating point tensor, got list"),
            (torch.zeros(()), ValueError, "must have shape"),
            (torch.full((2,), 0.5, requires_grad=True), ValueError, "not differentiable"),
        ],
    )
    def test_bad_marginals(self, marginals: object, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            KSubset.from_marginals(marginals)  # type: ignore[arg-type]


def test_the_order_of_arguments_is_said() -> None:
    with pytest.raises(TypeError, match=r"k comes first, KSubset\(k, logits=\.\.\.\)"):
        KSubset(torch.zeros(3), 2)  # type: ignore[arg-type]
