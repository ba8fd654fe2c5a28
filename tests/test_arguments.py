"""Bad input: a clear error that names the argument, what it was and what it must be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ksubset

X = torch.zeros(2, 4)
Z = torch.tensor([1.0, 1.0, 0.0, 0.0])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "marginals": ksubset.marginals,
    "entropy": ksubset.entropy,
    "log_partition": ksubset.log_partition,
    "log_prob_exactly_k": ksubset.log_prob_exactly_k,
    "kl_to_uniform": ksubset.kl_to_uniform,
    "pairwise_marginals": ksubset.pairwise_marginals,
    "covariance_matrix": ksubset.covariance_matrix,
    "mode": ksubset.mode,
    "sample": ksubset.sample,
    "simple": ksubset.simple,
    "sample_indices": ksubset.sample_indices,
    "covariance_product": lambda x, k, **kw: ksubset.covariance_product(x, k, Z, **kw),
    "log_prob": lambda x, k, **kw: ksubset.log_prob(x, k, Z, **kw),
    "kl_divergence": lambda x, k, mask=None, **kw: ksubset.kl_divergence(
        x, x, k, mask_p=mask, mask_q=mask, **kw
    ),
    "log_prob_indices": lambda x, k, **kw: ksubset.log_prob_indices(
        x, k, torch.tensor([1, 3]), **kw
    ),
    "KSubset": lambda x, k, **kw: ksubset.KSubset(k, logits=x, validate_args=True, **kw),
}

ONE_K = ("sample_indices", "log_prob_indices")  # k is the length of what they return or take


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("logits", "k", "error", "message"),
    [
        ([0.0, 0.0, 0.0, 0.0], 2, TypeError, "logits(_p)? must be a tensor, got list"),
        (
            torch.zeros(4, dtype=torch.int64),
            2,
            TypeError,
            "logits(_p)? must be float16, bfloat16, float32 or float64, got torch.int64",
        ),
        (X.to_sparse(), 2, TypeError, "logits(_p)? must be a dense tensor, got one of layout"),
        (torch.zeros(()), 0, ValueError, r"logits(_p)? must have shape \(\.\.\., n\) with n >= 1"),
        (torch.zeros(3, 0), 0, ValueError, r"logits(_p)? must have shape .* got shape \(3, 0\)"),
        (X, 5, ValueError, "k must be between 0 and the number of items n = 4, got 5"),
        (X, -1, ValueError, "k must be between 0 and the number of items n = 4, got -1"),
        (X, 2.0, TypeError, "k must be an int or an integer tensor, got 2.0"),
        (X, True, TypeError, "k must be an int or an integer tensor, got True"),
        (X, None, TypeError, "k must be an int or an integer tensor, got None"),
        (X * torch.nan, 2, ValueError, "logits(_p)? must not be NaN, got NaN in row"),
        (
            torch.tensor([0.0, -torch.inf, -torch.inf, -torch.inf]),
            2,
            ValueError,
            "k must be between 0 and the number of allowed items, 1, got 2 in the only row",
        ),
        (
            torch.tensor([0.0, torch.inf, torch.inf, torch.inf]),
            2,
            ValueError,
            r"k must be at least the number of items with a logit of \+inf, 3, got 2",
        ),
    ],
)
def test_bad_logits_and_k(
    name: str, logits: Any, k: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        FUNCTIONS[name](logits, k)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused_by_name(name: str, layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.zeros(4), torch.zeros(3)], layout=layout)
    message = "must be a dense tensor, got a nested one: pad it, and mask the padding"
    with pytest.raises(TypeError, match=rf"logits(_p)? {message}"):
        FUNCTIONS[name](nested, 2)
    with pytest.raises(TypeError, match=rf"mask(_p)? {message}"):
        FUNCTIONS[name](X, 2, mask=nested)
    if name not in ONE_K:
        with pytest.raises(TypeError, match=rf"k {message}"):
            FUNCTIONS[name](X, nested)


FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_types_of_less_than_16_bits_are_refused_by_name(name: str, dtype: torch.dtype) -> None:
    """Some have no -inf for a forbidden item, one has no zero for an item left out."""
    with pytest.raises(TypeError, match=r"must be float16, .* float64, got torch.float8"):
        FUNCTIONS[name](torch.ones(2, 4).to(dtype), 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_trace(name: str) -> None:
    """A trace calls the operators: it holds for other values, and for another number of rows."""

    def function(x: Tensor) -> Tensor:
        result = FUNCTIONS[name](x, 2)
        found = result.mean if isinstance(result, ksubset.KSubset) else result
        return found if found.dtype == torch.int64 else found + 0 * x.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(function, (X,), check_trace=False)
    logits = torch.randn(3, 4, requires_grad=True)
    torch.manual_seed(1)
    found = traced(logits)
    torch.manual_seed(1)
    expected = function(logits)
    torch.testing.assert_close(found, expected)
    if expected.requires_grad:
        seed = torch.randn_like(expected)
        (gradient,) = torch.autograd.grad(found, logits, seed)
        torch.testing.assert_close(gradient, *torch.autograd.grad(expected, logits, seed))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ONE_K])
@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (torch.tensor([1.0, 2.0]), TypeError, "got a tensor of torch.float32"),
        (torch.tensor([True, False]), TypeError, "got a tensor of torch.bool"),
        (torch.tensor([1, 2, 3]), ValueError, r"must broadcast: logits(_p)? \(2,\), k \(3,\)"),
        (torch.tensor([1, 5]), ValueError, r"allowed items, 4, got 5 in row \(1,\) \(1 of 2 rows"),
        (torch.tensor([-1, 2]), ValueError, r"allowed items, 4, got -1 in row \(0,\)"),
    ],
)
def test_bad_tensors_of_k(name: str, k: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FUNCTIONS[name](X, k)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True] * 4, TypeError, "mask(_p)? must be a tensor, got list"),
        (
            torch.ones(4).bool().to_sparse(),
            TypeError,
            "mask(_p)? must be a dense tensor, got one of layout",
        ),
        (
            torch.ones(4, dtype=torch.bool, device="meta"),
            ValueError,
            "mask(_p)? must be on the device of the logits, cpu, got meta",
        ),
        (torch.ones(4), TypeError, "mask(_p)? must be boolean .* got torch.float32"),
        (
            torch.ones(5, dtype=torch.bool),
            ValueError,
            r"mask(_p)? must have shape .* got shape \(5,\)",
        ),
        (torch.ones(3, 4, dtype=torch.bool), ValueError, r"must broadcast: .* mask(_p)? \(3,\)"),
        (torch.tensor([True, False, False, False]), ValueError, "allowed items, 1, got 2"),
    ],
)
def test_bad_masks(name: str, mask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FUNCTIONS[name](X, 2, mask=mask)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "mode"])
def test_bad_methods(name: str) -> None:
    with pytest.raises(ValueError, match=r"method must be one of 'auto', .* got 'best'"):
        FUNCTIONS[name](X, 2, method="best")


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            torch.tensor([1.0, 0.0, 0.0, 0.0]),
            ValueError,
            "value must be k-hot with k = 2 ones, got 1",
        ),
        (torch.tensor([0.5, 0.5, 1.0, 0.0]), ValueError, "entries must be 0 or 1"),
        (torch.tensor([1.0, 1.0, 0.0]), ValueError, r"value must have shape .* n = 4, got \(3,\)"),
        (torch.zeros(3, 4), ValueError, r"value, \(3,\), must broadcast with .* \(2,\)"),
        ([1, 1, 0, 0], TypeError, "value must be a tensor, got list"),
        (Z.to_sparse(), TypeError, "value must be a dense tensor, got one of layout"),
    ],
)
def test_bad_values(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ksubset.log_prob(X, 2, value)


@pytest.mark.parametrize(
    ("v", "error", "message"),
    [
        (torch.zeros(3), ValueError, r"v must have shape .* n = 4, got \(3,\)"),
        (torch.zeros(4, device="meta"), ValueError, "device of the logits, cpu, got meta"),
        (torch.zeros(3, 4), ValueError, r"must broadcast: .* v \(3,\)"),
        (torch.zeros(4, dtype=torch.complex64), TypeError, "real tensor, got torch.complex64"),
        ([1.0, 0.0, 0.0, 0.0], TypeError, "v must be a real tensor, got list"),
        (Z.to_sparse(), TypeError, "v must be a dense tensor, got one of layout"),
    ],
)
def test_bad_vectors(v: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ksubset.covariance_product(X, 2, v)


def _taking_a_sample_shape() -> dict[str, Callable[[Any], Tensor]]:
    simple = ksubset.SimpleKSubset(2, logits=X)
    found: dict[str, Callable[[Any], Tensor]] = {
        "sample": lambda shape: ksubset.sample(X, 2, shape),
        "simple": lambda shape: ksubset.simple(X, 2, shape),
        "swap": lambda shape: ksubset.swap(X, 2, shape),
        "swap, exact": lambda shape: ksubset.swap(X, 2, shape, plan="exact"),
        "sample_indices": lambda shape: ksubset.sample_indices(X, 2, shape),
        "KSubset.sample": simple.sample,
        "KSubset.sample_indices": simple.sample_indices,
        "SimpleKSubset.rsample": simple.rsample,
        "Simple(average=2)": lambda shape: ksubset.estimators.Simple(2).sample(X, 2, shape),
    }
    for name in ksubset.estimators.ESTIMATORS:
        made = ksubset.estimators.create(name)
        if isinstance(made, ksubset.estimators.Pathwise):
            k = 1 if name == "reinmax_rao" else 2
            found[f"estimators.{name}"] = lambda shape, made=made, k=k: made.sample(X, k, shape)
    return found


TAKING_A_SAMPLE_SHAPE = _taking_a_sample_shape()


@pytest.mark.parametrize("name", TAKING_A_SAMPLE_SHAPE)
@pytest.mark.parametrize("shape", [3, None, (-1,), (2.0,), (True,), (np.True_,), "3"])
def test_bad_sample_shapes(name: str, shape: Any) -> None:
    with pytest.raises(ValueError, match="sample_shape must be a sequence of sizes >= 0, got"):
        TAKING_A_SAMPLE_SHAPE[name](shape)


@pytest.mark.parametrize("name", TAKING_A_SAMPLE_SHAPE)
def test_sample_shapes_of_other_integer_types(name: str) -> None:
    for shape in ((np.int64(3), 2), [3, np.int8(2)], torch.Size((3, 2)), torch.tensor([3, 2])):
        assert TAKING_A_SAMPLE_SHAPE[name](shape).shape[:3] == (3, 2, 2)


def test_bad_generators() -> None:
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator, got int"):
        ksubset.sample(X, 2, generator=3)  # type: ignore[arg-type]


def test_sizes_of_other_integer_types() -> None:
    for k in (np.int64(2), torch.tensor(2), torch.tensor(2, dtype=torch.int16)):
        assert ksubset.sample(X, k).sum() == 4
    with pytest.raises(TypeError, match="k must be an int in sample_indices"):
        ksubset.sample_indices(X, torch.tensor(2))


def test_checks_of_values_can_be_switched() -> None:
    bad = X * torch.nan
    assert ksubset.marginals(bad, 2, validate_args=False).isnan().all()
    with pytest.raises(ValueError, match="NaN"):
        ksubset.marginals(bad, 2, validate_args=True)
    with pytest.raises(ValueError, match="between 0 and the number of items"):
        ksubset.marginals(X, 5, validate_args=False)


def test_kl_of_different_items() -> None:
    with pytest.raises(ValueError, match="same number of items, got 4 and 5"):
        ksubset.kl_divergence(X, torch.zeros(5), 2)
    with pytest.raises(ValueError, match="must broadcast"):
        ksubset.kl_divergence(X, torch.zeros(3, 4), 2)
    with pytest.raises(TypeError, match="logits_q must be a tensor, got list"):
        ksubset.kl_divergence(X, [0.0] * 4, 2)
    with pytest.raises(
        ValueError, match="k_q must be between 0 and the number of items n = 4, got 5"
    ):
        ksubset.kl_divergence(X, X, 2, 5)


def _tensors_in_reach(logits: Tensor) -> list[Tensor]:
    """Every tensor that a user of these logits is handed, with those that autograd shows."""
    z = ksubset.simple(logits, 2)
    mu = ksubset.marginals(logits, 2)
    d = ksubset.KSubset(2, logits=logits)
    found = [z, mu, d.k, d.support.k, d.mean, d.mode, d.sample(), d.expand((4, 3)).k]
    found += [d.entropy(), d.log_partition(), d.covariance_matrix, d.enumerate_support()]
    found += [ksubset.sample_indices(logits, 2), ksubset.kl_to_uniform(logits, 2)]
    found += [*getattr(mu.grad_fn, "saved_tensors", ()), *getattr(z.grad_fn, "saved_tensors", ())]
    return found


def test_writing_to_what_is_returned_changes_no_later_call() -> None:
    def results() -> list[Tensor]:
        logits = torch.arange(15.0).reshape(3, 5).requires_grad_()
        (gradient,) = torch.autograd.grad(ksubset.simple(logits, 2)[:, 0].sum(), logits)
        return [ksubset.marginals(logits, 2), ksubset.mode(logits, 2), gradient]

    before = results()
    logits = torch.zeros(3, 5, requires_grad=True)
    with torch.no_grad():
        for tensor in _tensors_in_reach(logits):
            memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            memory.add_(1)
    for was, now in zip(before, results(), strict=True):
        assert torch.equal(was, now)
