"""What swaps gain, and what the search finds: against solving every case anew."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ksubset import oracle
from ksubset.regression import (
    Exchange,
    GramProblem,
    Problem,
    RowProblem,
    choose,
    standardise,
    swap_search,
)

KINDS = ("gram", "rows")


def make(kind: str, m: int = 12, n: int = 7, t: int = 2) -> tuple[Problem, Tensor, Tensor]:
    x, y = torch.randn(m, n, dtype=torch.float64), torch.randn(m, t, dtype=torch.float64)
    return (GramProblem.from_rows(x, y) if kind == "gram" else RowProblem(x, y)), x, y


def plain(x: Tensor, y: Tensor, support: list[int], penalty: Tensor) -> float:
    columns = x[:, support]
    matrix = columns.T @ columns + torch.diag(penalty[support])
    weights = torch.linalg.solve(matrix, columns.T @ y)
    fit = (y - columns @ weights).square().sum()
    return float(fit + (penalty[support].unsqueeze(-1) * weights.square()).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_additions_removals_and_swaps(kind: str) -> None:
    problem, x, y = make(kind)
    penalty = torch.rand(7, dtype=torch.float64)
    supports = torch.tensor([[0, 3, 5], [6, 1, 2]])
    state = Exchange.of(problem, supports, penalty)
    swaps, differences = state.swaps(supports), state.differences(supports)
    for row, support in enumerate(supports.tolist()):
        before = plain(x, y, support, penalty)
        assert float(state.loss[row]) == pytest.approx(before)
        for j in range(7):
            if j in support:
                without = plain(x, y, [i for i in support if i != j], penalty)
                assert float(differences[row, j]) == pytest.approx(before - without)
                assert (swaps[row, j] == -torch.inf).all()
                continue
            assert float(differences[row, j]) == pytest.approx(
                plain(x, y, [*support, j], penalty) - before
            )
            for place, i in enumerate(support):
                after = plain(x, y, [j if s == i else s for s in support], penalty)
                assert float(swaps[row, j, place]) == pytest.approx(before - after, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_target_of_several(kind: str) -> None:
    problem, x, y = make(kind, t=3)
    penalty = torch.ones(7, dtype=torch.float64)
    support = torch.tensor([[1, 4]])
    for index in range(3):
        one = Exchange.of(problem.target(index), support, penalty)
        assert float(one.loss) == pytest.approx(plain(x, y[:, index : index + 1], [1, 4], penalty))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_no_swap_is_left(kind: str, seed: int) -> None:
    torch.manual_seed(seed)
    problem, x, y = make(kind, m=30, n=10, t=1)
    penalty = torch.full((10,), 1e-9, dtype=torch.float64)
    support, loss, swaps = swap_search(problem, torch.tensor([0, 1, 2]), penalty)
    found = support.tolist()
    assert swaps > 0
    assert len(set(found)) == 3
    assert float(loss) == pytest.approx(plain(x, y, found, penalty))
    for place, new in itertools.product(range(3), set(range(10)) - set(found)):
        other = [new if p == place else s for p, s in enumerate(found)]
        assert plain(x, y, other, penalty) >= float(loss) - 1e-12
    stopped, _, made = swap_search(problem, torch.tensor([0, 1, 2]), penalty, most=0)
    assert made == 0
    assert stopped.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_the_best_subset_of_all(kind: str, ridge: float) -> None:
    """Correlated columns, on which greedy choices go wrong."""
    for seed in range(5):
        torch.manual_seed(seed)
        shared = torch.randn(40, 1, dtype=torch.float64)
        x = 0.95 * shared + 0.3 * torch.randn(40, 12, dtype=torch.float64)
        x = x * torch.logspace(-2, 2, 12, dtype=x.dtype)
        y = (x[:, :4] / x[:, :4].std(0)) @ torch.tensor([1.0, -1, 1, -1], dtype=x.dtype)
        y = y + 0.3 * torch.randn(40, dtype=x.dtype)
        choice = choose(standardise(x, y, method=kind), 4, ridge=ridge)
        centred, level = x - x.mean(0), (y - y.mean()).unsqueeze(-1)
        table = oracle.support(12, 4).nonzero()[:, 1].reshape(-1, 4)
        columns = centred.T[table].transpose(1, 2)
        matrix = columns.transpose(1, 2) @ columns + ridge * torch.eye(4, dtype=x.dtype)
        moments = columns.transpose(1, 2) @ level
        costs = level.square().sum() - (moments * torch.linalg.solve(matrix, moments)).sum((1, 2))
        best = int(costs.argmin())
        assert choice.support.tolist() == table[best].tolist()
        assert choice.loss * float(level.square().sum()) == pytest.approx(float(costs[best]))


def test_columns_that_add_nothing() -> None:
    problem, x, y = make("gram", n=5, t=1)
    wide = torch.cat([x, x[:, :1], x[:, :2].sum(1, keepdim=True), 0 * x[:, :1]], 1)
    problem = GramProblem.from_rows(wide, y)
    penalty = torch.full((8,), 1e-10, dtype=x.dtype)
    support = torch.tensor([[0, 1, 2]])
    gains = Exchange.of(problem, support, penalty).additions()[0]
    assert gains[[5, 6, 7]].abs().max() < 1e-6
    assert gains[3] > 0
    found, loss, _ = swap_search(problem, torch.tensor([0, 5, 7]), penalty)
    columns = wide[:, found.tolist()]
    fit = columns @ torch.linalg.lstsq(columns, y).solution
    assert float(loss) == pytest.approx(float((y - fit).square().sum()), rel=1e-6)
    assert torch.linalg.matrix_rank(columns) == 3
