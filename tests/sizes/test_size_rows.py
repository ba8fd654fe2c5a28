"""Compiled kernels of several sizes of long rows, against the nodes in operations of torch."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, TOLERANCES
from test_sizes_contract import close
from torch import Tensor

import ksubset
from ksubset.kernels import sizes as nodes
from ksubset.kernels.device import are_compiled

compiled = pytest.importorskip("ksubset.kernels.cpu.size_rows")
pytestmark = pytest.mark.skipif(
    not are_compiled(torch.zeros(1, 3), "auto"), reason="no compiled kernels"
)
DTYPES = (torch.float64, torch.float32)


def problems(n: int, low: int, high: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor, bool]]:
    """Logits, log-weights, and whether these are flat."""
    found = []
    for scale in (0.3, 1.0, 5.0):
        logits = (scale * torch.randn(7, n)).to(dtype)
        logits[1] -= 3
        logits[2] += 3
        logits[3, 5], logits[4, 6] = -INF, INF
        flat = torch.zeros(high - low + 1, dtype=torch.float64)
        j = torch.arange(high - low + 1.0, dtype=torch.float64)
        bell = -0.02 * (j - 0.3 * (high - low)) ** 2
        steep = -3.0 * (j - 0.5 * (high - low)).abs()
        for weights in (flat, bell, steep):
            own = weights.expand(7, -1)
            if low == 0 or high == n:
                own = own.clone()
                own[3, -1], own[4, 0] = -INF, -INF
            found.append((logits, own, weights is flat))
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("n", "low", "high"),
    [
        (65, 0, 65),
        (100, 47, 53),
        (300, 0, 150),
        (1000, 10, 30),
        (1000, 980, 1000),
        (2100, 700, 2100),
    ],
)
def test_rows_and_torch_agree(n: int, low: int, high: int, dtype: torch.dtype) -> None:
    tolerance = TOLERANCES[dtype]
    for logits, weights, flat in problems(n, low, high, dtype):
        found, left = compiled.infer(logits, weights, low, flat)
        assert left is None
        truth = nodes.infer(logits.double(), weights, low, flat)
        for one, other in zip(found[:3], truth[:3], strict=True):
            close(one, other, tolerance)
        v, f = torch.randn(7, n, dtype=dtype) + 3, torch.randn(7, high - low + 1, dtype=dtype)
        law = nodes.Sizes(*truth[3:6], low)
        items, sizes, left = compiled.covariance_product(*found[3:6], low, v, f)
        assert left is None
        expected = nodes.covariance_product(law, v.double(), f.double())
        close(items, expected[0], tolerance, 4.0)
        close(sizes, expected[1], tolerance, 4.0)
        items, _, left = compiled.covariance_product(*found[3:6], low, v, None)
        assert left is None
        close(items, nodes.items_product(law, v.double()), tolerance, 4.0)


def test_a_slightly_wrong_weight_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = compiled._given

    def wrong(log_weights: Tensor) -> Tensor:
        return right(log_weights) + 1e-9 * torch.arange(log_weights.shape[-1])

    monkeypatch.setattr(compiled, "_given", wrong)
    monkeypatch.setattr(nodes, "are_compiled", lambda *_: False)
    logits, weights, _ = problems(300, 0, 150, torch.float64)[1]
    found, _ = compiled.infer(logits, weights, 0, False)
    with pytest.raises(AssertionError, match="off by"):
        close(found[1], nodes.infer(logits, weights, 0, False)[1], 1e-12)


def test_rows_without_a_size_are_left() -> None:
    """And NaN. Torch says what becomes of them."""
    logits = torch.randn(5, 100)
    weights = torch.zeros(5, 40).double()
    right, left = compiled.infer(logits, weights, 20, True)
    assert left is None
    logits[1, 3] = torch.nan
    weights[3] = -INF
    found, left = compiled.infer(logits, weights, 20, True)
    assert left.tolist() == [1, 3]
    for one, other in zip(found, right, strict=True):
        assert (one[[0, 2, 4]] == other[[0, 2, 4]]).all()
    found = nodes.infer(logits, weights, 20, True, "auto")
    assert found[1][[1, 3]].isnan().all()
    law = nodes.Sizes(*found[3:6], 20)
    assert nodes.items_product(law, logits, "auto")[[1, 3]].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_derivatives_are_those_of_torch(dtype: torch.dtype) -> None:
    logits = 2 * torch.randn(4, 80, dtype=dtype)
    logits[1, 3], logits[2, 4] = INF, -INF
    v = torch.randn(4, 80, dtype=dtype)
    for sizes in (ksubset.between(20, 60), ksubset.at_least(30), ksubset.between(0, 80)):
        results = []
        for method in ("auto", "spectral"):
            theta = logits.clone().requires_grad_()
            product = ksubset.covariance_product(theta, sizes, v, method=method)
            mu = ksubset.marginals(theta, sizes, method=method)
            (first,) = torch.autograd.grad((mu * v).sum(), theta, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), theta, retain_graph=True)
            (third,) = torch.autograd.grad(product.square().sum(), theta)
            results.append((product, first, second, third))
        for found, truth in zip(*results, strict=True):
            close(found, truth.double(), TOLERANCES[dtype], 8.0)


def test_wide_and_empty_batches() -> None:
    sizes = ksubset.between(30, 60)
    logits = torch.randn(80, 6).T
    assert not logits.is_contiguous()
    torch.testing.assert_close(
        ksubset.marginals(logits, sizes), ksubset.marginals(logits.contiguous(), sizes)
    )
    assert ksubset.marginals(torch.empty(0, 80), sizes).shape == (0, 80)
    assert ksubset.covariance_product(torch.empty(0, 80), sizes, torch.ones(80)).shape == (0, 80)
    huge = 1e4 * torch.randn(3, 200).double()
    close(
        ksubset.marginals(huge, ksubset.between(50, 120)),
        ksubset.marginals(huge, ksubset.between(50, 120), method="spectral"),
        1e-12,
    )
