"""Compiled kernels of several sizes of long rows, against the nodes in operations of torch."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, TOLERANCES
from test_sizes_contract import close
from test_sizes_cpu import _gradients as gradients
from torch import Tensor

import ksubset
from ksubset.functional._sized import draw_sizes
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "low", "high"), [(12, 0, 12), (100, 45, 80), (2100, 1000, 1100)])
def test_sizes_are_drawn_as_torch_draws_them(
    n: int, low: int, high: int, dtype: torch.dtype
) -> None:
    """From the same random numbers, so that all but those at a border of rounding are equal."""
    seeds = torch.randint(1 << 40, (400, 7))
    for logits, weights, flat in problems(n, low, high, dtype):
        drawn = compiled.draw(logits, weights, low, flat, seeds, True)
        assert drawn.left is None
        found = nodes.infer(logits.double(), weights, low, flat)
        expected = draw_sizes(found[2], low, seeds)
        wrong = 1 if dtype == torch.float64 else 6
        assert int((drawn.size != expected).sum()) <= wrong
        law = nodes.Sizes(drawn.tilted, drawn.weights, drawn.centre, low)
        v = torch.randn(7, n, dtype=dtype)
        truth = nodes.items_product(nodes.Sizes(*found[3:6], low), v.double())
        close(nodes.items_product(law, v, "auto"), truth, TOLERANCES[dtype], 4.0)


def chi_square(z: Tensor, sizes: ksubset.Sizes, logits: Tensor) -> float:
    """The p-value of the sizes of samples (samples, n)."""
    chances = ksubset.size_probabilities(logits.double(), sizes, method="spectral") * len(z)
    counts = torch.bincount(z.sum(-1).long(), minlength=len(chances))
    assert counts[chances == 0].sum() == 0
    many = chances > 5
    found = torch.cat([counts[many], counts[~many].sum().reshape(1)])
    expected = torch.cat([chances[many], chances[~many].sum().reshape(1)]).clamp_min(1e-3)
    statistic = ((found - expected) ** 2 / expected).sum() / 2
    return float(torch.special.gammaincc(torch.tensor((len(found) - 1) / 2), statistic.float()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_samples_are_of_the_distribution(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    logits = torch.randn(70, dtype=dtype)
    logits[3], logits[5] = INF, -INF
    bell = ksubset.weighted_sizes(-0.05 * (torch.arange(71.0) - 30) ** 2)
    for sizes in (ksubset.at_least(38), ksubset.between(20, 34), bell):
        z = ksubset.sample(logits, sizes, (20_000,))
        assert ((z == 0) | (z == 1)).all()
        assert (z[:, 3] == 1).all()
        assert (z[:, 5] == 0).all()
        assert chi_square(z, sizes, logits) > 1e-4
        mu = ksubset.marginals(logits.double(), sizes, method="spectral")
        deviation = (mu * (1 - mu) / len(z)).sqrt() + 1e-12
        assert float(((z.double().mean(0) - mu) / deviation).abs().max()) < 4.5
    # And of a slightly wrong one it is told.
    wrong = ksubset.between(21, 34)
    z = ksubset.sample(logits - 0.05, ksubset.between(20, 34), (20_000,))
    assert chi_square(z, ksubset.between(20, 34), logits) < 1e-4
    with pytest.raises(AssertionError):
        chi_square(z, wrong, logits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("samples", [(), (3,)], ids=str)
def test_samples_have_the_gradient_of_the_marginals(
    samples: tuple[int, ...], dtype: torch.dtype
) -> None:
    logits = 2 * torch.randn(9, 70, dtype=dtype)
    logits[3, 2], logits[4, 3], logits[5, 5] = INF, -INF, 1e4
    mask = torch.rand(9, 70) > 0.1
    v = torch.randn(*samples, 9, 70, dtype=dtype)
    own = ksubset.between(torch.arange(25, 34), 45)
    bell = ksubset.weighted_sizes(-0.1 * (torch.arange(61.0) - 30) ** 2)
    for sizes in (ksubset.between(20, 40), own, bell, ksubset.at_most(3)):
        for given in (None, mask):
            one, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
            z = ksubset.simple(one, sizes, samples, mask=given)
            mu = ksubset.marginals(other, sizes, mask=given, method="spectral").expand(z.shape)
            assert ((z == 0) | (z == 1)).all()
            for found, truth in zip(gradients(z, one, v), gradients(mu, other, v), strict=True):
                close(found, truth.double(), TOLERANCES[dtype], 8.0)


def test_rows_that_samples_cannot_have() -> None:
    logits = torch.randn(4, 70)
    logits[2, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        ksubset.sample(logits, ksubset.between(10, 50))
    z = ksubset.simple(logits.requires_grad_(), ksubset.between(10, 50), validate_args=False)
    assert z[2].isnan().all()
    assert not z[[0, 1, 3]].isnan().any()
    (gradient,) = torch.autograd.grad(z[[0, 1, 3]].sum(), logits)
    assert not gradient[[0, 1, 3]].isnan().any()


def test_learned_weights_take_the_gradient_of_samples() -> None:
    weights = (-0.05 * (torch.arange(71.0) - 30) ** 2).requires_grad_()
    z = ksubset.simple(torch.randn(2, 70), ksubset.weighted_sizes(weights))
    (gradient,) = torch.autograd.grad(z[:, :9].sum(), weights)
    assert gradient.abs().sum() > 0


def test_the_same_generator_gives_the_same_samples() -> None:
    logits = torch.randn(5, 70)
    sizes = ksubset.between(20, 60)
    one, other = (
        ksubset.sample(logits, sizes, (2,), generator=torch.Generator().manual_seed(4))
        for _ in range(2)
    )
    assert (one == other).all()
