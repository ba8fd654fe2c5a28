"""Every estimator against what defines it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.estimators import ESTIMATORS, Simple, create
from ksubset.estimators.noise import gumbel, sum_of_gamma

Loss = Callable[[Tensor], Tensor]
N = 6
# One test in a million is a false alarm, over all items of all problems.
DEVIATIONS = 6.5
DRAWS = 40_000


def quadratic(seed: int) -> Loss:
    b = torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda z: (z - b).square().sum(-1)


def network(seed: int) -> Loss:
    """A small random network: no polynomial of degree two."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((N, 8), (8,))
    )
    return lambda z: torch.tanh(z @ first) @ second


PROBLEMS = {
    "quadratic, k = 1": (quadratic(0), 1),
    "quadratic, k = 3": (quadratic(1), 3),
    "network, k = 2": (network(2), 2),
    "network, k = 3": (network(3), 3),
    "network, k = 5": (network(4), 5),
}


def logits_of(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(len(name))
    return 1.5 * torch.randn(N, generator=generator, dtype=torch.float64)


def exact_gradient(loss: Loss, logits: Tensor, k: int) -> Tensor:
    """By enumeration, sharing nothing with the estimators: sum over z of p(z) f(z) (z - mu)."""
    z = oracle.support(N, k)
    p = oracle.log_probabilities(logits, k).exp()
    return ((p * loss(z)).unsqueeze(-1) * (z - oracle.marginals(logits, k))).sum(0)


def gradients(
    name: str, loss: Loss, logits: Tensor, k: int, samples: int, **options: object
) -> Tensor:
    """Many independent estimates, as rows of a batch."""
    rows = logits.expand(DRAWS, N).clone().requires_grad_()
    generator = torch.Generator().manual_seed(7)
    estimator = create(name, **options)
    value = estimator.surrogate(loss, rows, k, samples, generator=generator, vectorized=True)
    return torch.autograd.grad(value, rows)[0]


def assert_mean(found: Tensor, expected: Tensor) -> None:
    error = found.mean(0) - expected
    deviation = found.std(0) / len(found) ** 0.5
    assert (error.abs() <= DEVIATIONS * deviation + 1e-12).all(), (error / deviation, expected)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_exact(problem: str) -> None:
    loss, k = PROBLEMS[problem]
    logits = logits_of(problem).requires_grad_()
    value = create("exact").surrogate(loss, logits, k)
    (found,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(found, exact_gradient(loss, logits.detach(), k))
    p = oracle.log_probabilities(logits, k).exp()
    torch.testing.assert_close(value.detach(), (p * loss(oracle.support(N, k))).sum())


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    ("name", "samples", "options"),
    [
        ("score", 1, {}),
        ("score", 3, {"baseline": "leave_one_out"}),
        ("score", 2, {"baseline": "moving_average"}),
        ("muprop", 1, {}),
        ("muprop", 4, {"scale": "leave_one_out"}),
    ],
    ids=str,
)
def test_unbiased(problem: str, name: str, samples: int, options: dict[str, str]) -> None:
    loss, k = PROBLEMS[problem]
    logits = logits_of(problem)
    found = gradients(name, loss, logits, k, samples, **options)
    assert_mean(found, exact_gradient(loss, logits, k))


def test_a_baseline_that_knows_its_own_sample_is_biased() -> None:
    """The check can fail: the full mean in place of the leave-one-out one."""
    loss, k = PROBLEMS["quadratic, k = 3"]
    logits = logits_of("quadratic, k = 3")
    generator = torch.Generator().manual_seed(1)
    z = ksubset.sample(logits, k, (3, DRAWS), generator=generator)
    signal = loss(z) - loss(z).mean(0)
    found = (signal.unsqueeze(-1) * (z - oracle.marginals(logits, k))).mean(0)
    with pytest.raises(AssertionError):
        assert_mean(found, exact_gradient(loss, logits, k))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_simple_has_the_mean_of_its_definition(problem: str) -> None:
    """Cov E[grad f(z)]."""
    loss, k = PROBLEMS[problem]
    logits = logits_of(problem)
    z = oracle.support(N, k).requires_grad_()
    (slopes,) = torch.autograd.grad(loss(z).sum(), z)
    mean_slope = oracle.log_probabilities(logits, k).exp() @ slopes
    expected = oracle.covariance(logits, k) @ mean_slope
    found = gradients("simple", loss, logits, k, 1)
    assert_mean(found, expected)


@pytest.mark.parametrize("problem", ["quadratic, k = 1", "quadratic, k = 3"])
def test_reinmax_is_unbiased_for_quadratic_losses(problem: str) -> None:
    loss, k = PROBLEMS[problem]
    logits = logits_of(problem)
    assert_mean(gradients("reinmax", loss, logits, k, 1), exact_gradient(loss, logits, k))
    with pytest.raises(AssertionError):  # and SIMPLE is not
        assert_mean(gradients("simple", loss, logits, k, 1), exact_gradient(loss, logits, k))


def test_reinmax_with_one_item_is_the_published_one() -> None:
    """2 J((p + D) / 2) g - J(p) g / 2 with J(p) = diag p - p p'."""
    logits = logits_of("one").requires_grad_()
    z = create("reinmax").sample(logits, 1, generator=torch.Generator().manual_seed(2))
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    (found,) = torch.autograd.grad(z, logits, g)
    p = torch.softmax(logits.detach(), -1)

    def product(q: Tensor) -> Tensor:
        return q * g - q * (q @ g)

    torch.testing.assert_close(found, 2 * product((p + z.detach()) / 2) - product(p) / 2)


def test_simple_with_one_item_is_softmax_straight_through() -> None:
    logits = logits_of("one").requires_grad_()
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    z = create("simple").sample(logits, 1)
    (found,) = torch.autograd.grad(z, logits, g)
    (expected,) = torch.autograd.grad(torch.softmax(logits, -1), logits, g)
    torch.testing.assert_close(found, expected)
    assert z.sum() == 1


def k_hot(scores: Tensor, k: int) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, scores.topk(k, -1).indices, 1.0)


@pytest.mark.parametrize("noise", ["gumbel", "sum_of_gamma"])
def test_imle_by_hand(noise: str) -> None:
    logits, k, strength = logits_of("imle").requires_grad_(), 3, 2.5
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    estimator = create("imle", noise=noise, strength=strength, temperature=0.7)
    z = estimator.sample(logits, k, (50,), generator=torch.Generator().manual_seed(3))
    (found,) = torch.autograd.grad(z, logits, g.expand(50, N))
    generator = torch.Generator().manual_seed(3)
    rows = logits.detach().expand(50, N)
    drawn = (
        0.7 * gumbel(rows, generator)
        if noise == "gumbel"
        else sum_of_gamma(rows, k, 0.7, 10, generator)
    )
    first, second = k_hot(rows + drawn, k), k_hot(rows + drawn - strength * g, k)
    assert torch.equal(z.detach(), first)
    torch.testing.assert_close(found, ((first - second) / strength).sum(0))


def test_noise_has_its_moments() -> None:
    """Gumbel: 0.5772 and pi^2/6. k terms of sum-of-gamma: the sum of ten exponentials with means
    1/i, less log 10."""
    like = torch.zeros(200_000, dtype=torch.float64)
    drawn = gumbel(like, torch.Generator().manual_seed(0))
    assert abs(drawn.mean() - 0.57722) < 0.02
    assert abs(drawn.var() - 1.64493) < 0.05
    for k in (1, 5):
        rows = torch.zeros(100_000, k, dtype=torch.float64)
        total = sum_of_gamma(rows, k, 2.0, 10, torch.Generator().manual_seed(0)).sum(-1) / 2
        mean = sum(1 / i for i in range(1, 11)) - torch.log(torch.tensor(10.0))
        assert abs(total.mean() - mean) < 0.025
        assert abs(total.var() - sum(1 / i**2 for i in range(1, 11))) < 0.05


def test_adaptive_imle_finds_a_step() -> None:
    """From a step of none, until about one entry in a row differs."""
    logits = torch.randn(64, 20, generator=torch.Generator().manual_seed(0)).requires_grad_()
    g = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))
    estimator = create("aimle", start=0.0, rate=0.02)
    for _ in range(60):
        z = estimator.sample(logits, 5)
        (found,) = torch.autograd.grad(z, logits, g)
    assert set(estimator.state_dict()) == {"alpha", "average"}
    assert 0.5 < float(estimator.average) < 2
    assert float(estimator.alpha) > 0
    assert found.isfinite().all()


@pytest.mark.parametrize("hard", [False, True])
def test_softsub_by_hand(hard: bool) -> None:
    logits, k, t = logits_of("softsub").requires_grad_(), 3, 0.8
    z = create("softsub", temperature=t, hard=hard).sample(
        logits, k, generator=torch.Generator().manual_seed(3)
    )
    keys = logits + gumbel(logits, torch.Generator().manual_seed(3))
    relaxed, before = torch.zeros(N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    for _ in range(k):
        keys = keys + torch.log(1 - before)
        before = torch.softmax(keys / t, -1)
        relaxed = relaxed + before
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(z, logits, g, retain_graph=True)[0],
        torch.autograd.grad(relaxed, logits, g)[0],
    )
    torch.testing.assert_close(z.detach(), k_hot(relaxed, k).detach() if hard else relaxed.detach())
    assert abs(float(relaxed.detach().sum()) - k) < 1e-9


@pytest.mark.parametrize("hard", [False, True])
def test_l2x_by_hand(hard: bool) -> None:
    logits, k, t = logits_of("l2x").requires_grad_(), 3, 0.4
    z = create("l2x", temperature=t, hard=hard).sample(
        logits, k, generator=torch.Generator().manual_seed(3)
    )
    noise = gumbel(logits.detach().expand(k, N), torch.Generator().manual_seed(3))
    soft = torch.stack([torch.softmax((logits + noise[i]) / t, -1) for i in range(k)])
    relaxed = soft.max(0).values
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(z, logits, g, retain_graph=True)[0],
        torch.autograd.grad(relaxed, logits, g)[0],
    )
    torch.testing.assert_close(z.detach(), k_hot(relaxed, k).detach() if hard else relaxed.detach())


@pytest.mark.parametrize("k", [1, 3])
def test_straight_through_gumbel_by_hand(k: int) -> None:
    logits, t = logits_of("st").requires_grad_(), 0.6
    z = create("st_gumbel", temperature=t).sample(
        logits, k, generator=torch.Generator().manual_seed(3)
    )
    keys = logits + gumbel(logits, torch.Generator().manual_seed(3))
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    assert torch.equal(z.detach(), k_hot(keys, k).detach())
    torch.testing.assert_close(
        torch.autograd.grad(z, logits, g)[0],
        torch.autograd.grad(k * torch.softmax(keys / t, -1), logits, g)[0],
    )


def test_plain_straight_through_passes_the_gradient_on() -> None:
    logits = logits_of("ste").requires_grad_()
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    (found,) = torch.autograd.grad(create("ste").sample(logits, 2), logits, g)
    torch.testing.assert_close(found, g)


@pytest.mark.parametrize("common", [False, True])
def test_simple_f_has_the_mean_of_its_definition(common: bool) -> None:
    """(mu(theta) - mu(theta - lambda g)) / lambda for a linear loss, with either coupling."""
    logits, k, strength = logits_of("simple_f"), 3, 2.0
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    found = gradients("simple_f", lambda z: z @ g, logits, k, 1, strength=strength, common=common)
    mu = oracle.marginals(logits, k) - oracle.marginals(logits - strength * g, k)
    assert_mean(found, mu / strength)


def test_simple_b_by_hand() -> None:
    logits, k, strength = logits_of("simple_b").requires_grad_(), 3, 2.0
    g = torch.linspace(-1, 2, N, dtype=torch.float64)
    z = create("simple_b", strength=strength).sample(
        logits, k, generator=torch.Generator().manual_seed(3)
    )
    plain = logits.detach()
    keys = plain + gumbel(plain, torch.Generator().manual_seed(3))
    assert torch.equal(z.detach(), k_hot(keys, k))
    expected = oracle.marginals(plain, k) - oracle.marginals(plain - strength * g, k)
    torch.testing.assert_close(torch.autograd.grad(z, logits, g)[0], expected / strength)
    z = create("simple_b").sample(logits, k)
    torch.testing.assert_close(
        torch.autograd.grad(z, logits, g)[0], oracle.covariance(plain, k) @ g
    )


def test_at_the_marginals() -> None:
    loss, k = PROBLEMS["network, k = 2"]
    logits = logits_of("mu").requires_grad_()
    value = create("marginals").surrogate(loss, logits, k)
    mu = oracle.marginals(logits, k).requires_grad_()
    (slope,) = torch.autograd.grad(loss(mu), mu)
    torch.testing.assert_close(
        torch.autograd.grad(value, logits)[0], oracle.covariance(logits, k) @ slope
    )


def test_names() -> None:
    for name, kind in ESTIMATORS.items():
        assert type(create(name)) is kind
    with pytest.raises(ValueError, match=r"estimator must be one of 'exact'.*got 'simpel'"):
        create("simpel")


def test_means_of_exact_samples_have_less_noise_and_the_same_gradient() -> None:
    """A sixteenth of the variance, and Cov g for every draw."""
    logits = torch.randn(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    generator = torch.Generator().manual_seed(1)
    one, many = (
        Simple(average).sample(logits, 3, (4000,), generator=generator) for average in (1, 16)
    )
    assert ((one == 0) | (one == 1)).all()
    torch.testing.assert_close(many.sum(-1), torch.full_like(many[:, 0], 3))
    ratio = one.var(0) / many.var(0)
    assert ((ratio - 16).abs() < 16 * 6 * (4 / 4000) ** 0.5).all()
    g = torch.randn(6, generator=generator, dtype=torch.float64)
    expected = ksubset.covariance_product(logits.detach(), 3, g)
    (found,) = torch.autograd.grad(Simple(average=5).sample(logits, 3), logits, g)
    torch.testing.assert_close(found, expected)
    for wrong in (0, 2.0, True):
        with pytest.raises(ValueError, match="average must be an int of at least 1"):
            Simple(average=wrong)  # type: ignore[arg-type]
