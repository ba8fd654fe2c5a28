"""The ridge loss of a subset of columns, with a gradient that sees the columns not chosen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ksubset.regression.problem import GramProblem, Problem, RowProblem


class SubsetLoss:
    r"""Ridge regression on the chosen columns, as a function of the choice z:

    :math:`\ell(z) = y^\top a, \quad a = (I + \gamma X \mathrm{diag}(z) X^\top)^{-1} y, \quad
    \partial \ell / \partial z_i = -\gamma (x_i^\top a)^2,`

    summed over targets. For binary z it is
    :math:`\min_w \|y - X_S w\|^2 + \|w\|^2 / \gamma`, by k x k solves; it is convex in z >= 0. The
    gradient is defined for columns that are not chosen too; it can be taken once.

    It is called with choices or weights (..., n) and returns losses (...).

    Args:
        x: (m, n); or a :class:`Problem`, without y.
        y: (m,) or (m, t).
        gamma: the inverse of the ridge penalty.
        method: "gram", once X'X, then independent of the rows; "rows", X is never squared; "auto".

    Examples:
        >>> from ksubset.regression import SubsetLoss
        >>> x = torch.eye(3, dtype=torch.float64)
        >>> y = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
        >>> loss = SubsetLoss(x, y, gamma=1.0)
        >>> z = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
        >>> value = loss(z)
        >>> value.item()  # 9 / 2 + 4 + 1 / 2
        9.0
        >>> value.backward()
        >>> z.grad
        tensor([-2.2500, -4.0000, -0.2500], dtype=torch.float64)
    """

    def __init__(
        self,
        x: Tensor | Problem,
        y: Tensor | None = None,
        gamma: float = 1.0,
        method: str = "auto",
    ) -> None:
        if not gamma > 0:
            raise ValueError(f"gamma must be positive, got {gamma!r}")
        self.gamma = float(gamma)
        if isinstance(x, Problem):
            self.problem = x
        elif y is None:
            raise ValueError("y must be given with x")
        else:
            self.problem = make_problem(x, y, method)

    def __call__(self, z: Tensor) -> Tensor:
        """(...) of choices or weights z (..., n), none of them negative."""
        if not isinstance(z, Tensor) or not z.is_floating_point():
            kind = z.dtype if isinstance(z, Tensor) else type(z).__name__
            raise TypeError(f"z must be a floating point tensor, got {kind}")
        if z.dim() == 0 or z.shape[-1] != self.problem.n:
            raise ValueError(
                f"z must have shape (..., n) with n = {self.problem.n}, got {tuple(z.shape)}"
            )
        if bool((z.detach() < 0).any()):
            raise ValueError("z must not be negative")
        return _Loss.apply(z, self)

    def gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Values (b,) and gradients (b, n) of weights z (b, n)."""
        support = _support(z)
        if support is None:
            values, left = self.problem.fractional(z, self.gamma)
            return values, -self.gamma * left.square().sum(-1)
        weights, values = self.problem.solve(support, 1 / self.gamma)
        left = self.problem.correlations(support, weights).square().sum(-1)
        # x_i'a is w_i / gamma for a chosen column: known, where the difference would cancel.
        left = left.scatter(-1, support, (weights / self.gamma).square().sum(-1))
        return values, -self.gamma * left


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, loss: SubsetLoss) -> Tensor:
        rows = z.reshape(-1, z.shape[-1]).to(loss.problem.moments.dtype)
        values, gradient = loss.gradient(rows)
        ctx.save_for_backward(gradient.reshape(z.shape).to(z.dtype))
        return values.reshape(z.shape[:-1]).to(z.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * gradient, None


def _support(z: Tensor) -> Tensor | None:
    """The chosen columns (b, k) of binary rows with equally many ones each."""
    if not z.numel() or not bool(((z == 0) | (z == 1)).all()):
        return None
    counts = z.sum(-1)
    k = int(counts[0])
    if not k or not bool((counts == k).all()):
        return None
    return z.nonzero()[:, 1].reshape(-1, k)


# A larger Gram matrix is not reasonable; with few rows, one of more than 1000 columns is more work
# than all that is done with it.
_MOST_COLUMNS, _MANY_COLUMNS = 5000, 1000


def make_problem(x: Tensor, y: Tensor, method: str = "auto") -> Problem:
    """The problem of X (m, n) and y (m,) or (m, t), by its Gram matrix or by its rows.

    Args:
        x: X, (m, n).
        y: (m,) or (m, t).
        method: "gram", once X'X, then independent of the rows; "rows", X is never squared; "auto",
            the Gram matrix up to 1000 columns, and up to 5000 if there is a row for every four.

    Returns:
        A :class:`GramProblem` or a :class:`RowProblem`.

    Examples:
        >>> from ksubset.regression import make_problem
        >>> x, y = torch.eye(3), torch.tensor([3.0, 2.0, 1.0])
        >>> problem = make_problem(x, y, method="rows")
        >>> type(problem).__name__, problem.moments.shape, problem.total
        ('RowProblem', torch.Size([3, 1]), tensor(14.))
    """
    if x.dim() != 2 or y.dim() not in (1, 2) or len(y) != len(x):
        raise ValueError(
            f"x must be (m, n) and y (m,) or (m, t), got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if method not in ("auto", "gram", "rows"):
        raise ValueError(f"method must be one of 'auto', 'gram', 'rows', got {method!r}")
    if method == "auto":
        rows, columns = x.shape
        few = columns <= _MANY_COLUMNS or columns <= min(_MOST_COLUMNS, 4 * rows)
        method = "gram" if few else "rows"
    targets = y.reshape(len(y), -1)
    return GramProblem.from_rows(x, targets) if method == "gram" else RowProblem(x, targets)
