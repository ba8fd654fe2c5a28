"""Compiled kernels of several sizes on CPUs, against the nodes."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, TOLERANCES
from test_sizes_contract import close

import ksubset
from ksubset.kernels import sizes as nodes
from ksubset.kernels.device import are_compiled

compiled = pytest.importorskip("ksubset.kernels.cpu.sizes")
pytestmark = pytest.mark.skipif(
    not are_compiled(torch.zeros(1, 3), "auto"), reason="no compiled kernels"
)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("n", "low", "high"), [(2, 0, 1), (9, 3, 9), (20, 0, 5), (64, 6, 24)])
def test_tables_and_nodes_agree(n: int, low: int, high: int, dtype: torch.dtype) -> None:
    tolerance = TOLERANCES[dtype]
    for scale in (0.1, 2.0, 8.0):
        logits = scale * torch.randn(37, n, dtype=dtype)  # not a whole number of lanes
        weights = torch.zeros(37, high - low + 1, dtype=torch.float64)
        weights[::3, -1] = -INF  # rows with bounds of their own
        if high - low < 2:
            weights[::3, -1] = 0
        found = compiled.infer(logits, weights, low)
        assert found is not None
        wide = logits.double()
        truth = nodes.infer(wide, weights, low, True)
        for one, other in zip(found[:3], truth[:3], strict=True):
            close(one, other, tolerance)
        v, f = torch.randn(37, n, dtype=dtype) + 3, torch.randn(37, high - low + 1, dtype=dtype)
        items, sizes = compiled.covariance_product(*found[3:6], low, v, f)
        law = nodes.Sizes(*truth[3:6], low)
        expected = nodes.covariance_product(law, v.double(), f.double())
        close(items, expected[0], tolerance, 4.0)
        close(sizes, expected[1], tolerance, 4.0)


def test_rows_out_of_the_ordinary_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word: the nodes take them."""
    logits = torch.randn(5, 12)
    weights = torch.zeros(5, 3).double()
    assert compiled.infer(logits, weights, 2) is not None
    for value in (INF, -INF, torch.nan, 1e6):
        bad = logits.clone()
        bad[3, 4] = value
        assert compiled.infer(bad, weights, 2) is None
    called = []
    right = compiled.infer

    def counted(*arguments: object) -> object:
        called.append(arguments)
        return right(*arguments)

    monkeypatch.setattr(compiled, "infer", counted)
    one = ksubset.marginals(logits, ksubset.between(2, 4))
    assert len(called) == 1
    other = ksubset.marginals(logits, ksubset.between(2, 4), method="spectral")
    assert len(called) == 1
    torch.testing.assert_close(one, other)


def test_a_row_does_not_depend_on_its_batch() -> None:
    logits = torch.randn(40, 30)
    whole = ksubset.marginals(logits, ksubset.between(3, 6))
    for row in (0, 7, 39):
        alone = ksubset.marginals(logits[row], ksubset.between(3, 6))
        torch.testing.assert_close(alone, whole[row], rtol=0, atol=1e-7)
