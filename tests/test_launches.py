"""What calls would launch on a GPU, counted on a CPU.

On a GPU, an eager call of a few small kernels takes as long as its launches. Their number does not
depend on the machine, so that a test may ask for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.profiler import profile, record_function

import ksubset
from ksubset import kernels
from ksubset.estimators import ReinMax
from ksubset.functional import _eager, sampling
from ksubset.kernels import cpu, log_outcome, random
from ksubset.kernels.largest import k_largest

_ASIDE = "what the stub does itself"

# Operations of torch that only look at memory, ask for it or move a number to the host.
_NO_LAUNCH = {
    f"aten::{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_",
        "view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "expand", "expand_as",
        "unsqueeze", "squeeze", "select", "slice", "split", "chunk", "t", "transpose", "permute",
        "movedim", "flatten", "unflatten", "view_as", "detach", "detach_", "alias", "narrow",
        "item", "_local_scalar_dense", "is_nonzero", "set_", "result_type", "to", "lift_fresh",
        "broadcast_tensors", "unbind", "numel", "size", "contiguous", "clone",
    )
}  # fmt: skip


_TORCH: dict[str, Any] = {  # what CPUs have no kernels for
    "log_outcome": lambda tilted, k, log_mass, z: log_outcome(tilted, log_mass, k, z, "dp"),
    "mode": k_largest,
}


class Stub:
    """Kernels of CPUs under the interface of those of CUDA: k may be an int, nothing is prepared,
    and every call is a launch."""

    def __init__(self, launched: list[str]) -> None:
        self._launched = launched

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "prepare":
            raise AttributeError(name)
        kernel = _TORCH.get(name) or getattr(cpu, name)

        def launch(rows: Tensor, k: Tensor | int, *rest: Any) -> Any:
            if name == "log_outcome":  # masses come before k
                k, rest = rest[0], (k, *rest[1:])
            self._launched.append(name)
            with record_function(_ASIDE):
                return kernel(rows, kernels.counts(rows, k) if isinstance(k, int) else k, *rest)

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Counter[str]]:
    """A function that runs a call twice, as if CPU tensors were on a GPU, and counts what the
    second run launches: the library's own kernels and operations of torch, by name."""
    launched: list[str] = []
    stub = Stub(launched)

    def stub_for(logits: Tensor, method: str) -> Any:
        return stub if method == "auto" else None

    monkeypatch.setattr(kernels, "device_kernels", stub_for)

    def following(*arguments: Any) -> Tensor:  # on a GPU all seeds are one call's
        with record_function(_ASIDE):
            return random.following(*arguments)

    monkeypatch.setattr(sampling, "following", following)
    monkeypatch.setattr(_eager, "_PLANS", {})

    def count(call: Callable[[], Any]) -> Counter[str]:
        call()
        launched.clear()
        with profile(use_kineto=False, record_shapes=True) as record:
            call()
        return Counter(launched) + _operations(record.function_events)

    return count


def _operations(events: Any) -> Counter[str]:
    """Operations that call no other one, besides those that launch nothing."""
    found: Counter[str] = Counter()
    for event in events:
        above = event
        while above is not None and above.name != _ASIDE:
            above = above.cpu_parent
        if above is not None or not event.name.startswith("aten::") or event.name in _NO_LAUNCH:
            continue
        if event.name == "aten::copy_" and not any(event.input_shapes):
            continue  # a number that becomes an argument of a launch
        children = [e for e in event.cpu_children if e.name.startswith("aten::")]
        if all(child.name in _NO_LAUNCH for child in children):
            found[event.name.removeprefix("aten::")] += 1
    return found


Count = Callable[[Callable[[], Any]], Counter[str]]


class Problem:
    """Rows of a length that no other test has, and what is asked of them."""

    def __init__(self) -> None:
        self.logits, self.weights = torch.randn(2, 6, 37)
        self.mask = torch.rand(6, 37) < 0.9
        self.sizes = torch.tensor([1, 2, 3, 4, 5, 6])
        self.chosen = (torch.arange(37) < 3).float().expand(6, 37)

    def both(
        self,
        function: Callable[..., Tensor],
        *arguments: Any,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> Callable[[], Any]:
        """Forward and backward."""
        logits = self.logits.to(dtype).requires_grad_()
        weights = self.weights.to(dtype)
        of_scalars = weights[:, 0].contiguous()

        def call() -> Any:
            value = function(logits, *arguments, **options)
            return torch.autograd.grad(value, logits, weights if value.dim() == 2 else of_scalars)

        return call


@pytest.mark.parametrize("name", ["simple", "swap"])
def test_samples(name: str, launches: Count) -> None:
    """Random numbers, a sample, a product, and what makes float32 rows of the arguments."""
    p, function = Problem(), getattr(ksubset, name)

    def count(k: Any, dtype: torch.dtype = torch.float32, **options: Any) -> Counter[str]:
        return launches(p.both(function, k, dtype=dtype, validate_args=False, **options))

    product = "covariance_product" if name == "simple" else "swap_product"
    least = Counter({"random_": 1, "sample": 1, product: 1})
    assert count(3) == least
    assert count(p.sizes) == least
    masked = least + Counter({"where": 1, "scalar_tensor": 1})
    assert count(3, mask=p.mask) == masked
    assert count(p.sizes, mask=p.mask[:1]) == masked
    # There and back, both ways; swap reads its samples again.
    copies = 4 if name == "simple" else 5
    assert count(3, torch.bfloat16) == least + Counter({"copy_": copies})


def test_scalars(launches: Count) -> None:
    """A pass of inference; and backward, what the formula of the derivative asks for."""
    p = Problem()
    forward = Counter({"infer": 1})
    found = launches(p.both(ksubset.entropy, 3, validate_args=False))
    assert found == forward + Counter({"covariance_product": 1, "neg": 1, "mul": 1})
    z = ksubset.sample(p.logits, 3)
    found = launches(p.both(ksubset.log_prob, 3, z, validate_args=False))
    assert found == forward + Counter({"log_outcome": 1, "sub": 1, "mul": 1})


def test_reinmax(launches: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that it cannot do without, once each, and the second-order term."""
    monkeypatch.setattr(_eager, "check_values", lambda checked: None)  # not done on a GPU
    found = launches(Problem().both(ReinMax().sample, 3))
    kernels_used = Counter({"sample": 1, "covariance_product": 1, "infer": 1})
    assert kernels_used <= found
    assert found.total() <= 13


def test_mode(launches: Count) -> None:
    p = Problem()
    for k in (3, p.sizes):
        found = launches(lambda: ksubset.mode(p.logits, k, validate_args=False))  # noqa: B023
        assert found - Counter({"fill_": 1}) == Counter({"mode": 1})


CALLS: dict[str, Callable[[Tensor, Problem], Tensor]] = {
    "simple": lambda x, p: ksubset.simple(x, 3),
    "swap": lambda x, p: ksubset.swap(x, 3),
    "mask": lambda x, p: ksubset.simple(x, 3, mask=p.mask),
    "sizes": lambda x, p: ksubset.simple(x, p.sizes),
    "bfloat16": lambda x, p: ksubset.simple(x, 3),
    "entropy": lambda x, p: ksubset.entropy(x, 3, validate_args=False),
    "log_prob": lambda x, p: ksubset.log_prob(x, 3, p.chosen, validate_args=False),
    "ReinMax": lambda x, p: ReinMax().sample(x, 3),
    "mode": lambda x, p: ksubset.mode(x, 3, validate_args=False) + x,
}


@pytest.mark.parametrize("name", CALLS)
def test_compiled_code_launches_no_more_than_eager(
    name: str, launches: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kernels, as often, and no more of torch's operators around them, before a compiler
    makes one of several. But for a mask, which eager code need not differentiate."""
    p, dtype = Problem(), torch.bfloat16 if name == "bfloat16" else torch.float32
    monkeypatch.setattr(_eager, "check_values", lambda checked: None)  # not done on a GPU

    def call(x: Tensor) -> Tensor:
        return CALLS[name](x, p)

    eager = launches(p.both(call, dtype=dtype))
    torch._dynamo.reset()
    found = launches(p.both(torch.compile(call, fullgraph=True, backend="aot_eager"), dtype=dtype))
    of_seeds = Counter({"arange": 1, "add": 1})  # on a CPU they follow one random number
    of_mask = Counter({"where": 1, "scalar_tensor": 1})
    more = found - eager
    assert more <= of_seeds + of_mask if name == "mask" else more <= of_seeds
    assert eager.keys() <= found.keys()
