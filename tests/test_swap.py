"""The swap theorem, by enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from problems import INF
from torch import Tensor

from ksubset import oracle
from ksubset.oracle import _exact

Rates = Callable[[Tensor, Tensor], Tensor]
SCALES = (0.1, 1.0, 3.0)


def product_rates(logits: Tensor, z: Tensor) -> Tensor:
    """The product of the flows: reversible only where k is 1 or n - 1."""
    mu = oracle.marginals(logits, int(z.sum()))
    out, into = (1 - mu) * z, mu * (1 - z)
    return out.unsqueeze(1) * into / into.sum()


def problems(most: int = 9) -> Iterator[tuple[Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    for n in range(2, most + 1):
        for k in range(n + 1):
            for scale in SCALES:
                yield scale * torch.randn(n, generator=generator, dtype=torch.float64), k


def all_rates(logits: Tensor, k: int) -> Tensor:
    """``oracle.swap_rates`` at every subset, (subsets, n, n), for many subsets at once: the same
    formula with the elementary symmetric polynomials of all sets of items in one table."""
    z = oracle.support(len(logits), k).bool()
    n = len(logits)
    weights = (logits - logits.median()).exp()
    items = torch.arange(n)
    table = torch.zeros(2**n, n + 1, dtype=logits.dtype)  # table[bits of a set, m]
    table[0, 0] = 1
    for item in range(n):
        without = table[: 2**item]
        table[2**item : 2 ** (item + 1)] = without
        table[2**item : 2 ** (item + 1), 1:] += weights[item] * without[:, :-1]
    bits = 2**items
    chosen = (z * bits).sum(-1)
    kept = table[(chosen.unsqueeze(-1) - bits).clamp(min=0)]  # (subsets, n, n + 1)
    rest = table[(2**n - 1 - chosen.unsqueeze(-1) - bits).clamp(min=0)]
    shares = torch.tensor([_exact._share(s) for s in range(k)], dtype=logits.dtype)
    paired = torch.einsum("cis,cjs,s->cij", kept[..., :k].flip(-1), rest[..., :k], shares)
    swap = z.unsqueeze(-1) & ~z.unsqueeze(-2)
    return torch.where(swap, weights * paired / table[-1, k], 0)


def enumerated(rates: Rates) -> Callable[[Tensor, int], Tensor]:
    """Rates at every subset, one subset after the other."""
    return lambda logits, k: torch.stack([rates(logits, z) for z in oracle.support(len(logits), k)])


def flow_error(logits: Tensor, k: int, rates: Callable[[Tensor, int], Tensor] = all_rates) -> float:
    """Of the flows out of chosen items and into the others."""
    z, rate = oracle.support(len(logits), k), rates(logits, k)
    assert not rate[(z == 0).unsqueeze(-1).expand_as(rate)].any()
    assert not rate[(z == 1).unsqueeze(-2).expand_as(rate)].any()
    flow = rate.sum(1) - rate.sum(2)
    return float((flow - (oracle.marginals(logits, k) - z)).abs().max())


def balance_error(
    logits: Tensor, k: int, rates: Callable[[Tensor, int], Tensor] = all_rates
) -> float:
    """Of p(z) r_ij(z) against p(z') r_ji(z'), z' = z - e_i + e_j."""
    n, z = len(logits), oracle.support(len(logits), k).long()
    flows = oracle.log_probabilities(logits, k).exp().reshape(-1, 1, 1) * rates(logits, k)
    bits = 2 ** torch.arange(n)
    number = (z * bits).sum(-1)
    where = torch.zeros(2**n, dtype=torch.int64)
    where[number] = torch.arange(len(z))
    at, i, j = ((z == 1).unsqueeze(-1) & (z == 0).unsqueeze(-2)).nonzero(as_tuple=True)
    back = flows[where[number[at] - bits[i] + bits[j]], j, i]
    return float((flows[at, i, j] - back).abs().amax()) if len(at) else 0.0


def mean_of(
    estimate: Callable[[Tensor, Tensor], Tensor], logits: Tensor, k: int, rates: Rates
) -> Tensor:
    """The mean of an estimate (z, rates at z) over the subsets."""
    p = oracle.log_probabilities(logits, k).exp()
    support = oracle.support(len(logits), k)
    return sum(c * estimate(z, rates(logits, z)) for c, z in zip(p, support, strict=True))


def gradient(loss: Callable[[Tensor], Tensor], logits: Tensor, k: int) -> Tensor:
    """Cov(z, f(z))."""
    z, p = oracle.support(len(logits), k), oracle.log_probabilities(logits, k).exp()
    f = torch.stack([loss(x) for x in z])
    return ((p * f).unsqueeze(-1) * (z - oracle.marginals(logits, k))).sum(0)


def second_order(g: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Half of sum r_ij (e_i - e_j)(g_i - g_j)."""

    def estimate(z: Tensor, rate: Tensor) -> Tensor:
        slope = g(z)
        weight = 0.5 * rate * (slope.unsqueeze(1) - slope)
        return weight.sum(1) - weight.sum(0)

    return estimate


def removal(loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """sum_i Delta_i sum_j r_ij (e_i - e_j), Delta_i = f(z) - f(z - e_i)."""

    def estimate(z: Tensor, rate: Tensor) -> Tensor:
        unit = torch.eye(len(z), dtype=z.dtype)
        drop = torch.stack([loss(z) - loss(z - unit[i]) if z[i] else z[i] for i in range(len(z))])
        weight = rate * drop.unsqueeze(1)
        return weight.sum(1) - weight.sum(0)

    return estimate


def test_the_table_of_all_rates_is_the_oracle() -> None:
    """What makes the tests below fast is the formula itself."""
    for logits, k in problems(6):
        expected = enumerated(oracle.swap_rates)(logits, k)
        torch.testing.assert_close(all_rates(logits, k), expected, rtol=1e-12, atol=1e-14)


def test_flows_and_reversibility() -> None:
    for logits, k in problems(9):
        assert flow_error(logits, k) < 1e-12
        assert balance_error(logits, k) < 1e-12


def test_items_that_are_certain_never_swap() -> None:
    logits = torch.tensor([0.3, -INF, 1.0, INF, -0.5, 0.0], dtype=torch.float64)
    mu = oracle.marginals(logits, 3)
    for z in oracle.support(6, 3):
        if z[1] or not z[3]:
            continue
        rate = oracle.swap_rates(logits, z)
        assert not rate[3].any()
        assert not rate[:, 1].any()
        torch.testing.assert_close(rate.sum(0) - rate.sum(1), mu - z, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (6, 3), (7, 5), (6, 1)])
def test_the_second_order_estimate_is_unbiased_for_quadratics(n: int, k: int) -> None:
    logits = torch.randn(n, dtype=torch.float64)
    a, b = torch.randn(n, n, dtype=torch.float64), torch.randn(n, dtype=torch.float64)
    symmetric = a + a.T

    def loss(z: Tensor) -> Tensor:
        return 0.5 * z @ symmetric @ z + b @ z

    found = mean_of(second_order(lambda z: symmetric @ z + b), logits, k, oracle.swap_rates)
    torch.testing.assert_close(found, gradient(loss, logits, k), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (6, 3), (7, 5), (6, 1)])
def test_removal_is_unbiased_for_every_loss(n: int, k: int) -> None:
    logits = torch.randn(n, dtype=torch.float64)
    first, second = torch.randn(n, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)

    def loss(z: Tensor) -> Tensor:
        return torch.tanh(z @ first) @ second + (z.sum() * z[0]).sin()

    found = mean_of(removal(loss), logits, k, oracle.swap_rates)
    torch.testing.assert_close(found, gradient(loss, logits, k), rtol=0, atol=1e-12)


def test_wrong_rates_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """1/(s + 2) in place of 1/(s + 1) breaks the flows; the product plan, reversibility."""
    product = enumerated(product_rates)
    for n in (4, 6, 9):
        logits = torch.randn(n, dtype=torch.float64)
        for k in range(1, n):
            assert flow_error(logits, k, product) < 1e-12
            assert (balance_error(logits, k, product) > 1e-6) is (1 < k < n - 1)
    monkeypatch.setattr(_exact, "_share", lambda s: 1 / (s + 2))
    for logits, k in problems(9):
        if 0 < k < len(logits):
            assert flow_error(logits, k) > 1e-3
    assert flow_error(torch.randn(5, dtype=torch.float64), 2, enumerated(oracle.swap_rates)) > 1e-3
