"""The baselines of the benchmark are what their authors mean, and are lean: they get a fair run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import baselines
import off_path
from contest import Problem, Shape

LOGITS = torch.randn(5, 12)


def test_hard_samples_have_k_ones() -> None:
    for sampler in (baselines.straight_through_gumbel_top_k, baselines.imle):
        z = sampler(LOGITS, 4)
        assert z.sum(-1).allclose(torch.tensor(4.0))
        assert ((z - z.round()).abs() < 1e-5).all()
    relaxed = baselines.softsub(LOGITS, 4)
    assert relaxed.sum(-1).allclose(torch.tensor(4.0))


def test_straight_through_is_what_it_is_said_to_be() -> None:
    """Frequencies of sampling without replacement, and the softmax's derivative at the keys."""
    logits = LOGITS[:1, :4].expand(50_000, 4).clone().requires_grad_()
    z = baselines.straight_through_gumbel_top_k(logits, 2)
    p = LOGITS[0, :4].softmax(-1)
    twice = p + sum(p[i] * p / (1 - p[i]) * (torch.arange(4) != i) for i in range(4))
    torch.testing.assert_close(z.mean(0), twice, atol=0.01, rtol=0)
    assert z.grad_fn is not None
    (keys,) = z.grad_fn.saved_tensors
    again = keys.clone().requires_grad_()
    weights = torch.randn(50_000, 4)
    expected = torch.autograd.grad(2 * again.softmax(-1), again, weights)
    torch.testing.assert_close(torch.autograd.grad(z, logits, weights), expected)


class Operators(TorchDispatchMode):
    """Names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.called.append(func.overloadpacket.__name__)
        if func.overloadpacket.__name__ == "topk":
            assert args[-1] is False, "what is chosen need not be sorted"
        return func(*args, **(kwargs or {}))


def test_straight_through_computes_nothing_twice() -> None:
    """No softmax forward, which only the gradient needs; one topk, without sorting."""
    logits = LOGITS.clone().requires_grad_()
    with Operators() as forward:
        z = baselines.straight_through_gumbel_top_k(logits, 4)
    assert forward.called.count("topk") == 1
    assert "_softmax" not in forward.called
    assert len(forward.called) <= 9
    with Operators() as backward:
        torch.autograd.grad(z, logits, torch.ones_like(z))
    assert {"_softmax", "_softmax_backward_data"} <= set(backward.called)
    assert len([name for name in backward.called if name != "detach"]) <= 4


def test_imle_divides_by_its_strength() -> None:
    """Published code without the 1/lambda has gradients of -1, 0 and 1."""
    logits = LOGITS.clone().requires_grad_()
    z = baselines.imle(logits, 4, strength=10.0)
    (gradient,) = torch.autograd.grad(z, logits, 5 * torch.randn(5, 12))
    values = set(gradient.unique().tolist())
    assert values <= {-0.1, 0.0, 0.1} | {float(torch.tensor(x)) for x in (-0.1, 0.1)}
    assert len(values) == 3


def test_the_log_space_dp_has_the_marginals() -> None:
    import ksubset

    logits = LOGITS.clone().requires_grad_()
    torch.testing.assert_close(
        baselines.log_space_dp(logits, 4), ksubset.marginals(logits, 4), rtol=1e-4, atol=1e-5
    )


def test_calls_off_the_main_path_run() -> None:
    """All but the compiled one, at a small size, with every time beside its reference's."""
    rows = off_path.calls(Problem.draw(Shape(6, 20, 3), "cpu", 0), compiled=False)
    for row in rows.values():
        found = row.call()
        assert all(x.isfinite().all() for x in (found if isinstance(found, tuple) else [found]))
    found = off_path.measure({name: rows[name] for name in (off_path.PLAIN, "mask")}, 1, 1.0, "cpu")
    assert found[off_path.PLAIN].ratio == 1
    assert "≤ 1.3" in off_path.verdict(rows["mask"], found["mask"])
