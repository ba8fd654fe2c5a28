"""The short way of plain eager calls: taken where it may be, and with the same results."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
import torch.utils.checkpoint
from problems import INF, METHOD_NAMES
from torch import Tensor

import ksubset


def test_checkpointing_from_the_first_call_on() -> None:
    """What is saved does not depend on whether a call like this one was made before."""
    for rows in (41, 43):  # no other test's
        logits = torch.randn(rows, 8, requires_grad=True)
        torch.utils.checkpoint.checkpoint(
            lambda x: ksubset.simple(x, 3) * x, logits, use_reentrant=False
        ).sum().backward()
        assert logits.grad is not None


def test_values_that_are_not_in_memory_as_they_are() -> None:
    """Views whose sign is to be changed, and zeros that nobody wrote down."""
    x = torch.randn(5, 6, dtype=torch.float64)
    negated = torch._neg_view(x)
    for function in (ksubset.marginals, lambda x, k: ksubset.simple(x, k, generator=_seeded(3))):
        assert torch.equal(function(negated, 2), function(-x, 2))
    logits = x.clone().requires_grad_()
    z = ksubset.simple(logits, 2)
    (found,) = torch.autograd.grad(z, logits, torch._neg_view(x), retain_graph=True)
    (expected,) = torch.autograd.grad(z, logits, -x, retain_graph=True)
    torch.testing.assert_close(found, expected)
    (none,) = torch.autograd.grad(z, logits, torch._efficientzerotensor((5, 6)).double())
    assert not none.any()


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_what_cannot_be_sampled_is_refused_every_time(method: str) -> None:
    """By calls like others before, which check no more than they must."""
    logits = torch.zeros(5, 47)  # no other test's
    assert ksubset.simple(logits, 3, method=method).sum() == 15
    logits[2, 1] = torch.nan
    for _ in range(2):
        with pytest.raises(ValueError, match=r"logits must not be NaN, got NaN in row \(2,\)"):
            ksubset.simple(logits, 3, method=method)
    assert ksubset.simple(logits, 3, method=method, validate_args=False).isnan().all(-1).sum() == 1
    logits[2, 1:] = -INF
    with pytest.raises(ValueError, match="number of allowed items, 1, got 3 in row"):
        ksubset.simple(logits, 3, method=method)
    logits[2, 1:4] = 0
    assert ksubset.simple(logits, 3, method=method)[2, 4:].sum() == 0


def test_a_plan_does_not_hold_on_to_logits() -> None:
    logits = torch.zeros(3, 53, requires_grad=True)
    gone = weakref.ref(logits)
    ksubset.simple(logits, 3)
    del logits
    assert gone() is None


def test_meta_tensors_have_shapes_and_no_values() -> None:
    """As for measuring a model that is not there."""
    logits = torch.empty(3, 6, device="meta", requires_grad=True)
    for _ in range(2):
        z = ksubset.simple(logits, 2, (4,))
        assert (z.shape, z.device.type) == ((4, 3, 6), "meta")
    mu = ksubset.marginals(logits, 2)
    (gradient,) = torch.autograd.grad(z.sum() + mu.sum() + ksubset.entropy(logits, 2).sum(), logits)
    assert (gradient.shape, gradient.device.type) == ((3, 6), "meta")
    assert ksubset.sample_indices(logits, 2).shape == (3, 2)
    assert ksubset.KSubset(2, logits=logits).sample((4,)).shape == (4, 3, 6)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("function", [ksubset.simple, ksubset.swap])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_planned_samples_are_those_of_the_operators(
    function: Callable[..., Tensor], dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """With a mask, a k for every row, and in half precision: values, gradients and what is
    differentiated again. A transform keeps a call from being planned."""
    x, w = torch.randn(2, 2, 4, 9, dtype=dtype)
    mask = torch.rand(4, 9) < 0.7
    mask[:, :4] = True
    k = torch.tensor([[1], [3]], dtype=torch.int32)
    for options in ({"mask": mask}, {"mask": mask[:, :1] | True}, {}):
        for size in (2, k, k.expand(2, 4), torch.tensor(2)):

            def draw(x: Tensor) -> Tensor:
                return function(x, size, shape, generator=_seeded(5), **options)  # noqa: B023

            def product(x: Tensor) -> Tensor:
                return (draw(x) * w).sum()

            logits = x.clone().requires_grad_()
            z = draw(logits)
            assert (z.shape, z.dtype) == ((*shape, 2, 4, 9), dtype)
            unplanned, derivative = torch.func.vjp(draw, x)
            assert torch.equal(z, unplanned)
            (gradient,) = torch.autograd.grad(z, logits, w.expand(z.shape), create_graph=True)
            (expected,) = derivative(w.expand(z.shape).contiguous())
            close = {"rtol": 2e-5, "atol": 2e-6} if dtype != torch.bfloat16 else {}
            torch.testing.assert_close(gradient, expected, **close)
            (again,) = torch.autograd.grad(draw(logits), logits, w.expand(z.shape))
            torch.testing.assert_close(again, expected, **close)
            if function is ksubset.simple and dtype == torch.float64:
                (second,) = torch.autograd.grad(gradient, logits, w)
                hessian = torch.func.jvp(torch.func.grad(product), (x,), (w,))[1]
                torch.testing.assert_close(second, hessian)


def test_a_k_for_every_row_is_checked_every_time() -> None:
    logits = torch.zeros(4, 59)  # no other test's
    mask = torch.ones(4, 59, dtype=torch.bool)
    mask[2, 3:] = False
    good = torch.tensor([1, 2, 3, 59])
    assert ksubset.simple(logits, good, mask=mask).sum() == 65
    for wrong, row in (([1, 2, 4, 5], 2), ([1, 2, 3, 60], 3), ([-1, 2, 3, 5], 0)):
        k = torch.tensor(wrong)
        message = f"number of allowed items, .*, got {wrong[row]} in row \\({row},\\)"
        with pytest.raises(ValueError, match=message):
            ksubset.simple(logits, k, mask=mask)
        z = ksubset.simple(logits, k, mask=mask, validate_args=False)
        assert z.isnan().any(-1).nonzero().tolist() == [[row]]
    with pytest.raises(TypeError, match="k must be an int or an integer tensor, got a tensor of"):
        ksubset.simple(logits, good > 1)
    for shape in ((5,), (4, 1), (2, 4)):
        size = torch.ones(shape, dtype=torch.int64)
        if shape == (5,):
            with pytest.raises(ValueError, match="must broadcast"):
                ksubset.simple(logits, size)
        else:
            assert ksubset.simple(logits, size).shape == (*torch.broadcast_shapes(shape, (4,)), 59)


def test_a_k_that_was_written_to_cannot_be_differentiated() -> None:
    logits, k = torch.randn(3, 61, requires_grad=True), torch.tensor([1, 2, 3])
    z = ksubset.simple(logits, k)
    k += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
