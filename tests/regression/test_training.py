"""The trained law: what it finds, what it says about doubt, and large problems by their rows."""

from __future__ import annotations

import pytest
import torch

from ksubset import functional, oracle
from ksubset.regression import Settings, SubsetLoss, choose, standardise, training


def planted(m: int, n: int, k: int, noise: float, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(m, n, generator=generator, dtype=torch.float64)
    chosen = torch.randperm(n, generator=generator)[:k].sort().values
    y = x[:, chosen].sum(-1)
    return x, y + noise * torch.randn(m, generator=generator, dtype=torch.float64), chosen


@pytest.mark.parametrize("gradient", ["difference", "derivative"])
def test_the_law_alone_finds_planted_columns(gradient: str) -> None:
    x, y, chosen = planted(200, 50, 5, 0.5, 0)
    settings = Settings(gradient=gradient, gamma=None if gradient == "difference" else 3.0)
    found = choose(standardise(x, y), 5, search=False, settings=settings)
    assert found.support.tolist() == chosen.tolist()
    assert found.swaps == 0
    assert found.trained.history[-1]["loss"] < 0.5 * found.trained.history[0]["loss"]
    assert found.trained.history[-1]["entropy"] < found.trained.history[0]["entropy"]


def test_a_fixed_point_is_stationary_for_the_free_energy() -> None:
    """With noise and ridge given, the law is near the best k-subset law there is: its free energy,
    by enumeration, is below that of the laws around it."""
    x, y, _ = planted(30, 8, 3, 2.0, 1)
    data = standardise(x, y)
    noise = 0.02
    settings = Settings(steps=2000, restarts=1, gamma=10.0, noise=noise)
    logits = choose(data, 3, settings=settings, search=False).trained.logits[0]
    table = oracle.support(8, 3).double()
    losses = SubsetLoss(data.problem, gamma=10.0)(table)

    def energy(theta: torch.Tensor) -> float:
        weights = functional.log_prob(theta, 3, table)
        return float((weights.exp() * (losses / (2 * noise) + weights)).sum())

    assert energy(logits) < energy(torch.zeros(8, dtype=torch.float64))
    posterior = (-losses / (2 * noise)).softmax(0) @ table
    torch.testing.assert_close(functional.marginals(logits, 3), posterior, rtol=0, atol=0.08)
    scaled = [energy(logits * factor) for factor in (0.5, 1.0, 2.0)]
    assert scaled[1] == min(scaled)


def test_doubt_between_twins() -> None:
    """Two columns that explain y equally well share a marginal."""
    x, y, chosen = planted(100, 20, 3, 0.3, 2)
    twin = int(next(i for i in range(20) if i not in chosen))
    x[:, twin] = x[:, chosen[0]]
    found = choose(standardise(x, y), 3, settings=Settings(restarts=16), search=False)
    both = found.marginals[[int(chosen[0]), twin]]
    assert float(both.sum()) == pytest.approx(1, abs=0.05)
    assert found.marginals[chosen[1:]].min() > 0.95


def test_many_columns_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that alone explain nothing are found once others are in the model."""
    monkeypatch.setattr(training, "_SCREENED", 60)
    x, y, _ = planted(150, 600, 4, 0.1, 3)
    x[:, 0] = x[:, 1] + 0.3 * x[:, 2]  # x0 - x1 is seen together only
    y = 3 * (x[:, 0] - x[:, 1]) + x[:, 5] + x[:, 6] + 0.05 * y
    y = y - x[:, 1] * (x[:, 1] @ y) / x[:, 1].square().sum()
    whole = choose(standardise(x, y, method="gram"), 4)
    for dtype in (torch.float64, torch.float32):
        found = choose(standardise(x, y, method="rows", dtype=dtype), 4)
        assert found.support.tolist() == whole.support.tolist()
        assert float(found.marginals.sum()) == pytest.approx(4, rel=1e-5)
        if dtype == torch.float64:
            assert found.loss == pytest.approx(whole.loss, rel=1e-9)


def test_without_noise() -> None:
    x, y, chosen = planted(40, 30, 4, 0.0, 4)
    found = choose(standardise(x, y), 4)
    assert found.support.tolist() == chosen.tolist()
    assert found.loss < 1e-10
    assert found.marginals.isfinite().all()
