"""Estimators of others, each against its definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from test_swaps import (
    assert_close,
    gradient,
    mean,
    network,
    quadratic,
    row,
    subset_number,
    weighted,
)
from torch import Tensor

from ksubset import oracle
from ksubset.estimators import create, unordered_set
from ksubset.estimators.noise import gumbel

Loss = Callable[[Tensor], Tensor]


def k_hot(keys: Tensor, k: int) -> Tensor:
    return torch.zeros_like(keys).scatter(-1, keys.topk(k, -1).indices, 1.0)


@pytest.mark.parametrize("k", [1, 3])
def test_decoupled_straight_through(k: int) -> None:
    """k / t_b (diag(s) - s s') g with s = softmax(theta / t_b + G); forward theta / t_f + G."""
    logits, g = row(6).requires_grad_(), row(6, 1)
    for forward, backward in ((0.3, 2.0), (2.0, 0.3)):
        estimator = create(
            "st_decoupled", forward_temperature=forward, backward_temperature=backward
        )
        z = estimator.sample(logits, k, (400,), generator=torch.Generator().manual_seed(0))
        (found,) = torch.autograd.grad(z, logits, g.expand(400, 6))
        rows = logits.detach().expand(400, 6)
        noise = gumbel(rows, torch.Generator().manual_seed(0))
        assert torch.equal(z.detach(), k_hot(rows / forward + noise, k))
        s = torch.softmax(rows / backward + noise, -1)
        expected = k / backward * (s * g - s * (s @ g).unsqueeze(-1)).sum(0)
        assert_close(found, expected)
        wrong = torch.softmax((rows + noise) / backward, -1)  # noise scaled too
        assert not torch.allclose(
            found, k / backward * (wrong * g - wrong * (wrong @ g).unsqueeze(-1)).sum(0)
        )


def test_forward_temperature_is_that_of_the_samples() -> None:
    logits = row(4)
    z = create("st_decoupled", forward_temperature=0.5).sample(logits, 1, (100_000,))
    assert (z.mean(0) - torch.softmax(logits / 0.5, -1)).abs().max() < 0.01
    assert (z.mean(0) - torch.softmax(logits, -1)).abs().max() > 0.03


def test_gapped_straight_through_of_one_item_is_the_published_one() -> None:
    """Logits theta + (max theta - theta_D) at D, theta - (theta + gap - max theta)_+ elsewhere."""
    logits, g, gap, t = row(6, scale=1.5).requires_grad_(), row(6, 1), 1.3, 0.7
    z = create("st_gapped", temperature=t, gap=gap).sample(logits, 1, (200,))
    assert len(z.detach().unique(dim=0)) > 3
    theta, chosen = logits.detach(), z.detach()
    top = theta.max()
    moved = theta + (top - theta) * chosen - (theta + gap - top).clamp(min=0) * (1 - chosen)
    s = torch.softmax(moved / t, -1)
    expected = (s * g - s * (s @ g).unsqueeze(-1)).sum(0) / t
    assert_close(torch.autograd.grad(z, logits, g.expand(200, 6))[0], expected)


@pytest.mark.parametrize("k", [2, 4])
def test_gapped_straight_through_moves_the_mode_to_the_sample(k: int) -> None:
    logits, g, gap = row(6, scale=1.5).requires_grad_(), row(6, 1), 0.8
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        z = create("st_gapped", gap=gap).sample(logits, k, generator=generator)
        theta, top = logits.detach(), logits.detach().sort(descending=True).values[k - 1]
        up, down = theta.maximum(top), theta.minimum(top - gap)
        moved = torch.where(z.detach() > 0, up, down)
        assert torch.equal(k_hot(moved, k), z.detach())
        expected = oracle.covariance(moved, k) @ g
        assert_close(torch.autograd.grad(z, logits, g)[0], expected)


def test_gapped_straight_through_with_certain_items() -> None:
    logits = torch.tensor([0.3, math.inf, -0.4, 0.8, -math.inf, -0.1], dtype=torch.float64)
    logits.requires_grad_()
    for k in (0, 1, 3, 5)[1:]:
        z = create("st_gapped").sample(logits, k)
        (found,) = torch.autograd.grad(z, logits, row(6, 1))
        assert found.isfinite().all()
        assert not found[[1, 4]].any()


def reinmax_rao_of_two(theta: Tensor, z: Tensor, g: Tensor, t: float) -> Tensor:
    """Two items: the difference of their keys is logistic, and of one sign given the larger one."""
    p = torch.softmax(theta, -1)
    shifted = (p + z) / 2
    centre = float((shifted[0] / shifted[1]).log())
    x = torch.linspace(-60, 60, 1_200_001, dtype=torch.float64)
    density = torch.sigmoid(x - centre) * torch.sigmoid(centre - x)
    density = density * ((x > 0) if z[0] else (x < 0))
    s = torch.sigmoid(x / t)
    slope = float((density * s * (1 - s)).sum() / density.sum()) / t
    jacobian = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    return (2 * slope - 0.5 * float(p[0] * p[1])) * (jacobian @ g)


@pytest.mark.parametrize("t", [0.5, 1.0])
def test_reinmax_rao_of_two_items_is_an_integral(t: float) -> None:
    theta, g = torch.tensor([0.4, -0.5], dtype=torch.float64), torch.tensor([1.0, -0.7]).double()
    logits = theta.clone().expand(200, 2).requires_grad_()
    z = create("reinmax_rao", temperature=t, repeats=2000).sample(logits, 1)
    (found,) = torch.autograd.grad(z, logits, g.expand(200, 2))
    for choice in torch.eye(2, dtype=torch.float64):
        same = found[(z.detach() == choice).all(-1)]
        expected = reinmax_rao_of_two(theta, choice, g, t)
        deviation = same.std(0) / len(same) ** 0.5
        assert len(same) > 30
        assert ((same.mean(0) - expected).abs() < 5 * deviation + 1e-5).all()
        plain = torch.softmax(theta, -1) + choice  # ReinMax itself, and the other sample, differ
        reinmax = (2 * plain.prod() / 4 - 0.5 * torch.softmax(theta, -1).prod()) * (g[0] - g[1])
        assert ((same.mean(0)[0] - reinmax).abs() > 10 * deviation[0]).all()
        other = reinmax_rao_of_two(theta, 1 - choice, g, t)
        assert ((same.mean(0) - other).abs() > 10 * deviation).all()


def test_reinmax_rao_is_conditioned_on_the_sample() -> None:
    """Four items: noise that others than z win is thrown away."""
    theta, g, t = row(4), row(4, 1), 0.6
    logits = theta.clone().expand(100, 4).requires_grad_()
    z = create("reinmax_rao", temperature=t, repeats=3000).sample(logits, 1)
    (found,) = torch.autograd.grad(z, logits, g.expand(100, 4))
    p = torch.softmax(theta, -1)

    def product(q: Tensor) -> Tensor:
        return q * g - q * (q @ g).unsqueeze(-1)

    for choice in z.detach().unique(dim=0):
        shifted = ((p + choice) / 2).log()
        keys = shifted + gumbel(shifted.expand(200_000, 4))
        kept = product(torch.softmax(keys[(keys.argmax(-1) == choice.argmax())] / t, -1)) / t
        expected = 2 * kept.mean(0) - 0.5 * product(p)
        same = found[(z.detach() == choice).all(-1)].mean(0)
        error = 2 * kept.std(0) / len(kept) ** 0.5
        assert ((same - expected).abs() < 6 * error).all()
        everyone = 2 * (product(torch.softmax(keys / t, -1)) / t).mean(0) - 0.5 * product(p)
        assert ((same - everyone).abs() > 10 * error).any()


def test_reinmax_rao_is_for_one_item() -> None:
    logits = torch.zeros(2, 4, requires_grad=True)
    for k in (2, 0, torch.tensor([1, 2])):
        with pytest.raises(ValueError, match="k must be 1 for ReinMaxRao, got"):
            create("reinmax_rao").sample(logits, k)
    with pytest.raises(ValueError, match="repeats must be an int of at least 1, got 0"):
        create("reinmax_rao", repeats=0)
    mask = torch.tensor([True, True, False, True])
    for k in (1, torch.tensor([1, 1])):
        z = create("reinmax_rao").sample(logits, k, (50,), mask=mask)
        (found,) = torch.autograd.grad(z, logits, torch.randn(50, 2, 4))
        assert torch.equal(z.detach().sum(-1), torch.ones(50, 2))
        assert not z[..., 2].any()
        assert found.isfinite().all()
        assert not found[:, 2].any()


@pytest.mark.parametrize("name", ["double_control", "score"])
@pytest.mark.parametrize("samples", [2, 3])
def test_control_variates_from_other_samples_do_not_change_the_mean(
    name: str, samples: int
) -> None:
    logits, loss = row(4, scale=0.4), network(4)
    options = {"baseline": "regression"} if name == "score" else {}
    found = mean(create(name, **options), loss, logits, 2, samples)
    assert_close(found, gradient(loss, logits, 2))


def test_double_control_by_hand() -> None:
    """sum_s (f(z_s) - h_s(z_s) - mean_t (f(z_t) - h_s(z_t))) (z_s - mu) + Cov c_s."""
    logits, loss, seen = row(5).requires_grad_(), network(5), []

    def watch(z: Tensor) -> Tensor:
        seen.append(z.detach())
        return loss(z)

    value = create("double_control").surrogate(watch, logits, 2, 3, vectorized=True)
    (found,) = torch.autograd.grad(value, logits)
    z, mu = seen[0].requires_grad_(), oracle.marginals(logits, 2)
    (slopes,) = torch.autograd.grad(loss(z).sum(), z)
    z, expected = z.detach(), torch.zeros(5, dtype=torch.float64)
    for s in range(3):
        rest = [t for t in range(3) if t != s]
        c = slopes[rest].mean(0)
        f = loss(z) - (z - mu) @ c
        expected += (f[s] - f[rest].mean()) * (z[s] - mu) + oracle.covariance(logits, 2) @ c
    assert_close(found, expected / 3)
    # What is known of the loss is not noise.
    linear = create("double_control").surrogate(lambda z: z @ row(5, 1), logits, 2, 2)
    assert_close(torch.autograd.grad(linear, logits)[0], oracle.covariance(logits, 2) @ row(5, 1))


def test_score_with_a_regression_by_hand() -> None:
    """A ridge regression with an intercept for every sample, on the others only."""
    logits, loss, seen, samples = row(5).requires_grad_(), network(5), [], 6

    def watch(z: Tensor) -> Tensor:
        seen.append(z.detach())
        return loss(z)

    value = create("score", baseline="regression").surrogate(
        watch, logits, 2, samples, vectorized=True
    )
    (found,) = torch.autograd.grad(value, logits)
    mu = oracle.marginals(logits, 2)
    x, f, expected = seen[0] - mu, loss(seen[0]), torch.zeros(5, dtype=torch.float64)
    for s in range(samples):
        rest = [t for t in range(samples) if t != s]
        centred = x[rest] - x[rest].mean(0)
        penalty = (mu * (1 - mu)).sum() * torch.eye(5).double()
        c = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ f[rest])
        b = f[rest].mean() - x[rest].mean(0) @ c
        expected += (f[s] - b - x[s] @ c) * x[s] + oracle.covariance(logits, 2) @ c
    assert_close(found, expected / samples)


def test_score_with_a_regression_has_less_noise_than_leave_one_out() -> None:
    logits, loss = row(6), quadratic(6)

    def noise(baseline: str) -> float:
        many = logits.expand(4000, 6).clone().requires_grad_()
        value = create("score", baseline=baseline).surrogate(loss, many, 3, 16, vectorized=True)
        return float(torch.autograd.grad(value, many)[0].var(0).sum())

    assert noise("regression") < 0.7 * noise("leave_one_out")


@pytest.mark.parametrize("name", ["double_control", "score", "unordered_set"])
def test_rows_that_share_a_loss(name: str) -> None:
    """By a mean over many rows, whose error is known."""
    logits, k, loss = torch.stack([row(4, 0), row(4, 1)]), torch.tensor([1, 2]), network(8)
    both = torch.stack(
        [torch.cat([a, b]) for a in oracle.support(4, 1) for b in oracle.support(4, 2)]
    )
    p = [oracle.log_probabilities(logits[i], i + 1).exp() for i in range(2)]
    joint = (p[0].unsqueeze(-1) * p[1]).flatten()
    mu = torch.cat([oracle.marginals(logits[i], i + 1) for i in range(2)])
    expected = ((joint * loss(both)) @ (both - mu)).reshape(2, 4)
    many = logits.expand(20_000, 2, 4).clone().requires_grad_()
    options = {"baseline": "regression"} if name == "score" else {}
    value = create(name, **options).surrogate(
        lambda z: loss(z.flatten(-2)), many, k, 4, vectorized=True
    )
    (found,) = torch.autograd.grad(value, many)
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - expected).abs() < 5.5 * error).all()


def probability_of_set(p: Tensor, members: tuple[int, ...]) -> float:
    """All orders."""
    total = 0.0
    for order in itertools.permutations(members):
        left, term = 1.0, 1.0
        for b in order:
            term, left = term * float(p[b]) / left, left - float(p[b])
        total += term
    return total


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_unordered_set_is_unbiased(samples: int) -> None:
    """Over all sets of two to four of the six pairs of four items."""
    logits, loss = row(4, scale=0.5), network(4)
    p = oracle.log_probabilities(logits, 2).exp()
    sets = list(itertools.combinations(range(6), samples))
    probability = torch.tensor([probability_of_set(p, s) for s in sets], dtype=p.dtype)
    number = torch.full((2**6,), -1)
    number[torch.tensor([sum(2**b for b in s) for s in sets])] = torch.arange(len(sets))
    seen = []

    def watch(z: Tensor) -> Tensor:
        seen.append(z.detach())
        return loss(z)

    many = logits.expand(4000, 4).clone().requires_grad_()
    value = create("unordered_set").surrogate(watch, many, 2, samples, vectorized=True)
    (found,) = torch.autograd.grad(value, many)
    drawn = 2 ** subset_number(torch.cat(seen))
    assert [len(z) for z in seen] == [1, samples - 1]  # every sample once
    outcome = number[drawn.sum(0)]
    assert_close(weighted(found, outcome, probability), gradient(loss, logits, 2))
    share = torch.bincount(outcome, minlength=len(sets)) / 4000
    assert ((share - probability).abs() < 5 * (probability / 4000).sqrt()).all()


def test_unordered_set_of_all_subsets_is_exact() -> None:
    """Also when the places are more than the subsets, and when rows differ in that."""
    logits = torch.stack([row(4, 0), row(4, 1), row(4, 2)]).requires_grad_()
    k = torch.tensor([1, 3, 4])
    loss = network(4)
    for samples in (4, 6):
        value = create("unordered_set").surrogate(loss, logits, k, samples)
        (found,) = torch.autograd.grad(value, logits)
        for i in range(3):
            assert_close(found[i], gradient(loss, logits[i].detach(), int(k[i])))
        total = sum(
            oracle.log_probabilities(logits[i], int(k[i])).exp()
            @ loss(oracle.support(4, int(k[i])))
            for i in range(3)
        )
        assert_close(value.detach(), total)


def test_a_wrong_probability_of_a_set_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples with replacement: p(z) / P(S) without the mass that is gone."""
    monkeypatch.setattr(
        unordered_set,
        "_probabilities_of_sets",
        lambda p, _factor, taken: torch.stack(
            [
                math.factorial(bits.bit_count())
                * math.prod(float(p[b, 0]) for b in range(len(p)) if bits >> b & 1)
                * torch.ones_like(taken)
                for bits in range(2 ** len(p))
            ]
        ),
    )
    logits, loss = row(3).unsqueeze(0).requires_grad_(), network(3)
    value = create("unordered_set").surrogate(loss, logits, 1, 3)
    (found,) = torch.autograd.grad(value, logits)
    assert (found[0] - gradient(loss, logits[0].detach(), 1)).abs().max() > 1e-3


def test_concentrated_distributions_use_the_samples_found() -> None:
    logits = torch.tensor([60.0, 0.0, 0.0, 0.0], requires_grad=True)
    value = create("unordered_set").surrogate(lambda z: z.square().sum(-1) + z[0], logits, 1, 3)
    (found,) = torch.autograd.grad(value, logits)
    assert found.abs().max() < 1e-20
    assert abs(float(value.detach()) - 2) < 1e-6


def test_numbers_of_samples_are_checked() -> None:
    logits = torch.zeros(4, requires_grad=True)
    for name in ("double_control", "unordered_set"):
        with pytest.raises(ValueError, match="num_samples must be an int of at least 2, got 1"):
            create(name).surrogate(lambda z: z.sum(-1), logits, 2, 1)
    with pytest.raises(ValueError, match="num_samples must be at most 8, got 9"):
        create("unordered_set").surrogate(lambda z: z.sum(-1), logits, 2, 9)
