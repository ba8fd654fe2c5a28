"""The short way of plain eager calls: taken where it may be, and with the same results."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.utils.checkpoint
from problems import INF, METHOD_NAMES

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
