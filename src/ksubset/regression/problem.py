"""A least squares problem as the losses and the search see it: by its Gram matrix or by its rows.

Both answer the same questions, for batches of supports (b, k): the blocks of the Gram matrix, and
what the residual has in common with every column.
"""

from __future__ import annotations

import abc
import copy

import torch
from torch import Tensor

from ksubset.regression.rows import MOST_COLUMNS, Rows

# Rows times squared columns up to which rows are factored: a few tenths of a second.
_MOST_FACTORED = 2**31


class Problem(abc.ABC):
    """y (m, t) explained by columns of X (m, n): what losses and search ask of it.

    Abstract; :func:`make_problem` makes one. Supports are (b, k), a batch of k columns each.

    Attributes:
        moments: X'y, (n, t).
        squares: the squared norms of the columns of X, (n,).
        totals: y'y of every target, (t,).

    Examples:
        >>> from ksubset.regression import Problem, make_problem
        >>> problem = make_problem(torch.eye(3), torch.tensor([3.0, 2.0, 1.0]))
        >>> isinstance(problem, Problem), problem.n
        (True, 3)
        >>> weights, loss = problem.solve(torch.tensor([[0, 1], [1, 2]]), penalty=0.0)
        >>> weights.squeeze(-1).tolist(), loss  # of two supports
        ([[3.0, 2.0], [2.0, 1.0]], tensor([1., 9.]))
    """

    moments: Tensor
    squares: Tensor
    totals: Tensor

    @property
    def total(self) -> Tensor:
        """y'y summed over targets."""
        return self.totals.sum()

    @abc.abstractmethod
    def target(self, index: int) -> Problem:
        """One target alone."""

    @property
    def n(self) -> int:
        """The number of columns."""
        return self.moments.shape[0]

    @abc.abstractmethod
    def block(self, support: Tensor) -> Tensor:
        """X_S'X_S, (b, k, k), of supports (b, k)."""

    @abc.abstractmethod
    def products(self, support: Tensor) -> Tensor:
        """X'X_S, (b, n, k), of supports (b, k)."""

    @abc.abstractmethod
    def correlations(self, support: Tensor, weights: Tensor) -> Tensor:
        """X'(y - X_S w), (b, n, t), of weights (b, k, t)."""

    @abc.abstractmethod
    def fractional(self, z: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """y'a summed over targets, (b,), and X'a, (b, n, t), with
        a = (I + gamma X diag(z) X')^-1 y, of weights z >= 0 (b, n)."""

    def solve(self, support: Tensor, penalty: float | Tensor) -> tuple[Tensor, Tensor]:
        r"""Ridge weights w (b, k, t) of supports, and their penalised loss (b,):
        :math:`\min_w \|y - X_S w\|^2 + w^\top P_S w`.

        Args:
            support: (b, k).
            penalty: one for all columns, or (n,).
        """
        matrix = self.block(support)
        extra = penalty[support] if isinstance(penalty, Tensor) else penalty
        matrix.diagonal(dim1=-2, dim2=-1).add_(extra)
        moments = self.moments[support]
        weights = torch.cholesky_solve(moments, _cholesky(matrix))
        return weights, self.total - (moments * weights).sum((-1, -2))


class GramProblem(Problem):
    """From the Gram matrix: the cost of everything is independent of the rows.

    Args:
        gram: X'X, (n, n).
        moments: X'y, (n, t).
        totals: y'y of every target, (t,).
        rows: X and y themselves, rotated, where they are known.

    Examples:
        >>> from ksubset.regression import GramProblem
        >>> x, y = torch.eye(3), torch.tensor([[3.0], [2.0], [1.0]])
        >>> problem = GramProblem(x.T @ x, x.T @ y, (y * y).sum(0))  # or from_rows(x, y)
        >>> problem.block(torch.tensor([[0, 2]]))
        tensor([[[1., 0.],
                 [0., 1.]]])
    """

    def __init__(
        self, gram: Tensor, moments: Tensor, totals: Tensor, rows: Rows | None = None
    ) -> None:
        self.gram, self.moments, self.totals = gram, moments, totals
        self.squares = gram.diagonal()
        self._rows = rows

    @classmethod
    def from_rows(cls, x: Tensor, y: Tensor) -> GramProblem:
        """Of X (m, n) and y (m, t), in one pass over the rows."""
        few = x.shape[1] <= MOST_COLUMNS and x.numel() * x.shape[1] <= _MOST_FACTORED
        rows = Rows.of(x, y) if few else None
        return cls(x.T @ x, x.T @ y, y.square().sum(0), rows)

    def rows(self) -> Rows:
        """With digits that the Gram matrix has not, where it was made from few enough rows."""
        if self._rows is None:
            self._rows = Rows.from_gram(self.gram, self.moments, self.totals)
        return self._rows

    def target(self, index: int) -> GramProblem:
        """One target alone."""
        one = slice(index, index + 1)
        rows = self._rows and self._rows.target(index)
        return GramProblem(self.gram, self.moments[:, one], self.totals[one], rows)

    def block(self, support: Tensor) -> Tensor:
        """X_S'X_S."""
        return self.gram[support.unsqueeze(-1), support.unsqueeze(-2)]

    def products(self, support: Tensor) -> Tensor:
        """X'X_S."""
        return self.gram[support].transpose(-1, -2)

    def correlations(self, support: Tensor, weights: Tensor) -> Tensor:
        """X'(y - X_S w)."""
        return self.moments - self.gram[support].transpose(-1, -2) @ weights

    def fractional(self, z: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """By n x n solves."""
        root = (gamma * z).sqrt()
        matrix = root.unsqueeze(-1) * self.gram * root.unsqueeze(-2)
        matrix.diagonal(dim1=-2, dim2=-1).add_(1)
        inner = torch.cholesky_solve(root.unsqueeze(-1) * self.moments, _cholesky(matrix))
        weights = root.unsqueeze(-1) * inner
        values = self.total - (self.moments * weights).sum((-1, -2))
        return values, self.moments - self.gram @ weights


class RowProblem(Problem):
    """From the rows: X'X is never formed, memory stays O(mn).

    Args:
        x: X, (m, n).
        y: (m, t).

    Examples:
        >>> from ksubset.regression import RowProblem
        >>> problem = RowProblem(torch.eye(3), torch.tensor([[3.0], [2.0], [1.0]]))
        >>> support, weights = torch.tensor([[0]]), torch.tensor([[[3.0]]])
        >>> problem.correlations(support, weights).flatten()  # with what is left of y
        tensor([0., 2., 1.])
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.moments, self.totals = x.T @ y, y.square().sum(0)
        # A product of columns with themselves, without a copy of X.
        self.squares = x.new_zeros(x.shape[1])
        for part in x.split(16):
            self.squares += part.square().sum(0)

    def target(self, index: int) -> RowProblem:
        """One target alone."""
        one = copy.copy(self)
        one.y, one.moments = (each[:, index : index + 1] for each in (self.y, self.moments))
        one.totals = self.totals[index : index + 1]
        return one

    def columns(self, support: Tensor) -> Tensor:
        """The columns of supports, (b, k, m)."""
        return self.x.T[support]

    def back(self, a: Tensor) -> Tensor:
        """X'a, (n, c), of a', (c, m)."""
        return (a @ self.x).T

    def block(self, support: Tensor) -> Tensor:
        """X_S'X_S."""
        columns = self.columns(support)
        return columns @ columns.transpose(-1, -2)

    def products(self, support: Tensor) -> Tensor:
        """X'X_S."""
        return self._back(self.columns(support).transpose(-1, -2))

    def correlations(self, support: Tensor, weights: Tensor) -> Tensor:
        """X'(y - X_S w)."""
        return self._back(self.y - self.columns(support).transpose(-1, -2) @ weights)

    def fractional(self, z: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """By m x m solves, one weighting at a time: each needs X with scaled columns."""
        left = []
        for row in z:
            active = (row > 0).nonzero().squeeze(-1)
            scaled = self.columns(active.unsqueeze(0))[0].T * (gamma * row[active]).sqrt()
            matrix = scaled @ scaled.T
            matrix.diagonal().add_(1)
            left.append(torch.cholesky_solve(self.y, _cholesky(matrix)))
        a = torch.stack(left)
        return (self.y * a).sum((-1, -2)), self._back(a)

    def _back(self, a: Tensor) -> Tensor:
        """X'a of (b, m, c): one product for the whole batch."""
        found = self.back(a.transpose(-1, -2).reshape(-1, a.shape[-2]))
        return found.T.reshape(a.shape[0], a.shape[-1], self.n).transpose(-1, -2)


def _cholesky(matrix: Tensor) -> Tensor:
    return torch.linalg.cholesky(matrix)
