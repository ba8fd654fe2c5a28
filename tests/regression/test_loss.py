"""The ridge loss of a choice: against its definition, enumeration, autodiff and differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ksubset import oracle
from ksubset.regression import SubsetLoss

METHODS = ("gram", "rows")


def plain(x: Tensor, y: Tensor, z: Tensor, gamma: float) -> Tensor:
    """The definition, for autodiff."""
    matrix = torch.eye(len(x), dtype=x.dtype) + gamma * (x * z.unsqueeze(-2)) @ x.T
    targets = y.reshape(len(y), -1)
    return (targets * torch.linalg.solve(matrix, targets.expand(*z.shape[:-1], -1, -1))).sum(
        (-1, -2)
    )


def data(m: int, n: int, shape: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(m, n, dtype=torch.float64),
        torch.randn(m, *shape, dtype=torch.float64),
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("targets", [(), (3,)])
@pytest.mark.parametrize("gamma", [0.1, 50.0])
@pytest.mark.parametrize("m", [6, 15])
def test_every_subset_against_the_definition(
    method: str, targets: tuple[int, ...], gamma: float, m: int
) -> None:
    x, y = data(m, 8, targets)
    z = oracle.support(8, 3).to(x).requires_grad_()
    loss = SubsetLoss(x, y, gamma, method)
    values = loss(z)
    (gradient,) = torch.autograd.grad(values.sum(), z)
    exact = plain(x, y, z, gamma)
    (wanted,) = torch.autograd.grad(exact.sum(), z)
    torch.testing.assert_close(values, exact, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient, wanted, rtol=1e-8, atol=1e-10)
    # and what ridge regression says
    for row, value in list(zip(z.detach(), values.detach(), strict=True))[::11]:
        chosen = x[:, row > 0]
        matrix = chosen.T @ chosen + torch.eye(3, dtype=x.dtype) / gamma
        weights = torch.linalg.solve(matrix, chosen.T @ y)
        cost = (y - chosen @ weights).square().sum() + weights.square().sum() / gamma
        torch.testing.assert_close(value, cost)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("m", "n"), [(5, 9), (20, 4)])
def test_fractional_choices(method: str, m: int, n: int) -> None:
    x, y = data(m, n, (2,))
    z = torch.rand(2, 3, n, dtype=torch.float64)
    z[0, 0, :2] = 0
    z[1, 2] = 0
    loss = SubsetLoss(x, y, 4.0, method)
    inner = z.clone().requires_grad_()
    values = loss(inner)
    assert values.shape == (2, 3)
    (gradient,) = torch.autograd.grad(values.sum(), inner)
    torch.testing.assert_close(values.detach(), plain(x, y, z, 4.0))
    step = 1e-6 * torch.eye(n, dtype=z.dtype)
    base = z.unsqueeze(-2) + step
    ahead, behind = plain(x, y, base, 4.0), plain(x, y, base - 2 * step, 4.0)
    torch.testing.assert_close(gradient, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-6)
    assert torch.autograd.gradcheck(loss, (z.flatten(0, 1)[1:4] + 0.1).requires_grad_())


@pytest.mark.parametrize("method", METHODS)
def test_convex(method: str) -> None:
    x, y = data(7, 10)
    loss = SubsetLoss(x, y, 10.0, method)
    a, b = torch.rand(2, 50, 10, dtype=torch.float64)
    assert (loss((a + b) / 2) <= (loss(a) + loss(b)) / 2 + 1e-12).all()


@pytest.mark.parametrize("method", METHODS)
def test_float32_and_rows_of_different_size(method: str) -> None:
    x, y = data(9, 6)
    z = torch.tensor([[1.0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    exact = plain(x, y, z.double(), 2.0)
    torch.testing.assert_close(SubsetLoss(x, y, 2.0, method)(z).double(), exact, rtol=1e-6, atol=0)
    low = SubsetLoss(x.float(), y.float(), 2.0, method)(z)
    torch.testing.assert_close(low.double(), exact, rtol=1e-5, atol=1e-5)


def test_clear_errors() -> None:
    x, y = data(5, 4)
    with pytest.raises(ValueError, match="gamma must be positive, got 0"):
        SubsetLoss(x, y, 0)
    with pytest.raises(ValueError, match="y must be given"):
        SubsetLoss(x)
    with pytest.raises(ValueError, match=r"x must be \(m, n\) and y"):
        SubsetLoss(x, y[:3])
    with pytest.raises(ValueError, match="method must be one of 'auto', 'gram', 'rows', got 'lu'"):
        SubsetLoss(x, y, method="lu")
    loss = SubsetLoss(x, y)
    with pytest.raises(ValueError, match=r"z must have shape \(..., n\) with n = 4, got \(3,\)"):
        loss(torch.ones(3))
    with pytest.raises(ValueError, match="z must not be negative"):
        loss(-torch.ones(4))
    with pytest.raises(TypeError, match="z must be a floating point tensor, got list"):
        loss([1.0])  # type: ignore[arg-type]
