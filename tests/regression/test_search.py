"""The search: losses without a Gram matrix, elimination, and equations that swaps alone miss."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from ksubset.regression import (
    GramProblem,
    Rows,
    Settings,
    choose,
    make_problem,
    standardise,
    swap_search,
    train,
)
from ksubset.regression.exchange import least_penalty
from ksubset.regression.search import forward, search


def residual(x: Tensor, y: Tensor, support: Tensor) -> float:
    """By LAPACK's solver for any rank."""
    weights = np.linalg.lstsq(x[:, support].numpy(), y.numpy(), rcond=None)[0]
    return float(np.square(x[:, support].numpy() @ weights - y.numpy()).sum())


@pytest.mark.parametrize(("m", "n", "t"), [(50, 8, 1), (50, 8, 3), (8, 8, 1), (4, 8, 2), (3, 8, 1)])
@pytest.mark.parametrize("kind", ["plain", "alike", "repeated", "constant"])
def test_losses_are_those_of_least_squares(m: int, n: int, t: int, kind: str) -> None:
    x, y = torch.randn(m, n).double(), torch.randn(m, t).double()
    if kind == "alike":
        x[:, 5] = x[:, 1] + 1e-6 * x[:, 5]
    if kind == "repeated":
        x[:, 5] = x[:, 1]
    if kind == "constant":
        x[:, 5] = 0
    rows = Rows.of(x, y)
    assert len(rows.x) <= n + t
    supports = torch.tensor(list(itertools.combinations(range(n), 4)))
    expected = torch.tensor([residual(x, y, support) for support in supports], dtype=x.dtype)
    found = rows.losses(supports)
    scale = y.square().sum()
    torch.testing.assert_close(found / scale, expected / scale, rtol=1e-8, atol=1e-12)
    if m > n:
        support, loss = rows.best(4)
        torch.testing.assert_close(loss, expected.min(), rtol=1e-8, atol=1e-12)
        assert (supports[found.argmin()] == support).all()


def test_losses_have_their_own_digits() -> None:
    """Of an exact fit nothing is left, where a Gram matrix leaves its rounding."""
    x = torch.randn(100, 6).double()
    x[:, 1] = x[:, 0] + 1e-7 * x[:, 1]
    y = x[:, :1] - x[:, 1:2]
    rows, support = Rows.of(x, y), torch.tensor([[0, 1, 2], [0, 2, 3]])
    exact, other = rows.losses(support) / y.square().sum()
    assert exact < 1e-16 < 0.1 < other


def test_ridge() -> None:
    x, y = torch.randn(30, 6).double(), torch.randn(30, 2).double()
    penalty = torch.tensor([0.0, 1.0, 2.0, 0.5, 0.0, 3.0]).double()
    supports = torch.tensor(list(itertools.combinations(range(6), 3)))
    expected = make_problem(x, y).solve(supports, penalty)[1]
    rows = Rows.of(x, y)
    torch.testing.assert_close(rows.penalised(penalty).losses(supports), expected)
    from_gram = Rows.from_gram(x.T @ x, x.T @ y, y.square().sum(0))
    torch.testing.assert_close(from_gram.penalised(penalty).losses(supports), expected)
    one = rows.target(1).losses(supports)
    torch.testing.assert_close(one, make_problem(x, y[:, 1]).solve(supports, 0.0)[1])


def test_backward_elimination_leaves_out_the_least() -> None:
    x, y = torch.randn(40, 12).double(), torch.randn(40, 2).double()
    x[:, 7] = x[:, 2] - 2 * x[:, 3]
    left = list(range(12))
    rows = Rows.of(x, y)
    for k in range(11, 0, -1):
        losses = {i: residual(x, y, torch.tensor([j for j in left if j != i])) for i in left}
        least = min(losses.values())
        support = rows.backward(k)
        gone = (set(left) - set(support.tolist())).pop()
        assert losses[gone] <= least + 1e-10
        left = support.tolist()


def test_forward_selection_adds_the_best() -> None:
    x, y = torch.randn(40, 12).double(), torch.randn(40).double()
    problem = make_problem(x, y)
    penalty = torch.full((12,), 1e-10).double()
    chosen: list[int] = []
    found = forward(problem, 6, penalty).tolist()
    for k in range(6):
        losses = {
            j: residual(x, y.unsqueeze(1), torch.tensor([*chosen, j]))
            for j in range(12)
            if j not in chosen
        }
        chosen.append(min(losses, key=losses.__getitem__))
        assert found[k] == chosen[k]


@pytest.mark.parametrize("method", ["gram", "rows"])
def test_few_rows_many_columns(method: str) -> None:
    """The result cannot be improved by a swap."""
    x = torch.randn(60, 400).double()
    y = x[:, :5].sum(-1) + 0.1 * torch.randn(60).double()
    data = standardise(x, y, method=method)
    penalty = torch.full((400,), least_penalty(torch.float64)).double()
    starts, generator = torch.arange(5, 10).unsqueeze(0), torch.Generator().manual_seed(0)
    found = search(data.problem, starts, 5, penalty, 60.0, generator)
    assert found.support.sort().values.tolist() == [0, 1, 2, 3, 4]
    loss = float(data.problem.solve(found.support[None], penalty)[1])
    assert found.loss == pytest.approx(loss, abs=1e-9)


def test_all_subsets_of_few_columns() -> None:
    """Noise, correlated columns, a penalty, and two targets: the best is the best."""
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randn(25, 10).double() + torch.randn(25, 1).double()
        y = torch.randn(25, 2).double()
        data = standardise(x, y)
        ridge = 0.5 * seed
        penalty = ridge / data.scale / data.scale
        supports = torch.tensor(list(itertools.combinations(range(10), 4)))
        losses = data.problem.solve(supports, penalty)[1]
        choice = choose(data, 4, ridge=ridge, settings=Settings(steps=2, restarts=1))
        assert choice.support.tolist() == supports[losses.argmin()].tolist()
        assert choice.loss == pytest.approx(float(losses.min()))


def lorenz(t: float, v: Tensor) -> list[Tensor]:
    x, y, z = v
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


def roessler(t: float, v: Tensor) -> list[Tensor]:
    x, y, z = v
    return [-y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)]


def predators(t: float, v: Tensor) -> list[Tensor]:
    x, y = v
    return [1.1 * x - 0.4 * x * y, 0.1 * x * y - 0.4 * y]


def weak(equations, start: list[float], time: float, degree: int):  # type: ignore[no-untyped-def]
    """Integrals of all monomials, and of derivatives by parts, against 100 bumps; and which
    monomials the equations have."""
    t = np.linspace(0, time, 2000)
    solution = solve_ivp(
        equations, (0, time), start, t_eval=t, rtol=1e-11, atol=1e-12, method="DOP853"
    )
    powers = [
        p for p in itertools.product(range(degree + 1), repeat=len(start)) if sum(p) <= degree
    ]

    def library(states):  # type: ignore[no-untyped-def]
        return np.stack([np.prod(states ** np.array(p)[:, None], 0) for p in powers], 1)

    width = time / 12
    u = (t - np.linspace(width, time - width, 100)[:, None]) / width
    inside = (1 - u**2).clip(0)
    columns = inside**8 @ library(solution.y)
    targets = 16 / width * (u * inside**7) @ solution.y.T
    points = np.random.default_rng(0).normal(size=(len(start), 400))
    values = np.stack([np.broadcast_to(f, 400) for f in equations(0, points)], 1)
    true = np.abs(np.linalg.lstsq(library(points), values, rcond=None)[0]) > 1e-9
    return torch.from_numpy(columns), torch.from_numpy(targets), true.T


SYSTEMS = [
    (lorenz, [1.0, -4.0, 20.0], 10.0),
    (roessler, [0.5, -1.0, 1.0], 40.0),
    (predators, [4.0, 2.0], 30.0),
]


@pytest.mark.parametrize("degree", [3, 5, 6])
def test_equations_without_noise_are_found(degree: int) -> None:
    """Up to 84 terms, condition numbers up to 1e13; of degree 6, not by all subsets."""
    missed = 0
    for equations, start, time in SYSTEMS:
        columns, targets, true = weak(equations, start, time, degree)
        for index, terms in enumerate(true):
            data = standardise(columns, targets[:, index], centre=False)
            k = int(terms.sum())
            choice = choose(data, k, settings=Settings(steps=20, restarts=2))
            expected = np.flatnonzero(terms).tolist()
            assert choice.support.tolist() == expected, equations.__name__
            penalty = torch.full((len(terms),), least_penalty(torch.float64)).double()
            generator = torch.Generator().manual_seed(0)
            trained = train(data.problem, k, data.rows, penalty, Settings(steps=20), generator)
            alone = [swap_search(data.problem, s, penalty) for s in trained.supports()]
            best = min(alone, key=lambda result: float(result[1]))[0].sort().values
            missed += best.tolist() != expected
    assert missed > 0  # else the systems are too easy to show anything


def halvorsen(t: float, v: Tensor) -> list[Tensor]:
    x, y, z = v
    return [-1.4 * a - 4 * b - 4 * c - b * b for a, b, c in ((x, y, z), (y, z, x), (z, x, y))]


def test_more_terms_than_equations() -> None:
    """120 terms of degree 7 and 100 integrals: good supports of more terms contain the true ones,
    which swaps of single terms do not find."""
    missed = 0
    columns, targets, true = weak(halvorsen, [-0.9, -1.1, -0.4], 10.0, 7)
    for index, terms in enumerate(true):
        data = standardise(columns, targets[:, index], centre=False)
        k, expected = int(terms.sum()), np.flatnonzero(terms).tolist()
        assert choose(data, k).support.tolist() == expected
        penalty = torch.full((len(terms),), least_penalty(torch.float64)).double()
        alone = swap_search(data.problem, forward(data.problem, k, penalty), penalty)
        missed += alone[0].sort().values.tolist() != expected
    assert missed > 0


def test_rows_of_a_gram_problem() -> None:
    x, y = torch.randn(20, 4).double(), torch.randn(20, 2).double()
    subsets = torch.tensor([[0, 1], [2, 3]])
    direct = GramProblem.from_rows(x, y)
    derived = GramProblem(direct.gram, direct.moments, direct.totals)
    torch.testing.assert_close(direct.rows().losses(subsets), derived.rows().losses(subsets))
    one = direct.target(1).rows().losses(subsets)
    torch.testing.assert_close(one, derived.target(1).rows().losses(subsets))
    assert math.isclose(float(direct.rows().best(4)[1]), residual(x, y, torch.arange(4)))


def test_few_rows_with_large_weights() -> None:
    """Weights count observations; columns are eliminated from rows."""
    x, y = torch.randn(12, 40).double(), torch.randn(12).double()
    data = standardise(x, y, weights=torch.full((12,), 100.0).double())
    assert data.rows > data.problem.n
    assert len(choose(data, 6, settings=Settings(steps=2)).support) == 6


def test_subsets_of_columns_that_are_zero_or_alike() -> None:
    x, y = torch.zeros(6, 5).double(), torch.randn(6, 1).double()
    x[:, 3:] = 1
    supports = torch.tensor(list(itertools.permutations(range(5), 3)))
    expected = torch.tensor([residual(x, y, support) for support in supports], dtype=x.dtype)
    torch.testing.assert_close(Rows.of(x, y).losses(supports), expected)
