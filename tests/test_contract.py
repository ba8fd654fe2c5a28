"""The contract: one set of cases for every method, type and device, against the oracle."""

from __future__ import annotations

import pytest
import torch
from problems import (
    DTYPES,
    INF,
    LARGE,
    METHOD_NAMES,
    TOLERANCES,
    Problem,
    large,
    product_plan,
    small,
)
from torch import Tensor

import ksubset
from ksubset.kernels import METHODS


class Report:
    """Collects violations over many cases, to show the worst instead of the first."""

    def __init__(self) -> None:
        self.bad: list[str] = []

    def check(self, what: str, problem: Problem, error: float, bound: float) -> None:
        if not error <= bound:
            self.bad.append(f"{problem.name}: {what} off by {error:.2e}, bound {bound:.2e}")

    def verdict(self) -> None:
        assert not self.bad, f"{len(self.bad)} violations:\n" + "\n".join(self.bad[:20])


def check_all(
    problems: list[Problem], method: str, dtype: torch.dtype, device: torch.device
) -> None:
    """One batch of problems of the same n, each row with its own k."""
    tolerance = TOLERANCES[dtype]
    logits = torch.stack([p.logits for p in problems]).to(device, dtype)
    k = torch.tensor([p.k for p in problems], device=device)
    log_partition = ksubset.log_partition(logits, k, method=method).cpu().double()
    marginals = ksubset.marginals(logits, k, method=method).cpu().double()
    entropy = ksubset.entropy(logits, k, method=method).cpu().double()
    vectors = torch.stack([torch.stack(p.vectors) for p in problems], 1).to(device, dtype)
    vectors = torch.cat([vectors, torch.ones_like(vectors[:1])])
    products = ksubset.covariance_product(logits, k, vectors, method=method).cpu().double()

    report = Report()
    for i, p in enumerate(problems):
        if (p.logits == INF).any():
            assert log_partition[i] == INF
        else:
            error = abs(float(log_partition[i]) - p.log_partition)
            report.check("log-partition", p, error, tolerance.scalar * (1 + abs(p.log_partition)))
        report.check("marginals", p, _worst(marginals[i] - p.marginals), tolerance.marginals)
        report.check("sum", p, abs(float(marginals[i].sum()) - p.k), tolerance.total * p.k)
        error = abs(float(entropy[i]) - p.entropy)
        report.check("entropy", p, error, tolerance.scalar * (1 + abs(p.entropy)))
        for j, (v, product) in enumerate(zip(p.vectors, p.products, strict=True)):
            first, second = tolerance.covariance
            bound = first * _worst(product) + second * _worst(v - v.mean())
            report.check("covariance", p, _worst(products[j, i] - product), bound)
        report.check("Cov 1", p, _worst(products[-1, i]), tolerance.total)
    report.verdict()


def _worst(x: Tensor) -> float:
    return float(x.abs().max())


def check_swap(
    problems: list[Problem], method: str, dtype: torch.dtype, device: torch.device
) -> None:
    """The gradient of a sample for each vector: one alone, and those of two samples added up."""
    tolerance = TOLERANCES[dtype]
    logits = torch.stack([p.logits for p in problems]).to(device, dtype).requires_grad_()
    k = torch.tensor([p.k for p in problems], device=device)
    vectors = torch.stack([torch.stack(p.vectors) for p in problems], 1).to(device, dtype)
    z = ksubset.swap(logits, k, vectors.shape[:1], method=method)
    (added,) = torch.autograd.grad(z, logits, vectors, retain_graph=True)
    first = ksubset.swap(logits, k, method=method)
    (alone,) = torch.autograd.grad(first, logits, vectors[1])

    report = Report()
    for i, p in enumerate(problems):
        assert int(first[i].sum()) == p.k
        spread = _worst(p.vectors[0] - p.vectors[0].mean())
        one = product_plan(p.marginals, first[i].detach().cpu().double(), p.vectors[0])
        both = [
            product_plan(p.marginals, z[j, i].detach().cpu().double(), p.vectors[0])
            for j in range(2)
        ]
        for found, truth in ((alone, one), (added, both[0] + both[1])):
            bound = tolerance.covariance[0] * _worst(truth) + tolerance.covariance[1] * spread
            report.check("swap", p, _worst(found[i].cpu().double() - truth), bound)
    report.verdict()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11, 14])
def test_swap_against_enumeration(
    n: int, method: str, dtype: torch.dtype, device: torch.device
) -> None:
    check_swap([p for p in small() if len(p.logits) == n], method, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_swap_against_the_log_space_dp(
    method: str, dtype: torch.dtype, device: torch.device
) -> None:
    for scale in (1.0, 30.0):
        check_swap(list(large(1000, scale)), method, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11, 14])
def test_against_enumeration(n: int, method: str, dtype: torch.dtype, device: torch.device) -> None:
    check_all([p for p in small() if len(p.logits) == n], method, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("n", LARGE)
def test_against_the_log_space_dp(
    n: int, scale: float, method: str, dtype: torch.dtype, device: torch.device
) -> None:
    check_all(list(large(n, scale)), method, dtype, device)


@pytest.mark.parametrize("method", METHODS)
def test_the_bounds_would_notice_a_wrong_method(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: perturb the kernels by a part in ten thousand."""
    from ksubset import kernels

    right = kernels.METHODS[method]
    wrong = kernels.Method(
        infer=lambda coins: tuple(part * 1.0001 for part in right.infer(coins)),
        entropy=right.entropy,
        covariance_product=right.covariance_product,
        third_cumulant_product=right.third_cumulant_product,
        sample=right.sample,
    )
    monkeypatch.setitem(kernels.METHODS, method, wrong)
    cases = [p for p in small() if len(p.logits) == 8]
    with pytest.raises(AssertionError, match="marginals off by"):
        check_all(cases, method, torch.float32, torch.device("cpu"))
    with pytest.raises(AssertionError, match="swap off by"):
        check_swap(cases, method, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_mask_is_a_logit_of_minus_infinity(
    method: str, dtype: torch.dtype, device: torch.device
) -> None:
    logits = torch.randn(6, 9, dtype=dtype, device=device)
    mask = torch.rand(6, 9, device=device) < 0.6
    mask[:, :3] = True
    forbidden = logits.masked_fill(~mask, -INF)
    for function in (ksubset.log_partition, ksubset.marginals, ksubset.entropy):
        by_mask = function(logits, 2, mask=mask, method=method)
        assert torch.equal(by_mask, function(forbidden, 2, method=method))
    # ... and as if the item were not there
    for row in range(6):
        kept = ksubset.marginals(logits[row, mask[row]], 2, method=method)
        whole = ksubset.marginals(logits[row], 2, mask=mask[row], method=method)
        torch.testing.assert_close(whole[mask[row]], kept)
        assert not whole[~mask[row]].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_other_functions_against_enumeration(
    method: str, dtype: torch.dtype, device: torch.device
) -> None:
    tolerance = TOLERANCES[dtype].scalar
    for n, k, scale in ((6, 2, 1.0), (9, 7, 5.0), (5, 0, 1.0), (5, 5, 1.0), (8, 4, 30.0)):
        p, q = (scale * torch.randn(n, dtype=dtype).double() for _ in range(2))
        p, q = p.to(dtype).double(), q.to(dtype).double()
        logits, other = p.to(device, dtype), q.to(device, dtype)

        def close(value: Tensor, truth: Tensor) -> None:
            assert value.dtype == dtype
            torch.testing.assert_close(
                value.cpu().double(),
                truth,
                rtol=tolerance,
                atol=2 * tolerance,
            )

        z = oracle_support = ksubset.oracle.support(n, k)
        close(
            ksubset.log_prob(logits, k, z.to(device, dtype), method=method),
            ksubset.oracle.log_probabilities(p, k),
        )
        close(
            ksubset.kl_divergence(logits, other, k, method=method),
            ksubset.oracle.kl_divergence(p, q, k),
        )
        uniform = torch.zeros_like(p)
        close(
            ksubset.kl_to_uniform(logits, k, method=method),
            ksubset.oracle.kl_divergence(p, uniform, k),
        )
        close(
            ksubset.log_prob_exactly_k(logits, k, method=method),
            ksubset.oracle.log_partition(p, k) - torch.logaddexp(p, torch.zeros_like(p)).sum(),
        )
        probabilities = ksubset.oracle.log_probabilities(p, k).exp()
        joint = torch.einsum("s,si,sj->ij", probabilities, oracle_support, oracle_support)
        close(ksubset.pairwise_marginals(logits, k, method=method), joint)
        close(ksubset.covariance_matrix(logits, k, method=method), ksubset.oracle.covariance(p, k))


def test_kl_is_infinite_between_sizes_and_outside_the_support(device: torch.device) -> None:
    logits = torch.randn(3, 5, device=device)
    assert (ksubset.kl_divergence(logits, logits, 2, 3) == INF).all()
    mixed = ksubset.kl_divergence(logits, logits, 2, torch.tensor([2, 3, 2], device=device))
    assert mixed[1] == INF
    assert mixed[0] == mixed[2] == 0
    narrow = logits.clone()
    narrow[:, 0] = -INF
    assert (ksubset.kl_divergence(logits, narrow, 2) == INF).all()
    assert ksubset.kl_divergence(narrow, logits, 2).isfinite().all()
    forced = logits.clone()
    forced[:, 0] = INF
    assert (ksubset.kl_divergence(logits, forced, 2) == INF).all()
    assert ksubset.kl_divergence(forced, logits, 2).isfinite().all()
    assert (ksubset.kl_divergence(forced, forced, 2) == 0).all()


def test_the_mode_has_exactly_k_ones_also_on_ties(device: torch.device) -> None:
    logits = torch.tensor([1.0, 3.0, 3.0, 3.0, -INF, INF], device=device)
    for k in range(1, 6):
        z = ksubset.mode(logits, k)
        assert z.sum() == k
        assert z[5] == 1
        assert z[4] == 0
    assert ksubset.mode(logits, 3).tolist() == [0, 1, 1, 0, 0, 1]
    rows = ksubset.mode(logits.expand(3, -1), torch.tensor([1, 2, 5], device=device))
    assert rows.sum(-1).tolist() == [1, 2, 5]


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(
    dtype: torch.dtype, method: str, device: torch.device
) -> None:
    logits = torch.randn(4, 30, device=device).to(dtype)
    wide = logits.float()
    z = ksubset.sample(logits, 5, method=method)
    assert z.dtype == dtype
    assert (z.sum(-1) == 5).all()
    for function in (ksubset.marginals, ksubset.mode):
        assert torch.equal(function(logits, 5), function(wide, 5).to(dtype))
    product = ksubset.covariance_product(logits, 5, logits, method=method)
    assert torch.equal(product, ksubset.covariance_product(wide, 5, wide, method=method).to(dtype))
    for function in (
        ksubset.entropy,
        ksubset.log_partition,
        ksubset.kl_to_uniform,
        ksubset.log_prob_exactly_k,
    ):
        value = function(logits, 5)
        assert value.dtype == torch.float32
        assert torch.equal(value, function(wide, 5))
    assert ksubset.log_prob(logits, 5, z).dtype == torch.float32
    assert ksubset.kl_divergence(logits, logits, 5).dtype == torch.float32


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_shapes(method: str, device: torch.device) -> None:
    for batch in ((), (3,), (2, 3), (0,), (2, 0, 3)):
        logits = torch.randn(*batch, 7, device=device)
        assert ksubset.marginals(logits, 2, method=method).shape == logits.shape
        assert ksubset.entropy(logits, 2, method=method).shape == batch
        assert ksubset.log_partition(logits, 2, method=method).shape == batch
        assert ksubset.covariance_matrix(logits, 2, method=method).shape == (*batch, 7, 7)
        assert ksubset.kl_divergence(logits, logits, 2, method=method).shape == batch
        assert ksubset.mode(logits, 2).shape == logits.shape
        z = ksubset.sample(logits, 2, (5, 4), method=method)
        assert z.shape == (5, 4, *batch, 7)
        assert ksubset.log_prob(logits, 2, z, method=method).shape == (5, 4, *batch)
        assert ksubset.sample_indices(logits, 2, (5,), method=method).shape == (5, *batch, 2)
        assert ksubset.sample(logits, 2, (0,), method=method).shape == (0, *batch, 7)


def test_broadcasting(device: torch.device) -> None:
    logits = torch.randn(7, device=device)
    k = torch.tensor([[1], [2]], device=device)
    mask = torch.ones(3, 7, dtype=torch.bool, device=device)
    mask[0, 0] = False
    mu = ksubset.marginals(logits, k, mask=mask)
    assert mu.shape == (2, 3, 7)
    torch.testing.assert_close(mu.sum(-1), k.expand(2, 3).to(mu.dtype))
    torch.testing.assert_close(mu[1, 2], ksubset.marginals(logits, 2))


def test_layout_does_not_matter(device: torch.device) -> None:
    wide = torch.randn(9, 2, 6, device=device)
    view = wide.permute(2, 1, 0)[::2]
    assert not view.is_contiguous()
    for method in METHOD_NAMES:
        torch.testing.assert_close(
            ksubset.marginals(view, 3, method=method),
            ksubset.marginals(view.contiguous(), 3, method=method),
        )
