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
        found, left = compiled.infer(logits, weights, low)
        assert left is None
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
    """Without a word: the nodes take them, and them only."""
    logits = torch.randn(5, 12)
    weights = torch.zeros(5, 3).double()
    right, left = compiled.infer(logits, weights, 2)
    assert left is None
    for value in (INF, -INF, torch.nan, 1e6):
        bad = logits.clone()
        bad[3, 4] = value
        assert compiled.infer(bad, weights, 2)[1].tolist() == [3]
        found = nodes.infer(bad, weights, 2, True, "auto")
        truth = nodes.infer(bad[3:4], weights[3:4], 2, True)
        for one, other, own in zip(found, right, truth, strict=True):
            assert (one[[0, 1, 2, 4]] == other[[0, 1, 2, 4]]).all()
            torch.testing.assert_close(one[3:4], own, equal_nan=True)
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


def _gradients(z: torch.Tensor, logits: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    (alone,) = torch.autograd.grad((z * v).sum(), logits, retain_graph=True)
    (first,) = torch.autograd.grad((z * v).sum(), logits, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), logits)
    return [first, alone, second]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("samples", [(), (3,)], ids=str)
def test_samples_have_the_gradient_of_the_marginals(
    samples: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Rows that the kernel of samples leaves among them."""
    logits = 2 * torch.randn(21, 11, dtype=dtype)
    logits[3, 2], logits[7, :4], logits[20, 5], logits[9, 1] = INF, -INF, 1e4, -1e4
    mask = torch.rand(21, 11) > 0.1
    sizes = ksubset.between(2, 4)
    v = torch.randn(*samples, 21, 11, dtype=dtype)
    for given in (None, mask):
        one, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        z = ksubset.simple(one, sizes, samples, mask=given)
        mu = ksubset.marginals(other, sizes, mask=given, method="spectral").expand(z.shape)
        assert ((z == 0) | (z == 1)).all()
        assert ((z.sum(-1) >= 2) & (z.sum(-1) <= 4)).all()
        assert (z[..., 3, 2] == 1).all() or given is not None
        for found, truth in zip(_gradients(z, one, v), _gradients(mu, other, v), strict=True):
            close(found, truth.double(), TOLERANCES[dtype], 8.0)


def test_a_sample_does_not_depend_on_its_batch() -> None:
    """Nor on how samples are spread over the lanes, nor on the rows beside it that are left."""
    logits, sizes = torch.randn(40, 13), ksubset.between(3, 6)
    seed = torch.tensor(5)
    from ksubset.kernels.cpu import size_samples

    whole = size_samples.draw(logits, 3, 6, seed, 3, False)
    few = size_samples.draw(logits[:1], 3, 6, seed, 3, False)
    assert (whole.samples[0, :1] == few.samples[:1, 0]).all()
    bad = logits.clone()
    bad[17, 3] = INF
    one, other = (
        ksubset.sample(x, sizes, generator=torch.Generator().manual_seed(1)) for x in (logits, bad)
    )
    rest = torch.arange(40) != 17
    assert (one[rest] == other[rest]).all()
    assert other[17, 3] == 1


def test_values_that_samples_cannot_have() -> None:
    logits = torch.randn(4, 6)
    logits[2, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        ksubset.sample(logits, ksubset.between(1, 3))
    assert ksubset.sample(logits, ksubset.between(1, 3), validate_args=False)[2].isnan().all()
    logits[2] = -INF
    with pytest.raises(ValueError, match="number of allowed items"):
        ksubset.sample(logits, ksubset.between(1, 3))
