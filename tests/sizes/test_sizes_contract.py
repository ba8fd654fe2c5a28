"""Kinds of sizes × methods × types, against enumeration."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, KINDS, TOLERANCES, Kind, possible, rows
from torch import Tensor

import ksubset
from ksubset.sizes import Sizes

METHODS = ("auto", "spectral", "dp", "tree")
DTYPES = (torch.float64, torch.float32)


def cases(kind: Kind, n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, list]:
    found = [row for row in rows(n).values() if possible(kind, row)]
    logits = torch.stack(found).to(device, dtype)
    return logits, [kind.oracle(row.double()) for row in found]


def close(found: Tensor, truth: Tensor, tolerance: float, scale: float = 1.0) -> None:
    error = (found.detach().cpu().double() - truth).abs()
    bound = tolerance * (scale + truth.abs())
    assert (error <= bound).all(), f"off by {float((error / bound).max()):.2f} bounds"


def move(sizes: Sizes, device: torch.device) -> Sizes:
    low = getattr(sizes, "low", None)
    if isinstance(low, Tensor):
        return ksubset.between(low.to(device), sizes.high.to(device))
    return sizes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
def test_against_enumeration(
    n: int, kind: str, method: str, dtype: torch.dtype, device: torch.device
) -> None:
    check(KINDS[kind], n, method, dtype, device)


def check(kind: Kind, n: int, method: str, dtype: torch.dtype, device: torch.device) -> None:
    logits, truths = cases(kind, n, dtype, device)
    sizes, tolerance = move(kind.make(n), device), TOLERANCES[dtype]
    mu = ksubset.marginals(logits, sizes, method=method)
    chances = ksubset.size_probabilities(logits, sizes, method=method)
    entropy = ksubset.entropy(logits, sizes, method=method)
    mean = ksubset.size_mean(logits, sizes, method=method)
    variance = ksubset.size_variance(logits, sizes, method=method)
    v = torch.randn(n, dtype=dtype, device=device) + 3
    product = ksubset.covariance_product(logits, sizes, v, method=method)
    pairs = ksubset.pairwise_marginals(logits, sizes, method=method)
    matrix = ksubset.covariance_matrix(logits, sizes, method=method)
    for i, truth in enumerate(truths):
        close(mu[i], truth.marginals(), tolerance)
        close(chances[i], truth.size_probabilities(), tolerance)
        close(entropy[i], truth.entropy(), tolerance)
        j = torch.arange(n + 1).double()
        expected = truth.size_probabilities() @ j
        close(mean[i], expected, tolerance)
        close(variance[i], truth.size_probabilities() @ (j - expected) ** 2, n * tolerance)
        close(product[i], truth.covariance() @ v.double().cpu(), tolerance, float(v.abs().max()))
        close(matrix[i], truth.covariance(), tolerance)
        close(pairs[i], truth.pairwise_marginals(), tolerance)
    if not kind.random:
        total = ksubset.log_partition(logits, sizes, method=method)
        for i, truth in enumerate(truths):
            if (logits[i] == INF).any():
                assert total[i] == INF
            else:
                close(total[i], truth.log_partition(), tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 4, 8])
def test_probabilities_of_subsets(
    n: int, kind: str, dtype: torch.dtype, device: torch.device
) -> None:
    logits, truths = cases(KINDS[kind], n, dtype, device)
    sizes, tolerance = move(KINDS[kind].make(n), device), TOLERANCES[dtype]
    z = truths[0].support.to(device, dtype)
    found = ksubset.log_prob(logits, sizes, z.unsqueeze(1), validate_args=False)
    assert found.shape == (len(z), len(logits))
    for i, truth in enumerate(truths):
        inside = truth.log_probabilities > -INF
        assert torch.equal(found[:, i].cpu() > -INF, inside)
        close(found[inside.to(device), i], truth.log_probabilities[inside], tolerance)
        # The most likely subset is one of the most likely ones.
        best = ksubset.mode(logits[i], sizes)
        value = ksubset.log_prob(logits[i], sizes, best)
        close(value, truth.log_probabilities.max(), 2 * tolerance)
    index = torch.arange(n, device=device).masked_fill(z[n] == 0, -1)
    by_index = ksubset.log_prob_indices(logits, sizes, index, validate_args=False)
    torch.testing.assert_close(by_index, found[n])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_divergences(kind: str, dtype: torch.dtype, device: torch.device) -> None:
    n, tolerance = 7, TOLERANCES[dtype]
    logits, truths = cases(KINDS[kind], n, dtype, device)
    sizes = move(KINDS[kind].make(n), device)
    others = torch.randn(n, dtype=dtype)
    other = KINDS[kind].oracle(others.double())
    found = ksubset.kl_divergence(logits, others.to(device), sizes)
    uniform = ksubset.kl_to_uniform(logits, sizes)
    for i, truth in enumerate(truths):
        close(found[i], truth.kl_divergence(other), tolerance)
        zeros = torch.zeros(n).double().masked_fill(logits[i].cpu() == -INF, -INF)
        close(uniform[i], truth.kl_divergence(KINDS[kind].oracle(zeros)), tolerance)
    assert (ksubset.kl_divergence(logits, logits, sizes, 3) == INF).all()
    inside = ksubset.kl_divergence(logits, others.to(device), 3, ksubset.between(2, 5))
    assert inside.isfinite().sum() > 3


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_against_enumeration(kind: str, device: torch.device) -> None:
    n = 6
    kinds, sizes = KINDS[kind], move(KINDS[kind].make(n), device)
    for scale in (0.3, 2.0):
        row = scale * torch.randn(n, dtype=torch.float64)
        truth = kinds.oracle(row)
        logits = row.to(device).requires_grad_()
        u, v = torch.randn(2, n, dtype=torch.float64, device=device)
        mu = ksubset.marginals(logits, sizes)
        (first,) = torch.autograd.grad(mu, logits, v, create_graph=True)
        (second,) = torch.autograd.grad(first, logits, u)
        step = differences(lambda x, u=u: kinds.oracle(x).marginals(), row)
        close(first, step.T @ v.cpu(), 1e-7)
        twice = differences(lambda x: step_of(kinds, x).T @ v.cpu(), row, 1e-3)  # noqa: B023
        close(second, twice.T @ u.cpu(), 1e-4)
        if not kinds.random:
            third = torch.einsum("ijl,j,l->i", truth.third_cumulant(), u.cpu(), v.cpu())
            close(first, truth.covariance() @ v.cpu(), 1e-12)
            close(second, third, 1e-11)
            (mean,) = torch.autograd.grad(ksubset.log_partition(logits, sizes), logits)
            close(mean, truth.marginals(), 1e-12)
        z = truth.support[truth.log_probabilities > -INF][3].to(device)
        pieces = (
            (
                lambda x, z=z: ksubset.log_prob(x, sizes, z),
                lambda x, z=z: logs_of(kinds, x, z.cpu()),
            ),
            (lambda x: ksubset.entropy(x, sizes), lambda x: kinds.oracle(x).entropy()),
            (
                lambda x: ksubset.size_probabilities(x, sizes) @ torch.arange(n + 1.0).to(x) ** 2,
                lambda x: kinds.oracle(x).size_probabilities() @ torch.arange(n + 1).double() ** 2,
            ),
            (
                lambda x: ksubset.kl_divergence(x, x.flip(0) * 0.5, sizes),
                lambda x: kinds.oracle(x).kl_divergence(kinds.oracle(x.flip(0) * 0.5)),
            ),
        )
        for ours, theirs in pieces:
            if not ours(logits).requires_grad:  # given probabilities are
                assert kinds.random
                continue
            (gradient,) = torch.autograd.grad(ours(logits), logits)
            close(gradient, differences(theirs, row), 1e-7)


def differences(function, at: Tensor, step: float = 1e-5) -> Tensor:
    """The derivative by central differences of fourth order: (..., n)."""
    parts = []
    for unit in torch.eye(len(at), dtype=at.dtype) * step:
        near, far = (function(at + m * unit) - function(at - m * unit) for m in (1, 2))
        parts.append((8 * near - far) / (12 * step))
    return torch.stack(parts, -1)


def step_of(kind: Kind, at: Tensor) -> Tensor:
    return differences(lambda x: kind.oracle(x).marginals(), at, 1e-3)


def logs_of(kind: Kind, at: Tensor, z: Tensor) -> Tensor:
    truth = kind.oracle(at)
    return truth.log_probabilities[(truth.support == z).all(-1)].squeeze(0)


def test_weights_are_differentiable() -> None:
    logits = torch.randn(3, 5, dtype=torch.float64)
    weights = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    sizes = ksubset.weighted_sizes(weights)
    (gradient,) = torch.autograd.grad(ksubset.log_partition(logits, sizes).sum(), weights)
    torch.testing.assert_close(gradient, ksubset.size_probabilities(logits, sizes).detach())
    assert torch.autograd.gradcheck(
        lambda c: ksubset.marginals(logits, ksubset.weighted_sizes(c)), weights
    )


def test_transforms(device: torch.device) -> None:
    logits = torch.randn(4, 6, dtype=torch.float64, device=device)
    sizes = ksubset.between(1, 4)

    def product(row: Tensor) -> Tensor:
        return torch.func.jacrev(lambda x: ksubset.marginals(x, sizes))(row)

    found = torch.func.vmap(product)(logits)
    torch.testing.assert_close(found, ksubset.covariance_matrix(logits, sizes))
    forward = torch.func.vmap(torch.func.jacfwd(lambda x: ksubset.marginals(x, sizes)))(logits)
    torch.testing.assert_close(forward, found)


def test_far_logits(device: torch.device) -> None:
    """At ±1e4 the sizes are decided by differences that float32 holds."""
    logits = torch.tensor([1e4, 1e4, -1e4, 1.0, 0.5, -1e4], device=device)
    mu = ksubset.marginals(logits, ksubset.between(2, 4))
    truth = ksubset.oracle.LogSpaceDP(logits, 4, torch.tensor([-INF, -INF, 0.0, 0.0, 0.0]))
    close(mu, truth.marginals(), 2e-5)
    shifted = ksubset.marginals(logits[3:5] + 1e4, ksubset.between(1, 2))
    close(shifted, torch.ones(2).double(), 2e-5)


def test_one_size_is_k(device: torch.device) -> None:
    logits = torch.randn(3, 6, device=device)
    for sizes in (ksubset.between(2, 2), ksubset.exactly(2)):
        assert torch.equal(ksubset.marginals(logits, sizes), ksubset.marginals(logits, 2))
        value = ksubset.kl_divergence(logits, logits.flip(0), sizes)
        assert torch.equal(value, ksubset.kl_divergence(logits, logits.flip(0), 2))
        assert ksubset.sample_indices(logits, sizes).shape == (3, 2)


def test_shapes_and_masks(device: torch.device) -> None:
    for batch in ((), (3,), (2, 3), (0,)):
        logits = torch.randn(*batch, 7, device=device)
        sizes = ksubset.between(2, 4)
        assert ksubset.marginals(logits, sizes).shape == logits.shape
        assert ksubset.size_probabilities(logits, sizes).shape == (*batch, 8)
        assert ksubset.sample(logits, sizes, (5, 4)).shape == (5, 4, *batch, 7)
        assert ksubset.sample_indices(logits, sizes, (5,)).shape == (5, *batch, 4)
        assert ksubset.mode(logits, sizes).shape == logits.shape
        assert ksubset.log_partition(logits, sizes).shape == batch
    logits = torch.randn(4, 7, device=device)
    mask = torch.rand(4, 7, device=device) < 0.7
    mask[:, :2] = True
    low = torch.tensor([0, 1, 2, 2], device=device)
    sizes = ksubset.between(low, 7)
    by_mask = ksubset.marginals(logits, sizes, mask=mask)
    assert torch.equal(by_mask, ksubset.marginals(logits.masked_fill(~mask, -INF), sizes))
    for i in range(4):
        alone = ksubset.marginals(logits[i, mask[i]], ksubset.at_least(int(low[i])))
        torch.testing.assert_close(by_mask[i, mask[i]], alone)
    half = logits.bfloat16()
    assert ksubset.marginals(half, sizes).dtype == torch.bfloat16
    assert ksubset.entropy(half, sizes).dtype == torch.float32


def test_the_check_would_notice_a_wrong_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KINDS["between"]
    wrong = Kind(
        lambda n: ksubset.weighted_sizes(right.log_weights(n) + 1e-3 * torch.arange(n + 1)),
        right.log_weights,
    )
    with pytest.raises(AssertionError, match="off by"):
        check(wrong, 8, "auto", torch.float32, torch.device("cpu"))
