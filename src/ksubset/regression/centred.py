"""A problem on columns that are centred and scaled only where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksubset.regression.problem import RowProblem


class CentredProblem(RowProblem):
    r"""Of :math:`\tilde x_j = v^{1/2} (x_j - \bar x_j) / s_j`, with X as it was given: memory stays
    that of X, and a sparse X stays sparse.

    The products with all columns are :math:`\tilde X^\top a = (X^\top b - \bar x\, 1^\top b) / s`
    with :math:`b = v^{1/2} a`. Where a is a centred column itself, :math:`1^\top b` is rounding, so
    that large means cost few digits.

    Args:
        x: X, (m, n): a tensor, or a matrix of scipy.sparse in float64.
        y: (m, t), centred and weighted.
        middle: the means, (n,).
        scale: the norms, (n,); inf for columns that are to be zero.
        root: the square roots of the weights, (m,); None for equal ones.

    Examples:
        >>> from ksubset.regression import CentredProblem
        >>> x = torch.tensor([[1.0, 5.0], [4.0, 5.0], [1.0, 5.0], [4.0, 5.0]])
        >>> y, scale = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]), torch.tensor([3.0, torch.inf])
        >>> problem = CentredProblem(x, y, x.mean(0), scale)
        >>> problem.moments.flatten(), problem.squares
        (tensor([2., 0.]), tensor([1., 0.]))
    """

    def __init__(
        self, x: Any, y: Tensor, middle: Tensor, scale: Tensor, root: Tensor | None = None
    ) -> None:
        self.x, self.y = x, y
        self._middle, self._scale, self._root = middle, scale, root
        self.moments, self.totals = self.back(y.T), y.square().sum(0)
        self.squares = torch.where(scale.isfinite(), torch.ones_like(scale), 0)

    def columns(self, support: Tensor) -> Tensor:
        """The columns of supports, (b, k, m)."""
        index = support.flatten()
        if isinstance(self.x, Tensor):
            columns = self.x[:, index]
        else:
            columns = torch.from_numpy(self.x[:, index.numpy()].toarray())
        columns = (columns - self._middle[index]) / self._scale[index]
        if self._root is not None:
            columns = columns * self._root.unsqueeze(-1)
        return columns.T.reshape(*support.shape, len(columns))

    def back(self, a: Tensor) -> Tensor:
        """X'a, (n, c), of a', (c, m)."""
        a = a if self._root is None else a * self._root
        if isinstance(self.x, Tensor):
            found = (a @ self.x).T
        else:
            found = torch.from_numpy(np.asarray(self.x.T @ np.ascontiguousarray(a.numpy().T)))
        found = found - self._middle.unsqueeze(-1) * a.sum(-1)
        return found / self._scale.unsqueeze(-1)
