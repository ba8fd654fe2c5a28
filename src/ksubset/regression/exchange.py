"""What adding, leaving out or swapping columns does to the loss: exactly, for all of them at once.

With M = (X_S'X_S + P_S)^-1, w = M X_S'y, H = X'X_S M, c = X'(y - X_S w) and
s_j = |x_j|^2 + p_j - (H X_S'X)_jj, adding j lowers the penalised loss by c_j^2 / s_j, leaving out i
raises it by w_i^2 / M_ii, and putting j in the place of i lowers it by
(c_j + H_ji w_i / M_ii)^2 / (s_j + H_ji^2 / M_ii) - w_i^2 / M_ii.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.regression.problem import Problem


@dataclass(frozen=True)
class Exchange:
    r"""What adding, leaving out or swapping a column does to the penalised loss, for all columns at
    once.

    Of supports S (b, k), with penalties :math:`p` (n,): :math:`M = (X_S^\top X_S + P_S)^{-1}`,
    :math:`w = M X_S^\top y`, :math:`H = X^\top X_S M`, :math:`c = X^\top (y - X_S w)` and
    :math:`s_j = \|x_j\|^2 + p_j - (H X_S^\top X)_{jj}`. With several targets squares of c and w are
    summed over them.

    Attributes:
        loss: the penalised loss :math:`\|y - X_S w\|^2 + w^\top P_S w`, (b,).
        inverse: the diagonal of M, (b, k).
        weights: w, (b, k, t).
        common: c, (b, n, t).
        left: s, (b, n): zero where a column adds nothing to those chosen.
        mixed: H, (b, n, k).

    Examples:
        >>> from ksubset.regression import Exchange, make_problem
        >>> problem = make_problem(torch.eye(3), torch.tensor([3.0, 2.0, 1.0]))
        >>> support = torch.tensor([[0]])
        >>> state = Exchange.of(problem, support, penalty=torch.zeros(3))
        >>> state.loss, state.additions(), state.removals()
        (tensor([5.]), tensor([[0., 4., 1.]]), tensor([[9.]]))
    """

    loss: Tensor
    inverse: Tensor
    weights: Tensor
    common: Tensor
    left: Tensor
    mixed: Tensor

    @classmethod
    def of(
        cls, problem: Problem, support: Tensor, penalty: Tensor, products: Tensor | None = None
    ) -> Exchange:
        """Of supports, with a Cholesky factor for each.

        Args:
            problem: the least squares problem.
            support: (b, k), the chosen columns.
            penalty: of every column, (n,).
            products: X'X_S, (b, n, k), where they are known.
        """
        products = problem.products(support) if products is None else products
        matrix = products.gather(1, support.unsqueeze(-1).expand(-1, -1, support.shape[1]))
        matrix = matrix + torch.diag_embed(penalty[support])
        factor = torch.linalg.cholesky(matrix)
        inverse = torch.cholesky_inverse(factor)
        moments = problem.moments[support]
        # By the factor, not the inverse: columns may all but depend on each other.
        weights = torch.cholesky_solve(moments, factor)
        mixed = torch.cholesky_solve(products.transpose(-1, -2), factor).transpose(-1, -2)
        own = problem.squares + penalty
        left = own - (mixed * products).sum(-1)
        # Rounding leaves a little of a column that is in the span of the others.
        left = torch.where(left > 1e3 * torch.finfo(own.dtype).eps * own, left, 0)
        return cls(
            problem.total - (moments * weights).sum((-1, -2)),
            inverse.diagonal(dim1=-2, dim2=-1),
            weights,
            problem.moments - products @ weights,
            left,
            mixed,
        )

    def additions(self) -> Tensor:
        r"""By how much each column would lower the loss, :math:`c_j^2 / s_j`, (b, n)."""
        gains = self.common.square().sum(-1) / self.left
        return torch.where(self.left > 0, gains, 0)

    def removals(self) -> Tensor:
        r"""By how much leaving out each chosen column would raise the loss,
        :math:`w_i^2 / M_{ii}`, (b, k)."""
        return self.weights.square().sum(-1) / self.inverse

    def differences(self, support: Tensor) -> Tensor:
        """The discrete counterpart of the loss's gradient, (b, n): the loss with a column less the
        loss without it.

        Args:
            support: (b, k), the one the quantities are of.
        """
        return -self.additions().scatter(-1, support, self.removals())

    def swaps(self, support: Tensor) -> Tensor:
        r"""By how much column j in the place of the i-th chosen one lowers the loss, (b, n, k):
        :math:`(c_j + H_{ji} w_i / M_{ii})^2 / (s_j + H_{ji}^2 / M_{ii}) - w_i^2 / M_{ii}`.

        Args:
            support: (b, k), the one the quantities are of.
        """
        ratio = (self.weights / self.inverse.unsqueeze(-1)).unsqueeze(1)  # (b, 1, k, t)
        numerator = self.mixed.new_zeros(self.mixed.shape)
        for target in range(self.weights.shape[-1]):
            shared = self.common[..., target].unsqueeze(-1)
            numerator += (shared + self.mixed * ratio[..., target]).square()
        room = self.left.unsqueeze(-1) + self.mixed.square() / self.inverse.unsqueeze(1)
        gains = torch.where(room > 0, numerator / room, 0) - self.removals().unsqueeze(1)
        index = support.unsqueeze(-1).expand(-1, -1, support.shape[1])
        return gains.scatter(1, index, -torch.inf)


def least_penalty(dtype: torch.dtype) -> float:
    """On columns of norm 1: columns that depend on each other must not spoil a solve, nor this
    little the loss."""
    return float(torch.finfo(dtype).eps ** (2 / 3))


def swap_search(
    problem: Problem, support: Tensor, penalty: Tensor, most: int = 1000
) -> tuple[Tensor, Tensor, int]:
    r"""Put the best column in the place of the worst while that lowers the loss.

    The loss is :math:`\min_w \|y - X_S w\|^2 + w^\top P_S w`; every swap is the best one of all
    k (n - k).

    Args:
        problem: the least squares problem.
        support: (k,), where to start.
        penalty: of every column, (n,).
        most: the largest number of swaps.

    Returns:
        A support (k,) that no swap of one column improves, its penalised loss, the swaps made. As
        far as rounding lets it see: where columns agree to four digits or more and it takes their
        difference to explain y, a better swap can be missed.

    Examples:
        >>> from ksubset.regression import make_problem, swap_search
        >>> problem = make_problem(torch.eye(4), torch.tensor([1.0, 4.0, 2.0, 3.0]))
        >>> start, penalty = torch.tensor([0, 2]), torch.zeros(4)
        >>> support, loss, swaps = swap_search(problem, start, penalty)
        >>> support.sort().values, loss, swaps
        (tensor([1, 3]), tensor(5.), 2)
    """
    best = support
    products = problem.products(support.unsqueeze(0))
    tolerance = 1e2 * torch.finfo(products.dtype).eps * problem.total
    loss = problem.total.new_tensor(torch.inf)
    chosen, swaps = support, -1
    while swaps < most:
        state = Exchange.of(problem, chosen.unsqueeze(0), penalty, products)
        if not state.loss[0] < loss:  # rounding promised what it did not keep
            break
        best, loss, swaps = chosen, state.loss[0], swaps + 1
        if loss <= tolerance:
            break  # an exact fit: what is left is rounding
        gain, place = state.swaps(chosen.unsqueeze(0)).flatten().max(0)
        if not gain > tolerance:
            break
        new, out = divmod(int(place), len(chosen))
        chosen = chosen.clone()
        chosen[out] = new
        products[..., out] = problem.products(chosen[None, out : out + 1])[..., 0]
    return best, loss, swaps
