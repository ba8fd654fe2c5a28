"""What a distribution keeps of its results: worked out once, and never out of date or in reach."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import ksubset
from ksubset import KSubset, kernels


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every pass of inference."""
    found: list[str] = []
    infer = kernels.infer

    def counted(logits: Tensor, k: Tensor, method: str) -> object:
        found.append(method)
        return infer(logits, k, method)

    monkeypatch.setattr(kernels, "infer", counted)
    return found


def made(**options: object) -> tuple[Tensor, KSubset]:
    """Of logits that require a gradient and are no leaf, like a network's."""
    leaf = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    return leaf, KSubset(2, logits=leaf * 1.5, **options)  # type: ignore[arg-type]


QUERIES: dict[str, Callable[[KSubset], Tensor]] = {
    "mean": lambda d: d.mean,
    "variance": lambda d: d.variance,
    "log_partition": lambda d: d.log_partition(),
    "log_prob": lambda d: d.log_prob(d.mode),
    "log_prob_indices": lambda d: d.log_prob_indices(torch.tensor([4, 1])),
}


@pytest.mark.parametrize("k", [2, torch.tensor([1, 2, 3])], ids=str)
def test_one_pass_of_inference_per_object(k: int | Tensor, passes: list[str]) -> None:
    d = KSubset(k, logits=torch.randn(3, 6))
    for name, query in QUERIES.items():
        if name != "log_prob_indices" or isinstance(k, int):
            query(d)
            query(d)
    assert len(passes) == 1
    other = KSubset(k, logits=d.logits)
    assert torch.equal(other.mean, d.mean)
    assert len(passes) == 2


@pytest.mark.parametrize("first", QUERIES)
@pytest.mark.parametrize("second", QUERIES)
def test_same_values_and_gradients_as_anew(first: str, second: str) -> None:
    leaf, d = made()
    fresh = KSubset(2, logits=leaf * 1.5)
    QUERIES[first](d).sum().backward(retain_graph=True)
    for _ in range(2):
        found, expected = QUERIES[second](d), QUERIES[second](fresh)
        assert torch.equal(found, expected)
        seed = torch.randn_like(found)
        (gradient,) = torch.autograd.grad(found, leaf, seed, retain_graph=True)
        (truth,) = torch.autograd.grad(expected, leaf, seed, retain_graph=True)
        torch.testing.assert_close(gradient, truth, rtol=1e-12, atol=1e-12)


def test_a_graph_freed_by_one_backward_pass_is_not_needed_by_the_next() -> None:
    """As when gradients of several parts of a batch are accumulated."""
    leaf = torch.randn(3, 6, requires_grad=True)
    for logits in (leaf, leaf.expand(2, 3, 6)):  # nothing else in the graph that could be freed
        d = KSubset(2, logits=logits)
        for query in QUERIES.values():
            query(d).sum().backward()
            query(d).sum().backward()


def test_second_derivatives() -> None:
    leaf, d = made()
    assert d.mean.shape == (3, 6)

    def second(query: Callable[[KSubset], Tensor], d: KSubset) -> Tensor:
        (first,) = torch.autograd.grad(query(d).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf, retain_graph=True)[0]

    fresh = KSubset(2, logits=leaf * 1.5)
    for name in ("log_partition", "log_prob", "log_prob_indices"):
        torch.testing.assert_close(second(QUERIES[name], d), second(QUERIES[name], fresh))


def test_without_gradients_first_and_with_them_later(passes: list[str]) -> None:
    leaf, d = made()
    with torch.no_grad():
        assert not d.mean.requires_grad
    assert d.mean.requires_grad
    with torch.inference_mode():
        assert not d.log_prob(d.mode).requires_grad
    assert len(passes) == 1
    leaf, d = made()
    with torch.inference_mode():  # kept from here on as well
        assert d.mean.is_inference()
    (gradient,) = torch.autograd.grad(d.mean[:, 0].sum(), leaf)
    assert len(passes) == 2
    torch.testing.assert_close(gradient, 1.5 * ksubset.covariance_matrix(1.5 * leaf, 2)[:, 0])


def test_tensors_of_inference_mode_are_followed() -> None:
    with torch.inference_mode():
        logits = torch.zeros(4)
        d = KSubset(2, logits=logits)
        assert d.mean.tolist() == [0.5] * 4
        logits[0] = torch.inf
        assert d.mean[0] == 1


def test_writes_to_logits_and_sizes_are_seen() -> None:
    logits, k = torch.randn(3, 6), torch.tensor([1, 2, 3])
    for d in (KSubset(k, logits=logits), KSubset(k, logits=logits).expand((2, 3))):
        for write in (
            lambda: logits[0].add_(torch.arange(6.0)),
            lambda: logits.copy_(torch.randn(3, 6)),
            lambda: k.add_(1),
            lambda: k.copy_(torch.tensor([1, 2, 3])),
        ):
            before = d.mean
            write()
            assert not torch.equal(d.mean, before)
            expected = ksubset.marginals(logits, k).expand_as(before)
            torch.testing.assert_close(d.mean, expected)
            torch.testing.assert_close(
                d.log_partition(), KSubset(k, logits=d.logits).log_partition()
            )
    square = torch.randn(4, 4)
    d = KSubset(2, logits=square)
    for logits in (square, square.T, torch.randn(4, 4)):  # the second is in the same memory
        d.logits = logits
        assert torch.equal(d.mean, ksubset.marginals(logits, 2))


OPTIMISERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.5, foreach=False),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.5, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, lr=0.5, fused=True),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("view", [lambda p: p, lambda p: p[1:], lambda p: p.expand(2, 7)])
def test_steps_of_optimisers_are_seen(optimiser: str, view: Callable[[Tensor], Tensor]) -> None:
    """A fused one does not count its writes."""
    parameter = torch.nn.Parameter(torch.randn(7))
    d = KSubset(2, logits=view(parameter))
    steps = OPTIMISERS[optimiser]([parameter])
    for _ in range(3):
        steps.zero_grad()
        d.log_prob(d.mode).sum().backward()
        steps.step()
        assert torch.equal(d.mean, ksubset.marginals(view(parameter), 2))


def _reach(result: Tensor) -> list[Tensor]:
    """A result, and what autograd shows of how it was made."""
    found, nodes = [result], [result.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            found += [t for t in getattr(node, "saved_tensors", ()) if t is not None]
            found += [
                value
                for name in dir(node)
                if name.startswith("_saved_") and isinstance(value := getattr(node, name), Tensor)
            ]
            nodes += [following for following, _ in node.next_functions]
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_no_result_can_be_written_to_through_another(name: str) -> None:
    """Not even in memory, behind autograd's back."""
    leaf, d = made()
    logits = d.logits.detach().clone()
    before = {other: query(d).detach().clone() for other, query in QUERIES.items()}
    held = {other: query(d) for other, query in QUERIES.items()}
    written = QUERIES[name](d)
    inputs = {t.untyped_storage().data_ptr() for t in (leaf, d.logits, d.k)}
    with torch.no_grad():
        for tensor in _reach(written):
            if tensor.untyped_storage().data_ptr() not in inputs and tensor.dtype != torch.bool:
                torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).add_(1)
    assert not torch.equal(written, before[name])
    assert torch.equal(d.logits, logits)
    for other, query in QUERIES.items():
        assert torch.equal(query(d), before[other])
        assert torch.equal(held[other], before[other])
    np.asarray(KSubset.mean.fget(d).detach())[:] = 7  # type: ignore[attr-defined]
    assert torch.equal(d.mean, before["mean"])


def test_copies_keep_nothing() -> None:
    logits = torch.randn(3, 6)
    d = KSubset(2, logits=logits)
    size = len(pickle.dumps(d))
    assert d.mean.shape == (3, 6)
    assert len(pickle.dumps(d)) == size
    logits.add_(torch.arange(6.0))  # what is kept is out of date; a copy's count of writes is 0
    for twin in (copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert torch.equal(twin.mean, ksubset.marginals(logits, 2))


def test_a_parameter_of_the_user_is_copied_with_the_distribution() -> None:
    parameter = torch.nn.Parameter(torch.randn(6))
    d = KSubset(2, logits=parameter)
    assert d.logits is parameter
    twin = copy.deepcopy(d)
    (gradient,) = torch.autograd.grad(twin.mean[0], twin.logits)
    torch.testing.assert_close(gradient, d.covariance_matrix[0])


class TestTransforms:
    """Nothing of a transform or a compiler is kept, and nothing kept is what they see."""

    def test_func(self) -> None:
        x = torch.randn(4, 6, dtype=torch.float64)
        d = KSubset(2, logits=x, validate_args=False)
        z = d.mode
        assert d.mean.shape == (4, 6)

        def inside(x: Tensor) -> Tensor:
            e = KSubset(2, logits=x, validate_args=False)
            return e.log_prob(ksubset.mode(x, 2)) + e.log_partition() + e.mean[..., 0]

        for row, expected in zip(torch.func.vmap(inside)(x), x, strict=True):
            torch.testing.assert_close(row, inside(expected))
        torch.testing.assert_close(
            torch.func.grad(lambda x: KSubset(2, logits=x, validate_args=False).mean[0, 0])(x)[0],
            d.covariance_matrix[0, 0],
        )
        values = torch.func.vmap(d.log_prob)(torch.stack([z, z]))
        torch.testing.assert_close(values, d.log_prob(z).expand(2, 4))
        escaped: list[KSubset] = []

        def leak(x: Tensor) -> Tensor:
            escaped.append(KSubset(2, logits=d.logits + 0 * x, validate_args=False))
            return (escaped[0].mean + d.mean).sum()

        torch.func.grad(leak)(x)
        torch.testing.assert_close(d.mean, ksubset.marginals(x, 2))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            e = KSubset(2, logits=dual)
            for _ in range(2):
                tangent = torch.autograd.forward_ad.unpack_dual(e.log_partition()).tangent
                torch.testing.assert_close(tangent, torch.full((4,), 2.0, dtype=torch.float64))
        assert torch.autograd.forward_ad._current_level < 0

    def test_compile(self) -> None:
        x = torch.randn(4, 6)
        d = KSubset(2, logits=x, validate_args=False)
        z = d.mode

        @torch.compile(backend="aot_eager", fullgraph=True)
        def compiled(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            e = KSubset(2, logits=x, validate_args=False)
            return e.log_prob(z) + e.log_partition() + d.log_prob(z), e.mean + d.mean

        first, second = compiled(x, z)
        torch.testing.assert_close(first, 2 * d.log_prob(z) + d.log_partition())
        torch.testing.assert_close(second, 2 * d.mean)
        torch.testing.assert_close(d.mean, ksubset.marginals(x, 2))
