"""Rows beyond enumeration, against the dynamic programme in extended precision."""

from __future__ import annotations

import pytest
import torch
from sized_problems import INF, TOLERANCES
from test_sizes_contract import close
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.functional import _size_primitives
from ksubset.kernels import sizes as kernels

DTYPES = (torch.float64, torch.float32)


def ranges(n: int) -> dict[str, tuple[ksubset.Sizes, Tensor]]:
    j = torch.arange(61.0)
    bell = -0.02 * (j - 30) ** 2
    wide = {
        "at most": (ksubset.at_most(60), torch.zeros(61)),
        "between": (ksubset.between(20, 60), torch.zeros(61).masked_fill(j < 20, -INF)),
        "concave": (ksubset.weighted_sizes(bell), bell),
    }
    if n <= 1000:
        wide["all"] = (ksubset.at_least(0), torch.zeros(n + 1))
        wide["many"] = (
            ksubset.at_least(300),
            torch.zeros(n + 1).index_fill(0, torch.arange(300), -INF),
        )
    return wide


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("n", [300, 1000, 10_000])
def test_against_the_log_space_dp(n: int, scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(n, generator=torch.Generator().manual_seed(n))
    for shift in (0.0, -2.0):
        for sizes, weights in ranges(n).values():
            row = (logits + shift).float()
            truth = oracle.LogSpaceDP(row, len(weights) - 1, weights)
            v = torch.randn(n).double()
            product = truth.covariance_product(v)
            # Of a log-partition of a million, float32 has less than a part in it.
            whole, entropy = (
                torch.tensor(value, dtype=torch.float64)
                for value in (truth.log_partition(), truth.entropy())
            )
            for dtype in DTYPES:
                given, tolerance = row.to(device, dtype), TOLERANCES[dtype]
                close(ksubset.marginals(given, sizes), truth.marginals(), tolerance)
                close(ksubset.log_partition(given, sizes), whole, tolerance)
                chances = ksubset.size_probabilities(given, sizes)[: len(weights)]
                close(chances, truth.size_probabilities(), tolerance)
                found = ksubset.covariance_product(given, sizes, v.to(device, dtype))
                close(found, product, tolerance)
                close(ksubset.entropy(given, sizes), entropy, tolerance)
        if n == 10_000:
            break


def test_a_wide_range_is_that_of_independent_coins(device: torch.device) -> None:
    """With all sizes there is nothing left that binds the items together."""
    logits = torch.randn(3, 20_000, device=device)
    mu = ksubset.marginals(logits, ksubset.at_least(0))
    torch.testing.assert_close(mu, torch.sigmoid(logits), atol=2e-6, rtol=0)
    v = torch.randn_like(logits)
    product = ksubset.covariance_product(logits, ksubset.at_least(0), v)
    torch.testing.assert_close(product, mu * (1 - mu) * v, atol=2e-5, rtol=0)


def test_the_operators(device: torch.device) -> None:
    logits = torch.randn(3, 6, dtype=torch.float64, device=device)
    weights = -0.1 * torch.arange(-1.0, 4).double().to(device) ** 2
    weights = weights.expand(3, 5).contiguous()
    _, _, _, tilted, own, centre, _ = _size_primitives.infer(logits, weights, 1, False, "auto")
    v, f = torch.randn_like(logits), torch.randn_like(weights)
    for operator, arguments in (
        (torch.ops.ksubset.infer_sizes, (logits, weights, 1, False, "auto")),
        (torch.ops.ksubset.law_of_sizes, (logits, weights, 1, False, "auto")),
        (torch.ops.ksubset.covariance_product_of_items, (tilted, own, centre, 1, v, "auto")),
        (torch.ops.ksubset.covariance_product_of_sizes, (tilted, own, centre, 1, v, f, "auto")),
        (
            torch.ops.ksubset.third_cumulant_product_of_sizes,
            (tilted, own, centre, 1, v, f, v.flip(0), f.flip(0)),
        ),
    ):
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(operator.default, arguments, test_utils=tests)
        found = torch.vmap(lambda *x, o=operator, a=arguments: o(*_with(a, x)))(
            *(torch.stack([x, x]) for x in arguments if isinstance(x, Tensor))
        )
        alone = operator(*arguments)
        if isinstance(alone, Tensor):
            alone, found = [alone], [found]
        for one, both in zip(alone, found, strict=True):
            torch.testing.assert_close(torch.stack([one, one]), both)


def _with(arguments: tuple, tensors: tuple) -> list:
    rest = iter(tensors)
    return [next(rest) if isinstance(x, Tensor) else x for x in arguments]


def test_derivatives_of_moments(device: torch.device) -> None:
    """Of items and of sizes, in logits and weights, twice and in both modes."""
    logits = torch.randn(2, 5, dtype=torch.float64, device=device, requires_grad=True)
    weights = (-0.2 * torch.arange(5.0).double().to(device) ** 2).expand(2, 5).contiguous()
    weights.requires_grad_()

    def moments(x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        whole, mu, chances, *_ = _size_primitives.infer(x, c, 1, False, "auto")
        return whole, mu, chances

    assert torch.autograd.gradcheck(moments, (logits, weights), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(moments, (logits, weights), check_fwd_over_rev=True)


@pytest.mark.parametrize("flat", [True, False])
def test_the_centre_is_the_most_likely_size(flat: bool, device: torch.device) -> None:
    """Within the half that expectation leaves open, and never so that weights grow from it."""
    for scale in (0.1, 3.0, 30.0):
        logits = scale * torch.randn(50, 20, dtype=torch.float64, device=device)
        curve = 0.0 if flat else -0.3 * (torch.arange(21.0, device=device) - 12) ** 2
        weights = torch.zeros(50, 21, dtype=torch.float64, device=device) + curve
        weights[:, :4], weights[:, 16:] = -INF, -INF
        sizes, _ = kernels.centred(logits, weights, 0, flat)
        chances = kernels.infer(logits, weights, 0, flat)[2]
        mode = chances.argmax(-1)
        assert ((sizes.centre - mode).abs() <= 1).all()
        assert (sizes.weights <= 1e-9).all()


def test_learned_weights(device: torch.device) -> None:
    """Concave ones take the nodes, others the mixture, with the same derivatives."""
    logits = torch.randn(4, 7, dtype=torch.float64, device=device)
    weights = (-0.1 * torch.arange(8.0).double() ** 2).to(device).requires_grad_()
    for method in ("auto", "dp"):
        mu = ksubset.marginals(logits, ksubset.weighted_sizes(weights), method=method)
        (gradient,) = torch.autograd.grad(mu.square().sum(), weights)
        if method == "auto":
            first = gradient
    torch.testing.assert_close(first, gradient)


def test_compiled(device: torch.device) -> None:
    logits = torch.randn(3, 8, device=device)

    def loss(x: Tensor) -> Tensor:
        return ksubset.entropy(x, ksubset.between(2, 5)).sum()

    compiled = torch.compile(torch.func.grad(loss), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits), torch.func.grad(loss)(logits))


def test_a_wrong_weight_of_nodes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.Mixture.transform

    def wrong(mix: kernels.Mixture, f: Tensor | None = None) -> tuple[Tensor, Tensor]:
        real, imag = right(mix, f)
        return real, imag * 1.0001

    monkeypatch.setattr(kernels.Mixture, "transform", wrong)
    monkeypatch.setattr(kernels, "are_compiled", lambda *_: False)
    with pytest.raises(AssertionError, match="off by"):
        test_against_the_log_space_dp(300, 3.0, torch.device("cpu"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logits_of_ten_thousand(dtype: torch.dtype, device: torch.device) -> None:
    """Spread, at two values with ties, and far from zero."""
    logits = torch.randn(3, 64, dtype=dtype)
    logits[0] *= 1e4
    logits[1] = 1e4 * logits[1].sign()
    logits[2] += 1e4
    v = torch.randn(3, 64, dtype=dtype)
    sizes, weights = ksubset.between(6, 8), torch.zeros(9).index_fill(0, torch.arange(6), -INF)
    mu = ksubset.marginals(logits.to(device), sizes).cpu()
    product = ksubset.covariance_product(logits.to(device), sizes, v.to(device)).cpu()
    chances = ksubset.size_probabilities(logits.to(device), sizes).cpu()
    for row in range(3):
        truth = oracle.LogSpaceDP(logits[row], 8, weights)
        close(mu[row], truth.marginals(), TOLERANCES[dtype])
        close(product[row], truth.covariance_product(v[row]), TOLERANCES[dtype])
        close(chances[row, :9], truth.size_probabilities(), TOLERANCES[dtype])
