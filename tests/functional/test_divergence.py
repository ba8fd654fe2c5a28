"""Divergences where they are hard: far from zero, near zero, and of many equal items."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from fuzz.exact import Exact
from problems import INF, METHOD_NAMES
from torch import Tensor

import ksubset

Truth = tuple[float, Tensor, Tensor]


def _truth(p: Tensor, q: Tensor, k: int) -> Truth:
    """KL(p || q) and its gradients."""
    first, second = (Exact(x.double().numpy()[None], np.array([k])) for x in (p, q))
    distance = (p.double() - q.double()).numpy()[None]
    by_p = first.covariance_product(distance).astype(np.float64)[0]
    by_q = (second.marginals - first.marginals).astype(np.float64)[0]
    return float(first.divergence(second)[0]), torch.from_numpy(by_p), torch.from_numpy(by_q)


def _off(
    p: Tensor, q: Tensor, k: int, method: str, truth: Truth | None = None
) -> tuple[float, float, float]:
    """Errors of the value and of the gradients."""
    p, q = p.clone().requires_grad_(), q.clone().requires_grad_()
    value = ksubset.kl_divergence(p, q, k, method=method)
    by_p, by_q = torch.autograd.grad(value, (p, q))
    exact, slope_p, slope_q = truth or _truth(p.detach(), q.detach(), k)
    return (
        abs(value.item() - exact),
        float((by_p - slope_p).abs().max()),
        float((by_q - slope_q).abs().max()),
    )


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("shift", [0.0, 1e4, 1e5, 1e8])
def test_a_shift_of_the_logits_costs_no_digits(shift: float, method: str) -> None:
    p, q = torch.randn(10) + shift, torch.randn(10)
    assert max(_off(p, q, 3, method)) < 5e-7


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_masks_written_as_large_numbers(method: str) -> None:
    """More items than the mask leaves: the choice is among those that it forbids."""
    p, q = torch.randn(2, 10)
    p[4:], q[4:] = torch.randn(6) - 1e9, -1e9
    assert max(_off(p, q, 6, method)) < 5e-7


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("level", [0.0, 0.37, 1.0])
@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_nearly_equal_logits(size: float, level: float, method: str) -> None:
    """Rounding of equal coins has one sign: it must not add up."""
    _check_nearly_equal_logits(1000, size, level, method)


@pytest.mark.parametrize("method", ["auto", "spectral"])  # the others are slow with so many
def test_many_nearly_equal_logits(method: str) -> None:
    _check_nearly_equal_logits(10_000, 1e-3, 0.37, method)


def _check_nearly_equal_logits(n: int, size: float, level: float, method: str) -> None:
    p, q, truth = _nearly_equal(n, size, level)
    value, by_p, by_q = _off(p, q, 530, method, truth)
    assert value < 5e-7
    assert by_p < 1e-5 * size
    assert by_q < 5e-7


@cache
def _nearly_equal(n: int, size: float, level: float) -> tuple[Tensor, Tensor, Truth]:
    p = torch.full((n,), level)
    q = p + size * torch.randn(n)
    return p, q, _truth(p, q, 530)


@pytest.mark.parametrize("method", ["auto", "spectral"])
@pytest.mark.parametrize("level", [0.0, 0.37, -3.0, 1e4])
def test_equal_logits_are_uniform(level: float, method: str) -> None:
    for n, k in ((100_000, 10_000), (1000, 530), (64, 63), (7, 3)):
        logits = torch.full((n,), level, requires_grad=True)
        value = ksubset.kl_to_uniform(logits, k, method=method)
        assert value < 1e-6
        assert torch.autograd.grad(value, logits)[0].abs().max() < 1e-9


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_small_divergences_from_uniform(method: str) -> None:
    for n, k in ((20, 10), (300, 150), (300, 299)):
        for scale in (1e-3, 0.1, 3.0):
            logits = scale * torch.randn(n)
            exact = Exact(logits.double().numpy()[None], np.array([k]))
            truth = float(exact.divergence(exact.uniform())[0])
            value = ksubset.kl_to_uniform(logits, k, method=method).item()
            assert abs(value - truth) < 5e-7 + 2e-6 * truth


def test_forced_items_are_not_uniform() -> None:
    logits = torch.tensor([0.0, 1.0, INF, -INF, 2.0])
    value = ksubset.kl_to_uniform(logits, 1)
    torch.testing.assert_close(value, torch.tensor(4.0).log())  # one of four, always the same
    value = ksubset.kl_to_uniform(logits, 2)
    torch.testing.assert_close(value, torch.tensor(6.0).log() - ksubset.entropy(logits, 2))


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_p_hardly_ever_does_and_q_never(dtype: torch.dtype, method: str) -> None:
    """The probability that a likely item is left out has digits of its own."""
    for p, q, k in (
        ([0.0, 0.0, 20.0], [0.0, 0.0, 1e12], 2),
        ([20.0, 0.0], [1e9, 0.0], 1),
        ([30.0, 30.0, 0.0, 0.0], [1e9, 1e9, 0.0, 0.0], 2),
        ([18.0] * 40 + [0.0] * 60, [1e6] * 40 + [0.0] * 60, 40),
    ):
        given, other = (torch.tensor(x, dtype=dtype) for x in (p, q))
        truth = _truth(given, other, k)[0]
        value = ksubset.kl_divergence(given, other, k, method=method).item()
        assert value == pytest.approx(truth, rel=1e-5 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_differences_that_overflow(method: str) -> None:
    """In float32 the tilted logits do, in float64 their difference."""
    p, q = torch.tensor([3e38, 3e38, -3e38]), torch.tensor([3e38, -3e38, 3e38])
    p.requires_grad_()
    q.requires_grad_()
    value = ksubset.kl_divergence(p, q, 1, method=method)
    torch.testing.assert_close(value.detach(), torch.tensor(3e38))
    by_p, by_q = torch.autograd.grad(value, (p, q))
    torch.testing.assert_close(by_q, torch.tensor([0.0, -0.5, 0.5]))
    assert by_p.isfinite().all()
    wide = torch.tensor([1e308, -1e308, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    value = ksubset.kl_divergence(wide, -wide.detach(), 2, method=method)
    assert not value.isnan()
    assert not torch.autograd.grad(value, wide)[0].isnan().any()
