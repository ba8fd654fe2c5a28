"""KSubset and SimpleKSubset by the rules that all of torch.distributions follow."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from problems import INF
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    biject_to,
    constraints,
    kl_divergence,
    register_kl,
    transform_to,
)

import ksubset
from ksubset import KSubset, SimpleKSubset

CLASSES = [KSubset, SimpleKSubset]
PARAMETERS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "scalar": (2, (5,), ()),
    "batch": (2, (3, 5), (3,)),
    "two axes": (2, (2, 3, 5), (2, 3)),
    "empty batch": (2, (0, 5), (0,)),
    "tensor of one k": (torch.tensor(2), (3, 5), (3,)),
    "k per row": (torch.tensor([1, 2, 4]), (3, 5), (3,)),
    "batch of k": (torch.tensor([[0], [5]]), (3, 5), (2, 3)),
    "none": (0, (3, 5), (3,)),
    "all": (5, (3, 5), (3,)),
    "one item": (1, (4, 1), (4,)),
}


class Subclass(SimpleKSubset):
    """As users make them."""


def distribution(
    cls: type[KSubset], name: str, dtype: torch.dtype = torch.float32, **options: Any
) -> KSubset:
    k, shape, _ = PARAMETERS[name]
    logits = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    return cls(k, logits=logits.to(dtype), **options)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes(cls: type[KSubset], name: str) -> None:
    d = distribution(cls, name)
    batch, n = PARAMETERS[name][2], PARAMETERS[name][1][-1]
    assert (d.batch_shape, d.event_shape) == (batch, (n,))
    assert isinstance(d.batch_shape, torch.Size)
    assert isinstance(d.event_shape, torch.Size)
    for shape in ((), (4,), (4, 2), (0,), torch.Size((2,)), [3]):
        z = d.sample(shape)
        assert z.shape == d._extended_shape(shape) == (*shape, *batch, n)
        assert d.log_prob(z).shape == (*shape, *batch)
    for vector in (d.mean, d.variance, d.stddev, d.mode, d.logits, d.probs):
        assert vector.shape == (*batch, n)
    for scalar in (d.entropy(), d.perplexity(), d.log_partition(), d.k):
        assert scalar.shape == batch
    assert d.covariance_matrix.shape == (*batch, n, n)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(cls: type[KSubset], dtype: torch.dtype) -> None:
    d = distribution(cls, "k per row", dtype)
    for vector in (d.sample(), d.mean, d.variance, d.stddev, d.mode, d.probs, d.covariance_matrix):
        assert vector.dtype == dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for scalar in (d.entropy(), d.log_prob(d.mode), d.log_partition(), kl_divergence(d, d)):
        assert scalar.dtype == wide
    assert d.k.dtype == torch.int64
    # A sample may be of another type than the logits, such as a data set's.
    for other in (torch.bool, torch.uint8, torch.int64, torch.float64):
        torch.testing.assert_close(d.log_prob(d.mode.to(other)), d.log_prob(d.mode))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", PARAMETERS)
def test_samples_are_in_the_support(cls: type[KSubset], name: str) -> None:
    d = distribution(cls, name)
    z = d.sample((20,))
    inside = d.support.check(z)
    assert inside.shape == (20, *d.batch_shape)
    assert inside.all()
    if not z.numel():
        return
    outside = [1 - z, 2 * z, 0.5 * z, z - 1, z * torch.nan, z.roll(1, 0) + z]
    for value in outside:
        expected = ((value == 0) | (value == 1)).all(-1) & ((value == 1).sum(-1) == d.k)
        assert torch.equal(d.support.check(value), expected)
    assert not d.support.check(z * torch.nan).any() or name == "none"


def test_the_support_is_known_without_an_object() -> None:
    for cls in CLASSES:
        assert constraints.is_dependent(cls.support)
        assert cls.support.is_discrete
        assert cls.support.event_dim == 1
        support = distribution(cls, "batch").support
        assert not constraints.is_dependent(support)
        assert support.is_discrete
        assert support.event_dim == 1
    # As a distribution of distributions asks for it.
    several = Independent(distribution(KSubset, "batch"), 1).support
    assert several.is_discrete
    assert several.event_dim == 2


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_have_constraints(cls: type[KSubset]) -> None:
    d = distribution(cls, "k per row")
    for name, constraint in cls.arg_constraints.items():
        assert constraint.check(getattr(d, name)).all()
    bad: dict[str, list[tuple[Any, ...]]] = {
        "logits": [(torch.full((5,), torch.nan),)],
        "probs": [(torch.full((5,), value),) for value in (-0.5, 1.5, torch.nan)],
        "k": [(-1,), (6,), (torch.tensor([2, -1]),), (torch.tensor([2, 6]),)],
    }
    assert bad.keys() == cls.arg_constraints.keys()
    for name, values in bad.items():
        for (value,) in values:
            arguments = {"k": 2, ("probs" if name == "probs" else "logits"): torch.zeros(2, 5)}
            with pytest.raises(ValueError, match=f"{name} must"):
                cls(**(arguments | {name: value}), validate_args=True)
    assert not cls.arg_constraints["k"].check(torch.tensor([-1, 2])).all()


def test_logits_may_be_fitted_from_real_numbers() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    for registry in (transform_to, biject_to):
        transform = registry(KSubset.arg_constraints["logits"])
        assert torch.equal(transform(x), x)
        assert torch.equal(transform.inv(x), x)
        assert transform.log_abs_det_jacobian(x, x).tolist() == [0, 0, 0]
        KSubset(2, logits=transform(x)).entropy().sum().backward()
        probs = registry(KSubset.arg_constraints["probs"])(x)
        torch.testing.assert_close(KSubset(2, probs=probs).logits, x)


@pytest.mark.parametrize("cls", CLASSES)
def test_validation_can_be_switched(cls: type[KSubset]) -> None:
    good, bad = torch.tensor([1.0, 1, 0, 0, 0]), torch.tensor([1.0, 1, 1, 0, 0])
    on, off = (distribution(cls, "batch", validate_args=value) for value in (True, False))
    torch.testing.assert_close(on.log_prob(good), off.log_prob(good))
    for value, message in ((bad, "within the support"), (torch.zeros(4), "must match event_shape")):
        with pytest.raises(ValueError, match=message):
            on.log_prob(value)
    with pytest.raises(ValueError, match="not broadcastable"):
        on.log_prob(good.expand(2, 5))
    assert (off.log_prob(bad) == -INF).all()
    with pytest.raises(ValueError, match="value must have shape"):  # that is no check of values
        off.log_prob(torch.zeros(4))
    before = Distribution._validate_args
    try:
        for default in (True, False):
            Distribution.set_default_validate_args(default)
            assert distribution(cls, "batch")._validate_args is default
            assert distribution(cls, "batch").expand((2, 3))._validate_args is default
    finally:
        Distribution.set_default_validate_args(before)


@pytest.mark.parametrize("cls", [*CLASSES, Subclass])
@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "empty batch"])
def test_expand(cls: type[KSubset], name: str) -> None:
    d = distribution(cls, name)
    for sizes in ((), (2,), (4, 2)):
        shape = (*sizes, *d.batch_shape)
        for wide in (d.expand(shape), d.expand(torch.Size(shape)).expand(shape)):
            assert type(wide) is cls
            assert (wide.batch_shape, wide.event_shape) == (shape, d.event_shape)
            assert wide.sample((6,)).shape == (6, *shape, *d.event_shape)
            assert wide.support.check(wide.sample()).all()
            for query in ("mean", "variance", "mode", "logits", "probs", "k"):
                value = getattr(d, query)
                assert torch.equal(getattr(wide, query), value.expand((*sizes, *value.shape)))
            z = d.sample((6,))
            apart = z.reshape(6, *(1,) * len(sizes), *z.shape[1:])
            torch.testing.assert_close(wide.log_prob(apart)[:, *(0,) * len(sizes)], d.log_prob(z))
            torch.testing.assert_close(wide.entropy(), d.entropy().expand(shape))
            assert (kl_divergence(wide, d) <= 1e-6).all()
    same = d.expand((7, *(-1,) * len(d.batch_shape)))
    assert same.batch_shape == (7, *d.batch_shape)
    assert d.expand((3, 1, *d.batch_shape)).expand((3, 2, *d.batch_shape)).batch_shape[:2] == (3, 2)
    if d.batch_shape:
        with pytest.raises(RuntimeError):
            d.expand((*d.batch_shape[:-1], 9))


def test_expand_of_a_subclass_that_is_made_otherwise() -> None:
    """torch's rule: who has an __init__ has an expand."""

    class Pairs(KSubset):
        def __init__(self, logits: Tensor) -> None:
            super().__init__(2, logits=logits)

    with pytest.raises(NotImplementedError, match=r"must also define a custom \.expand"):
        Pairs(torch.zeros(3)).expand((2,))


def test_repr() -> None:
    assert repr(KSubset(2, logits=torch.zeros(3, 5))) == "KSubset(k: 2, logits: (3, 5))"
    d = SimpleKSubset(torch.tensor([1, 2, 3]), logits=torch.zeros(5))
    assert repr(d) == "SimpleKSubset(k: (3,), logits: (3, 5))"
    assert repr(Subclass(1, probs=torch.ones(5) / 2)) == "Subclass(k: 1, logits: (5,))"


@pytest.mark.parametrize("cls", [*CLASSES, Subclass])
@pytest.mark.parametrize("name", PARAMETERS)
def test_copies_and_pickles(cls: type[KSubset], name: str) -> None:
    d = distribution(cls, name, validate_args=False)
    for twin in (copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert type(twin) is cls
        assert not twin._validate_args
        assert repr(twin) == repr(d)
        for query in ("mean", "logits", "k", "mode"):
            assert torch.equal(getattr(twin, query), getattr(d, query))
        assert twin.expand((2, *d.batch_shape)).sample().shape == (
            2,
            *d.batch_shape,
            *d.event_shape,
        )


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", ["scalar", "batch", "two axes", "none", "all", "tensor of one k"])
def test_enumeration(cls: type[KSubset], name: str) -> None:
    d = distribution(cls, name, torch.float64)
    assert d.has_enumerate_support
    z, narrow = d.enumerate_support(), d.enumerate_support(expand=False)
    assert z.shape == (len(z), *d.batch_shape, 5)
    assert narrow.shape == (len(z), *(1,) * len(d.batch_shape), 5)
    assert torch.equal(narrow.expand_as(z), z)
    assert d.support.check(z).all()
    assert len({tuple(row.tolist()) for row in narrow.reshape(-1, 5)}) == len(z)
    log_prob = d.log_prob(z)
    torch.testing.assert_close(d.log_prob(narrow), log_prob)
    weight = log_prob.exp().unsqueeze(-1)
    torch.testing.assert_close(weight.sum(0).squeeze(-1), torch.ones(d.batch_shape).double())
    torch.testing.assert_close((weight * z).sum(0), d.mean)
    torch.testing.assert_close((weight * (z - d.mean) ** 2).sum(0), d.variance)


def within(found: Tensor, samples: Tensor, bound: float = 5) -> bool:
    """Whether a value is the mean of what samples (m, ...) are of, by its standard error."""
    error = samples.std(0) / len(samples) ** 0.5
    return bool(((samples.mean(0) - found).abs() <= bound * error + 1e-12).all())


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", ["scalar", "k per row", "batch of k"])
def test_moments_entropy_and_divergence_by_monte_carlo(cls: type[KSubset], name: str) -> None:
    p = distribution(cls, name, torch.float64)
    q = cls(p.k, logits=p.logits.roll(1, -1) / 2)
    z = p.sample((20_000,))
    log_p = p.log_prob(z)
    assert within(p.mean, z)
    assert within(p.variance, (z - p.mean) ** 2)
    assert within(p.entropy(), -log_p)
    assert within(kl_divergence(p, q), log_p - q.log_prob(z))
    if name == "scalar":  # and so would not any number be
        assert not within(p.mean + 0.05, z)
        assert not within(p.entropy() + 0.05, -log_p)
        assert not within(kl_divergence(p, q) + 0.05, log_p - q.log_prob(z))


@pytest.mark.parametrize("cls", CLASSES)
def test_gradient_of_log_prob(cls: type[KSubset]) -> None:
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    z = KSubset(2, logits=logits).sample((4,))
    torch.autograd.gradcheck(lambda x: cls(2, logits=x).log_prob(z), logits)
    probs = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: cls(2, probs=x).log_prob(z), probs)
    torch.autograd.gradcheck(lambda x: cls.from_weights(2, x).log_prob(z), probs)
    torch.autograd.gradcheck(lambda x: cls(2, logits=x).entropy(), logits)


def test_reparametrisation() -> None:
    logits = torch.zeros(3, 5, requires_grad=True)
    for cls in CLASSES:
        d = cls(2, logits=logits)
        assert d.has_rsample is (cls is SimpleKSubset)
        assert not d.sample().requires_grad
    assert SimpleKSubset(2, logits=logits).rsample().requires_grad
    with pytest.raises(NotImplementedError, match="SimpleKSubset"):
        KSubset(2, logits=logits).rsample((3,))


@pytest.mark.parametrize("cls", CLASSES)
def test_independent(cls: type[KSubset]) -> None:
    base = distribution(cls, "two axes")
    d = Independent(base, 1)
    assert (d.batch_shape, d.event_shape) == ((2,), (3, 5))
    assert d.has_rsample is cls.has_rsample
    z = d.sample((4,))
    assert z.shape == (4, 2, 3, 5)
    assert d.support.check(z).shape == (4, 2)
    torch.testing.assert_close(d.log_prob(z), base.log_prob(z).sum(-1))
    torch.testing.assert_close(d.entropy(), base.entropy().sum(-1))
    assert torch.equal(d.mean, base.mean)
    assert torch.equal(d.variance, base.variance)
    assert d.expand((6, 2)).sample().shape == (6, 2, 3, 5)
    other = Independent(cls(2, logits=torch.zeros(2, 3, 5)), 1)
    expected = kl_divergence(base, other.base_dist).sum(-1)
    torch.testing.assert_close(kl_divergence(d, other), expected)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", ["batch", "two axes"])
def test_mixture(cls: type[KSubset], name: str) -> None:
    parts = distribution(cls, name, torch.float64)
    mixing = Categorical(logits=torch.randn(parts.batch_shape, dtype=torch.float64))
    d = MixtureSameFamily(mixing, parts)
    assert (d.batch_shape, d.event_shape) == (parts.batch_shape[:-1], (5,))
    z = distribution(cls, "scalar", torch.float64).enumerate_support()
    z = z.reshape(-1, *(1,) * len(d.batch_shape), 5).expand(-1, *d.batch_shape, 5)
    weights = mixing.probs
    expected = (weights * parts.log_prob(z.unsqueeze(-2)).exp()).sum(-1)
    probability = d.log_prob(z).exp()
    torch.testing.assert_close(probability, expected)
    torch.testing.assert_close(probability.sum(0), torch.ones(d.batch_shape).double())
    mean = (probability.unsqueeze(-1) * z).sum(0)
    torch.testing.assert_close(d.mean, mean)
    torch.testing.assert_close(d.variance, mean * (1 - mean))
    drawn = d.sample((20_000,))
    assert within(mean, drawn)
    assert d.log_prob(drawn).shape == drawn.shape[:-1]


def test_divergences_are_found_for_subclasses() -> None:
    class Other(KSubset):
        pass

    class Special(KSubset):
        pass

    @register_kl(Special, KSubset)  # type: ignore[untyped-decorator]
    def _(p: Special, q: KSubset) -> Tensor:
        return torch.full(p.batch_shape, 7.0)

    p, q = torch.randn(3, 5), torch.randn(5)
    expected = ksubset.kl_divergence(p, q, 2)
    for first in (KSubset, SimpleKSubset, Subclass, Other):
        for second in (KSubset, SimpleKSubset, Subclass, Other):
            found = kl_divergence(first(2, logits=p), second(2, logits=q))
            torch.testing.assert_close(found, expected)
    assert (kl_divergence(Special(2, logits=p), KSubset(2, logits=q)) == 7).all()
    with pytest.raises(NotImplementedError):
        kl_divergence(KSubset(2, logits=p), Categorical(logits=q))


def test_sizes_reach_the_sampler_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """An int, which goes the short way, stays one; the property is a tensor of the batch shape."""
    given: list[Any] = []
    real = ksubset.functional.simple

    def simple(logits: Tensor, k: Any, *args: Any, **options: Any) -> Tensor:
        given.append(k)
        return real(logits, k, *args, **options)

    monkeypatch.setattr(ksubset.functional.sampling, "simple", simple)
    monkeypatch.setattr(ksubset.functional, "simple", simple)
    for k in (2, torch.tensor([1, 2, 3])):
        d = SimpleKSubset(k, logits=torch.zeros(3, 5))
        for e in (d, d.expand((4, 3)), copy.deepcopy(d)):
            e.sample()
            e.rsample()
            assert e.k.shape == e.batch_shape
            assert [type(size) for size in given] == [type(k)] * 2
            given.clear()
