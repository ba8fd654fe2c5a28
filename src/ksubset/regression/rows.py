"""Losses of subsets without squaring the condition number: where columns nearly depend on each
other, their Gram matrix cannot tell an exact fit from a good one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

# Columns up to which a problem is kept as rows too: eliminating them takes half a second.
MOST_COLUMNS = 256
# Numbers in the subsets that are factored together.
_AT_ONCE = 2**22


class Rows:
    """X (m, n) and y (m, t), rotated to at most n + t rows: what least squares on a subset of the
    columns leaves of y, by QR factors.

    Args:
        x: X, (m, n).
        y: (m, t).

    Examples:
        >>> from ksubset.regression import Rows
        >>> rows = Rows.of(torch.eye(3), torch.tensor([[3.0], [2.0], [1.0]]))
        >>> rows.losses(torch.tensor([[0, 1], [1, 2]]))
        tensor([1., 9.])
        >>> rows.backward(1), rows.best(2)
        (tensor([0]), (tensor([0, 1]), tensor(1.)))
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Rows:
        """Rotated: the triangle of a QR factorisation of [X, y]."""
        both = torch.cat([x, y], 1)
        if len(both) > both.shape[1]:
            both = torch.linalg.qr(both, mode="r").R
        return cls(both[:, : x.shape[1]], both[:, x.shape[1] :])

    @classmethod
    def from_gram(cls, gram: Tensor, moments: Tensor, totals: Tensor) -> Rows:
        """From X'X (n, n), X'y (n, t) and y'y of every target: as good as these are."""
        values, vectors = torch.linalg.eigh(gram)
        size = values.clamp_min(0).sqrt()
        # Less is rounding, which columns of zeros must not be made of.
        seen = size > size.max() * torch.finfo(gram.dtype).eps ** 0.5
        x = torch.where(seen, size, 0).unsqueeze(-1) * vectors.T * (gram.diagonal() > 0)
        y = torch.where(seen, 1 / size, 0).unsqueeze(-1) * (vectors.T @ moments)
        left = (totals - y.square().sum(0)).clamp_min(0).sqrt()
        return cls(torch.cat([x, x.new_zeros(len(left), len(x))]), torch.cat([y, left.diag()]))

    def target(self, index: int) -> Rows:
        """One target alone."""
        return Rows(self.x, self.y[:, index : index + 1])

    def penalised(self, penalty: Tensor) -> Rows:
        """With the row sqrt(p_j) e_j for every column that has a penalty p_j, (n,): least squares
        are ridge regression then."""
        rows = penalty.sqrt().diag()[penalty > 0]
        y = torch.cat([self.y, self.y.new_zeros(len(rows), self.y.shape[1])])
        return Rows(torch.cat([self.x, rows]), y)

    def losses(self, supports: Tensor) -> Tensor:
        """What least squares on each of the subsets (b, k) leaves of y, (b,)."""
        k, t = supports.shape[1], self.y.shape[1]
        short = (0, 0, 0, max(0, k + t - len(self.y)))  # the triangle has a row for each of them
        x, y = functional.pad(self.x, short), functional.pad(self.y, short)
        m, found = len(y), []
        for part in supports.split(max(1, _AT_ONCE // (m * (k + t)))):
            factor = _triangle(x, part, y)
            # Columns in the span of others go behind these, where no column needs the arbitrary
            # directions that they get: one column of every subset at a time.
            for turn in range(k):
                dependent = _dependent(factor[:, :k, :k])
                early = dependent[:, : k - turn].any(-1)
                if not early.any():
                    break
                some, first = part[early], dependent[early].to(torch.uint8).argmax(-1, keepdim=True)
                place = torch.arange(k - 1, device=x.device).expand(len(some), -1)
                some = torch.cat(
                    [some.gather(1, place + (place >= first)), some.gather(1, first)], 1
                )
                part = part.masked_scatter(early.unsqueeze(-1), some)
                factor[early] = _triangle(x, some, y)
            dependent = _dependent(factor[:, :k, :k])
            explained, left = factor[:, :k, k:].square().sum(-1), factor[:, k:, k:].square()
            lost = torch.where(dependent, explained, 0)
            found.append(left.sum((-1, -2)) + lost.sum(-1))
        return torch.cat(found)

    def backward(self, k: int) -> Tensor:
        """The k columns that backward elimination leaves, (k,): the column that explains least
        beside the others is left out, again and again. There must be as many rows as columns."""
        x, y = self.x, self.y
        support = torch.arange(x.shape[1], device=x.device)
        while len(support) > k:
            size = len(support)
            factor = torch.linalg.qr(torch.cat([x, y], 1), mode="r").R
            x, y = factor[:, :size], factor[:, size:]
            dependent = _dependent(x[:size])
            if dependent.any():
                out = int(dependent.nonzero()[0])
            else:
                unit = torch.eye(size, dtype=x.dtype, device=x.device)
                inverse = torch.linalg.solve_triangular(x[:size], unit, upper=True)
                weights = inverse @ y[:size]
                out = int((weights.square().sum(-1) / inverse.square().sum(-1)).argmin())
            kept = torch.arange(size, device=x.device) != out
            x, support = x[:, kept], support[kept]
        return support

    @property
    def rounding(self) -> Tensor:
        """The loss that rounding leaves of an exact fit."""
        return (1e2 * torch.finfo(self.y.dtype).eps) ** 2 * self.y.square().sum()

    def least(self, supports: Tensor, losses: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The one (k,) of (b, k) with the smallest loss, and that loss; of several that fit
        exactly, the one with the smallest coefficients.

        Args:
            supports: (b, k).
            losses: of these, (b,), where they are known.
        """
        losses = self.losses(supports) if losses is None else losses
        exact = (losses <= self.rounding).nonzero()[:, 0]
        place = losses.argmin()
        if len(exact) > 1:
            penalty = self.x.new_full(self.x.shape[1:], torch.finfo(self.x.dtype).eps ** (2 / 3))
            place = exact[self.penalised(penalty).losses(supports[exact]).argmin()]
        return supports[place], losses[place]

    def best(self, k: int) -> tuple[Tensor, Tensor]:
        """:meth:`least` of all subsets of k columns."""
        return self.least(self.subsets(k))

    def subsets(self, k: int) -> Tensor:
        """All subsets of k columns, (b, k)."""
        return _combinations(range(self.x.shape[1]), k).to(self.x.device)

    def swapped(self, support: Tensor, count: int) -> Tensor:
        """All subsets that differ from one, (k,), in as many columns, (swaps, k)."""
        chosen = set(support.tolist())
        new = _combinations([j for j in range(self.x.shape[1]) if j not in chosen], count)
        kept = _combinations(support.tolist(), len(support) - count)
        pairs = kept.repeat_interleave(len(new), 0), new.repeat(len(kept), 1)
        return torch.cat(pairs, 1).to(self.x.device)


def _triangle(x: Tensor, supports: Tensor, y: Tensor) -> Tensor:
    """The triangles of QR factorisations of [X_S, y], (b, m, k + t)."""
    columns = x.T[supports].transpose(-1, -2)
    both = torch.cat([columns, y.expand(len(columns), *y.shape)], -1)
    return torch.linalg.qr(both, mode="r").R


def _combinations(columns: Sequence[int], count: int) -> Tensor:
    subsets = list(itertools.combinations(columns, count))
    return torch.tensor(subsets, dtype=torch.int64).reshape(len(subsets), count)


def _dependent(triangle: Tensor) -> Tensor:
    """Columns (..., n) in the span of those before them, by their triangle: what is left of them
    is rounding, and so is its direction."""
    norms = torch.linalg.vector_norm(triangle, dim=-2)
    left = triangle.diagonal(dim1=-2, dim2=-1).abs()
    return left <= 1e1 * torch.finfo(norms.dtype).eps * norms
