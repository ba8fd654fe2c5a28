"""Swap's gradient for several sizes: unbiased for quadratic losses."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.functional import _sized_swap
from ksubset.oracle import SizedEnumeration

N = 6
KINDS = {
    "between": (ksubset.between(1, 4), torch.tensor([-INF, 0, 0, 0, 0, -INF, -INF])),
    "all": (ksubset.at_least(0), torch.zeros(7)),
    "weights": (
        ksubset.weighted_sizes(torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 0.3])),
        torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 0.3, -INF]),
    ),
}


def quadratic() -> tuple[Tensor, Tensor]:
    matrix = torch.randn(N, N).double()
    return matrix + matrix.T, torch.randn(N).double()


def loss(z: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
    return 0.5 * ((z @ matrix) * z).sum(-1) + z @ vector


def exact_gradient(law: SizedEnumeration, values: Tensor) -> Tensor:
    p = law.probabilities
    return (p * (values - p @ values)) @ (law.support - law.marginals())


def estimate(law: SizedEnumeration, logits: Tensor, plan: str, gradients: Tensor) -> Tensor:
    """The mean of the estimate over all subsets, from the swaps and changes of each."""
    z, p, size = law.support, law.probabilities, law.sizes
    rows = logits.expand(len(z), N)
    joins, leaves = _sized_swap.changes(rows, size, z, "auto", plan)
    torch.testing.assert_close(joins.sum(-1)[size < N], torch.ones_like(p)[size < N])
    torch.testing.assert_close(leaves.sum(-1)[size > 0], torch.ones_like(p)[size > 0])
    of_size = law.size_probabilities()
    total = torch.zeros(N).double()
    for i in range(len(z)):
        if p[i] == 0:
            continue
        s, g = int(size[i]), gradients[i]
        within = torch.zeros(N).double()
        rates = oracle.swap_rates(logits, z[i])
        if plan == "exact":
            flow = rates * (g.unsqueeze(1) - g)
            within = 0.5 * (flow.sum(1) - flow.sum(0))
        else:
            mu = oracle.marginals(logits, s)
            out, into = (1 - mu) * z[i], mu * (1 - z[i])
            if out.sum() > 0:
                flow = out.unsqueeze(1) * into / out.sum() * (g.unsqueeze(1) - g)
                within = 0.5 * (flow.sum(1) - flow.sum(0))
        for direction, least in ((joins[i], s + 1), (leaves[i], s)):
            above = exact_gradient(law, (size >= least).double())
            within = within + 0.5 / of_size[s] * above * (direction @ g)
        total = total + p[i] * within
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_quadratic_losses_are_unbiased(kind: str) -> None:
    """Summed over all subsets: nothing is left but rounding."""
    _, weights = KINDS[kind]
    for _ in range(4):
        logits, (matrix, vector) = 1.5 * torch.randn(N).double(), quadratic()
        law = SizedEnumeration(logits, weights)
        truth = exact_gradient(law, loss(law.support, matrix, vector))
        gradients = law.support @ matrix + vector
        mean = estimate(law, logits, "exact", gradients)
        torch.testing.assert_close(mean, truth, atol=1e-10, rtol=1e-10)
        near = estimate(law, logits, "product", gradients)
        # SIMPLE's: the covariance with the mean gradient.
        simple = law.covariance() @ (law.probabilities @ gradients)
        assert (near - truth).norm() < 0.4 * (simple - truth).norm() + 1e-3 * truth.norm()


@pytest.mark.parametrize("plan", ["product", "exact"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_samples(kind: str, plan: str, device: torch.device) -> None:
    """The mean over many samples is the exact gradient, up to noise."""
    sizes, weights = KINDS[kind]
    logits, (matrix, vector) = torch.randn(N).double(), quadratic()
    law = SizedEnumeration(logits, weights)
    x = logits.to(device).requires_grad_()
    x = x.expand(400, N)
    z = ksubset.swap(x, sizes, (200,), plan=plan)
    values = loss(z, matrix.to(device), vector.to(device))
    (parts,) = torch.autograd.grad(values.mean(0).sum(), x)
    truth = estimate(law, logits, plan, law.support @ matrix + vector)
    mean, noise = parts.mean(0).cpu(), parts.std(0).cpu() / len(parts) ** 0.5
    assert ((mean - truth).abs() < 5 * noise).all()


def test_given_probabilities_have_swaps_within_sizes_only() -> None:
    logits, (matrix, vector) = torch.randn(N).double().requires_grad_(), quadratic()
    sizes = ksubset.random_sizes({2: 0.5, 4: 0.5})
    truth = 0.0
    for k in (2, 4):
        z, p = oracle.support(N, k), oracle.log_probabilities(logits, k).exp()
        values = loss(z, matrix, vector)
        truth = truth + 0.5 * (p * (values - p @ values)) @ (z - p @ z)
    z = ksubset.swap(logits, sizes, (200_000,), plan="exact")
    (found,) = torch.autograd.grad(loss(z, matrix, vector).mean(), logits)
    torch.testing.assert_close(found, truth, atol=0.02, rtol=0.02)


def test_wrong_births_are_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _sized_swap.changes

    def evenly(*arguments: object) -> tuple[Tensor, Tensor]:
        joins, leaves = right(*arguments)
        return _sized_swap._shares((joins > 0).double()), leaves

    monkeypatch.setattr(_sized_swap, "changes", evenly)
    with pytest.raises(AssertionError):
        test_quadratic_losses_are_unbiased("between")


def test_sizes_with_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="k must be sizes without a gap between them in swap"):
        ksubset.swap(torch.randn(5), ksubset.weighted_sizes({1: 0.0, 3: 0.0}))


def test_infinite_logits_and_masks(device: torch.device) -> None:
    logits = torch.randn(3, 6, device=device)
    logits[0, 2], logits[1, 4] = -INF, INF
    logits.requires_grad_()
    for plan in ("product", "exact"):
        z = ksubset.swap(logits, ksubset.at_least(1), (50,), plan=plan)
        (gradient,) = torch.autograd.grad(z, logits, torch.randn_like(z))
        assert gradient.isfinite().all()
        assert gradient[0, 2] == gradient[1, 4] == 0


def test_a_layer_with_sizes() -> None:
    layer = ksubset.nn.KSubsetLayer(ksubset.between(2, 3))
    assert repr(layer).startswith("KSubsetLayer(\n  k=between(2, 3)")
    logits = torch.randn(8, 6, requires_grad=True)
    z = layer(logits)
    assert set(z.sum(-1).tolist()) <= {2.0, 3.0}
    (z @ torch.randn(6)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert torch.equal(layer.eval()(logits), ksubset.mode(logits, ksubset.between(2, 3)))
    many = ksubset.estimators.create("swap", baseline="leave_one_out")
    assert many.sample(logits, ksubset.at_most(3), (4,)).shape == (4, 8, 6)
    at = ksubset.estimators.create("marginals")
    assert torch.equal(
        at.sample(logits, ksubset.at_most(3)), ksubset.marginals(logits, ksubset.at_most(3))
    )
