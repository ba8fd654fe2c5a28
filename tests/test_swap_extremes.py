"""Swap and the estimators around it where something is out of the ordinary: impossible rows, no
samples, large constants and infinities in gradients, subsets that are hardly ever drawn."""

from __future__ import annotations

import pytest
import torch

import ksubset
from ksubset import estimators

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("n", [65, 70, 100, 300])
def test_a_row_does_not_depend_on_an_impossible_row_after_it(n: int) -> None:
    logits = torch.randn(2, n, dtype=torch.float64)
    logits[1] = -INF
    x = logits.clone().requires_grad_()
    z = ksubset.swap(x, 3, validate_args=False)
    z.backward(torch.randn_like(z))
    assert abs(float(x.grad[0].sum())) < 1e-9


def test_an_odd_short_row_does_not_depend_on_an_impossible_row_after_it() -> None:
    logits = torch.zeros(5, 5, dtype=torch.float64)
    logits[0, 0], logits[2] = 1e5, -INF
    x = logits.requires_grad_()
    z = ksubset.swap(x, 2, validate_args=False)
    z.backward(torch.arange(25, dtype=torch.float64).reshape(5, 5).square())
    assert abs(float(x.grad[0].sum())) < 1e-9


@pytest.mark.parametrize("method", ["auto", "spectral"])
@pytest.mark.parametrize(
    ("dtype", "gaps"), [(torch.float32, (86, 106)), (torch.float64, (707, 747))]
)
@pytest.mark.parametrize("n", [2, 3, 9, 70, 300])
def test_flows_of_the_smallest_numbers(
    n: int, dtype: torch.dtype, gaps: tuple[int, int], method: str
) -> None:
    """One item stays behind, with a probability that rounds to a few times the smallest number."""
    logits = torch.zeros(81, n, dtype=dtype)
    logits[:, 1:] = torch.linspace(*gaps, 81, dtype=dtype)[:, None]
    for k in {1, n - 1}:
        for sizes in ((), (2,)):
            x = logits.clone().requires_grad_()
            z = ksubset.swap(x if k > 1 else -x, k, sizes, method=method)
            z.backward(torch.randn_like(z) + 100)
            assert x.grad.isfinite().all()
            assert (x.grad.abs() <= torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("n", [1, 65, 80, 300])
def test_no_samples_give_a_zero_gradient(n: int) -> None:
    junk = [torch.full((3, n), 7.0) for _ in range(50)]
    del junk
    x = torch.randn(3, n, requires_grad=True)
    ksubset.swap(x, 1, (0,)).sum().backward()
    assert not x.grad.any()


@pytest.mark.parametrize("offset", [1e4, 2.0**20])
def test_equal_logits_a_constant_in_the_gradient_changes_nothing(offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for n in range(80, 400, 16):
        for k in (1, 2, n // 3, n - 1):
            x = torch.zeros(n, requires_grad=True)
            z = ksubset.swap(x, k, generator=generator)
            v = (torch.randn(n, generator=generator) * 8).round() / 8
            (a,) = torch.autograd.grad(z, x, v, retain_graph=True)
            (b,) = torch.autograd.grad(z, x, v + offset)
            worst = max(worst, float((a - b).abs().max()))
    assert worst < 1e-5


@pytest.mark.parametrize(
    ("name", "options"),
    [("swap", {"plan": "exact"}), ("sparse_swap", {}), ("sparse_swap", {"plan": "exact"})],
)
def test_what_a_masked_item_has_for_a_gradient_does_not_count(name: str, options: dict) -> None:
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) != 1
    z = estimators.create(name, **options).sample(x, 2, mask=mask)
    v = torch.randn_like(z)
    v[1] = INF
    z.backward(v)
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["corrected_swap", "double_control"])
def test_an_infinite_slope_at_a_masked_item(name: str) -> None:
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) != 1

    def loss(z: torch.Tensor) -> torch.Tensor:
        return z[..., 0] + z[..., 1].sqrt()

    estimators.create(name).surrogate(loss, x, 2, 3, mask=mask).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("plan", ["product", "exact"])
def test_sparse_swap_does_not_look_at_items_that_were_not_chosen(plan: str) -> None:
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    z = estimators.SparseSwap(plan).sample(x, 2)
    z.backward(torch.where(z.detach() > 0.5, 1.0, NAN))
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("n", "k", "samples"), [(1000, 300, 2), (200, 100, 8)])
def test_unordered_set_of_unlikely_subsets(n: int, k: int, samples: int) -> None:
    x = torch.randn(n, requires_grad=True)
    loss = estimators.create("unordered_set").surrogate(lambda z: z[..., 0], x, k, samples)
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


def test_unordered_set_of_rows_that_share_a_loss() -> None:
    x = torch.randn(50, 50, requires_grad=True)
    loss = estimators.create("unordered_set").surrogate(lambda z: z[..., 0].sum(-1), x, 10, 2)
    assert loss.isfinite()


@pytest.mark.parametrize("method", ["auto", "spectral", "dp", "tree"])
@pytest.mark.parametrize("plan", ["product", "exact"])
def test_an_impossible_row_has_no_gradient(plan: str, method: str) -> None:
    x = torch.full((1, 6), -INF, requires_grad=True)
    z = ksubset.swap(x, 2, plan=plan, method=method, validate_args=False)
    z.backward(torch.randn_like(z))
    assert x.grad.isnan().all()


def test_regression_without_rows() -> None:
    x = torch.randn(0, 6, requires_grad=True)
    estimators.create("score", baseline="regression").surrogate(
        lambda z: z[..., 0], x, 2, 3
    ).backward()


@pytest.mark.parametrize("name", ["score", "double_control", "muprop"])
def test_boolean_losses(name: str) -> None:
    x = torch.randn(3, 6, requires_grad=True)
    estimators.create(name).surrogate(lambda z: z[..., 0] > 0.5, x, 2, 4).backward()


@pytest.mark.parametrize("name", ["st_gumbel", "st_decoupled"])
def test_forced_items_in_straight_through(name: str) -> None:
    x = torch.tensor([INF, -INF, 0, 1, 2, 3], requires_grad=True)
    z = estimators.create(name).sample(x, 2)
    z.backward(torch.randn(6))
    assert x.grad.isfinite().all()
