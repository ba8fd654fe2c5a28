"""The expected loss itself, by enumeration: the gold standard."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ksubset import oracle
from ksubset._arguments import problem
from ksubset.estimators.base import Estimator, Loss, evaluate
from ksubset.functional import log_prob, mode

_CHUNK = 4096


class Exact(Estimator):
    r"""All subsets of small problems: :math:`\sum_z p_\theta(z) f(z)`, no sampling.

    The surrogate is the expected loss, summed over examples, and its gradient the exact
    :math:`\sum_z f(z) \nabla p_\theta(z) = \mathrm{Cov}(z, f(z))`. There is ``surrogate`` only, of
    logits (..., n); number of samples and generator make no difference.

    Rows that share a loss are enumerated jointly, so that their numbers of subsets multiply.

    Args:
        most_subsets: the largest number of combinations to go through, else an error.

    Examples:
        >>> from ksubset.estimators import Exact
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> both = lambda z: z[..., 0] * z[..., 1]  # are items 0 and 1 chosen together?
        >>> chance = Exact().surrogate(both, logits, 2)
        >>> chance
        tensor(0.1667, grad_fn=<AddBackward0>)
        >>> chance.backward()
        >>> logits.grad
        tensor([ 0.0833,  0.0833, -0.0833, -0.0833])
    """

    def __init__(self, most_subsets: int = 1_000_000) -> None:
        super().__init__()
        self.most_subsets = most_subsets

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 1,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        given = problem(logits, k, mask)
        if not given.logits.numel():
            return 0 * given.logits.sum()
        table, counts = _subsets(given.k, given.n, self.most_subsets)
        table = table.to(given.logits)
        # How many rows share a loss is known once one was seen.
        with torch.no_grad():
            seen = evaluate(loss_fn, mode(logits, k, mask=mask).unsqueeze(0), vectorized)
        rows = len(given.logits)
        groups = rows // max(seen[0].numel(), 1)
        per_row = table.shape[1]
        combinations = per_row**groups
        if combinations > self.most_subsets:
            raise ValueError(
                f"{combinations:.0e} combinations of subsets are more than most_subsets = "
                f"{self.most_subsets}"
            )
        # (rows, subsets): padding of rows with fewer subsets has no probability.
        scores = log_prob(given.logits.unsqueeze(1), given.k.unsqueeze(-1), table)
        present = torch.arange(per_row, device=counts.device) < counts.unsqueeze(-1)
        scores = torch.where(present, scores, -torch.inf)
        position = torch.arange(rows, device=scores.device) % groups
        total = scores.new_zeros(())
        for start in range(0, combinations, _CHUNK):
            index = torch.arange(start, min(start + _CHUNK, combinations), device=scores.device)
            # The digits of the index: which subset each row of a group takes.
            chosen = (index.unsqueeze(-1) // per_row**position) % per_row  # (chunk, rows)
            row = torch.arange(rows, device=scores.device)
            z = given.vector(table[row, chosen])
            losses = evaluate(loss_fn, z, vectorized)
            probability = scores[row, chosen].reshape(len(index), -1, groups).sum(-1).exp()
            total = total + (probability * losses.reshape(len(index), -1)).sum()
        return total


def _subsets(k: Tensor, n: int, most: int) -> tuple[Tensor, Tensor]:
    """All subsets of every row, (rows, subsets, n), padded by repeating one; their numbers."""
    sizes = {int(size): math.comb(n, int(size)) for size in k.unique()}
    if max(sizes.values(), default=1) > most:
        raise ValueError(
            f"{max(sizes.values())} subsets of {n} items are more than most_subsets = {most}"
        )
    longest = max(sizes.values(), default=1)
    tables = {}
    for size, count in sizes.items():
        subsets = oracle.support(n, size)
        tables[size] = torch.cat([subsets, subsets[:1].expand(longest - count, n)])
    rows = [tables[int(size)] for size in k]
    table = torch.stack(rows) if rows else torch.zeros(0, longest, n)
    counts = torch.tensor([sizes[int(size)] for size in k], dtype=torch.int64)
    return table.to(k.device), counts.to(k.device)
