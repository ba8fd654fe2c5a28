"""Marginals: against enumeration, against the truth, and without noise."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ksubset.regression import choose, make_problem, standardise
from ksubset.regression.exchange import least_penalty
from ksubset.regression.posterior import of_losses, power, sample
from ksubset.regression.search import screened
from ksubset.regression.walk import walk, walk_plainly
from ksubset.sklearn import KSubsetRegressor

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from planted import planted


def small(t: int = 1, n: int = 12, k: int = 3, m: int = 40) -> tuple[Tensor, Tensor, np.ndarray]:
    """Standardised, with enough noise that many subsets are likely."""
    random = torch.Generator().manual_seed(t)
    x = torch.randn(m, n, generator=random).double() + torch.randn(m, 1, generator=random).double()
    y = 0.5 * x[:, :k] @ torch.randn(k, t, generator=random).double()
    y = y + torch.randn(m, t, generator=random).double()
    problem = standardise(x, y).problem
    supports = torch.tensor(list(itertools.combinations(range(n), k)))
    return problem, problem.solve(supports, least_penalty(torch.float64))[1], supports.numpy()


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_walk_has_the_marginals_of_enumeration(t: int, compiled: bool) -> None:
    problem, losses, supports = small(t)
    weights = torch.softmax(-5 * losses.log(), 0).numpy()
    expected = np.zeros(12)
    np.add.at(expected, supports, weights[:, None])
    gram = problem.gram.numpy() + least_penalty(torch.float64) * np.eye(12)
    moments = np.ascontiguousarray(problem.moments.numpy().T)
    uniform = np.random.default_rng(0).random(6000 if compiled else 2000)
    method = walk if compiled else walk_plainly
    found = method(gram, moments, float(problem.total), np.arange(3), 5.0, uniform, burn=30)
    np.testing.assert_allclose(found.marginals.sum(), 3)
    np.testing.assert_allclose(found.marginals, expected, atol=0.03)
    assert sorted(found.best) == supports[losses.argmin()].tolist()
    assert found.outside == 0


@pytest.mark.parametrize("t", [1, 2])
def test_the_compiled_walk_takes_the_same_steps(t: int) -> None:
    problem, *_ = small(t)
    gram = problem.gram.numpy() + 0.1 * np.eye(12)
    moments = np.ascontiguousarray(problem.moments.numpy().T)
    uniform = np.random.default_rng(1).random(400)
    arguments = gram, moments, float(problem.total), np.array([5, 1, 8]), 10.0, uniform
    options = {"burn": 7, "floor": 0.01, "outside": 2.0}
    first, second = walk(*arguments, **options), walk_plainly(*arguments, **options)
    np.testing.assert_array_equal(first.support, second.support)
    assert sorted(first.best) == sorted(second.best)
    np.testing.assert_allclose(first.marginals, second.marginals)
    assert first.outside == pytest.approx(second.outside)
    np.testing.assert_allclose(first.marginals.sum() + first.outside, 3)


def test_all_subsets_and_samples_agree() -> None:
    problem, losses, supports = small()
    every = of_losses(torch.from_numpy(supports), losses, 12, 40.0, 1)
    penalty = torch.full((12,), least_penalty(torch.float64)).double()
    start, generator = torch.tensor([0, 1, 2]), torch.Generator().manual_seed(0)
    walked = sample(problem, start, penalty, 40.0, generator).marginals
    torch.testing.assert_close(walked, every, atol=0.1, rtol=0)
    torch.testing.assert_close(every.sum(), torch.tensor(3.0).double())


def test_degrees_of_freedom() -> None:
    """One for each sure column, more for one that was picked among many."""
    sure = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert power(100.0, 1, 4, sure) == pytest.approx(98 / 2)
    assert power(100.0, 3, 4, sure) == pytest.approx(3 * 98 / 2)
    unsure = torch.full((1000,), 2 / 1000)
    assert power(100.0, 1, 1000, unsure) < (100 - 2 * 12) / 2


@pytest.mark.parametrize("n", [8, 60, 400])
@pytest.mark.parametrize("repeated", [False, True])
def test_without_noise(n: int, repeated: bool) -> None:
    """True features have 1 and others 0; those that are the same share it."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(50, n, generator=random).double()
    if repeated:
        x[:, 4] = x[:, 1]
    choice = choose(standardise(x, x[:, 1] - 2 * x[:, 5] + x[:, 7]), 3)
    expected = torch.zeros(n).double()
    expected[[1, 5, 7]] = 1
    if repeated:
        expected[[1, 4]] = 0.5
    torch.testing.assert_close(choice.marginals, expected, atol=0.15 if repeated else 1e-6, rtol=0)
    assert choice.marginals.isfinite().all()


@pytest.mark.parametrize("y", ["constant", "few rows"])
def test_nothing_to_tell(y: str) -> None:
    m = 30 if y == "constant" else 4
    x = torch.randn(m, 400).double()
    target = torch.ones(m).double() if y == "constant" else torch.randn(m).double()
    marginals = choose(standardise(x, target), 5).marginals
    assert marginals.isfinite().all()
    assert float(marginals.sum()) == pytest.approx(5)


GRID = [(snr, design) for snr in (1, 5) for design in ("equal", "chain")]


def test_marginals_are_calibrated() -> None:
    """Of the features that have 0.8 to 1.0, 80 to 100 % are true, in every cell; and on average as
    many of a bin are true as its marginals say."""
    said, found = [], []
    for snr, design in GRID:
        high: list[float] = []
        for seed in range(12):
            x, y, truth = planted(seed, 200, 1000, 10, design, snr)
            marginals = KSubsetRegressor(10, random_state=0).fit(x, y).marginals_
            true = np.isin(np.arange(1000), truth)
            assert marginals.sum() == pytest.approx(10)
            said.append(marginals)
            found.append(true)
            high += true[marginals >= 0.8].tolist()
        assert np.mean(high) >= 0.8
        assert len(high) >= 12 * (2 if snr == 1 else 7)  # not by being sure of nothing
    p, true = np.concatenate(said), np.concatenate(found)
    for low, top in ((0.8, 1.01), (0.5, 0.8), (0.2, 0.5), (0.05, 0.2)):
        inside = (p >= low) & (p < top)
        error = np.sqrt((p[inside] * (1 - p[inside])).sum()) / inside.sum()
        assert abs(p[inside].mean() - true[inside].mean()) < 0.05 + 4 * error, (low, top)


def test_no_swap_of_any_column_is_left() -> None:
    """Though most are made among promising columns."""
    x, y, _ = planted(3, 100, 600, 8, "equal", 1)
    problem = standardise(torch.from_numpy(x), torch.from_numpy(y)).problem
    penalty = torch.full((600,), least_penalty(torch.float64)).double()
    optimum = screened(problem, torch.arange(8), 8, penalty)
    found, loss = optimum.support.tolist(), optimum.state.loss[0]
    others = [j for j in range(600) if j not in found]
    swapped = [[j if i == out else i for i in found] for out in found for j in others]
    losses = make_problem(problem.x, problem.y).solve(torch.tensor(swapped), penalty)[1]
    assert losses.min() > loss - 1e-10
