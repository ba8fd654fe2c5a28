"""The truth about a batch of rows, in extended precision, with derivatives of second order.

The paper's dynamic programme in log space, on numpy's widest floating point type (80 bits on x86),
over rows that share n but not k. It has no idea in common with the library's methods: no tilt, no
spectrum, no autodiff. Expectations are averages of averages over prefixes and suffixes, with
non-negative weights, so that nothing large cancels.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

Array = np.ndarray
WIDE = np.longdouble


# Items whose logits are further than this from where the choice is made are as good as certain.
FAR = 2000
# What is less likely does not count, however much less likely another distribution finds it.
NEVER = 1e-30


class Exact:
    """k-subset distributions of the rows of ``logits`` (rows, n), float64; -inf forbids, +inf
    forces. ``k`` (rows,) must be possible.

    Logits are taken relative to the k-th largest, and items beyond :data:`FAR` become certain:
    else sums of logits at 1e9 would leave no digits for what counts. With ``far=inf`` none do.
    """

    def __init__(self, logits: Array, k: Array, far: float = FAR) -> None:
        theta = np.asarray(logits, dtype=WIDE)
        self.logits = logits
        self.rows, self.n = theta.shape
        self.k = np.asarray(k, dtype=np.int64)
        self.finite = np.isfinite(theta)
        self.forced, self.forbidden = theta == np.inf, theta == -np.inf
        rows = np.arange(self.rows)
        ordered = -np.sort(-theta, 1)
        ordered = np.pad(ordered, ((0, 0), (1, 1)), constant_values=(np.inf, -np.inf))
        # The lowest of those most likely chosen, and the highest of the others.
        last, first = ordered[rows, self.k], ordered[rows, self.k + 1]
        centre = np.where(np.isfinite(last), last, np.where(np.isfinite(first), first, 0))
        with np.errstate(invalid="ignore"):
            self.theta = np.where(self.finite, theta - centre[:, None], 0)
            certain = self.finite & (theta - first[:, None] > far)
            hopeless = self.finite & (last[:, None] - theta > far)
        # What choosing an item adds to the score, and what leaving it does.
        self.open = self.finite & ~certain & ~hopeless
        self.take = np.where(self.forbidden | hopeless, -np.inf, np.where(self.open, self.theta, 0))
        self.leave = np.where(self.forced | certain, -np.inf, WIDE(0))
        self.constant = np.where(certain, self.theta, 0).sum(1)
        self.constant = self.constant + centre * (self.k - self.forced.sum(1))

    @cached_property
    def width(self) -> int:
        return int(self.k.max(initial=0)) + 1

    @cached_property
    def prefix(self) -> Array:
        """log-sum of scores of choices of j among the first i: (n + 1, rows, width)."""
        table = np.full((self.n + 1, self.rows, self.width), -np.inf, dtype=WIDE)
        table[0, :, 0] = 0
        for i in range(self.n):
            table[i + 1] = table[i] + self.leave[:, i, None]
            table[i + 1, :, 1:] = np.logaddexp(
                table[i + 1, :, 1:], table[i, :, :-1] + self.take[:, i, None]
            )
        return table

    @cached_property
    def suffix(self) -> Array:
        """log-sum of scores of completions to k by the items from i on: (n + 1, rows, ...)."""
        table = np.full((self.n + 1, self.rows, self.width + 1), -np.inf, dtype=WIDE)
        table[self.n, np.arange(self.rows), self.k] = 0
        for i in reversed(range(self.n)):
            table[i, :, :-1] = np.logaddexp(
                table[i + 1, :, :-1] + self.leave[:, i, None],
                table[i + 1, :, 1:] + self.take[:, i, None],
            )
        return table

    @cached_property
    def log_total(self) -> Array:
        """The log-sum of the scores."""
        return self.suffix[0, :, 0]

    @property
    def log_partition(self) -> Array:
        """A over the finite logits."""
        return self.log_total + self.constant

    def log_prob(self, z: Array) -> Array:
        """Of k-hot rows that respect what is certain."""
        return np.where(self.open, z * self.theta, 0).sum(1) - self.log_total

    @cached_property
    def chosen(self) -> Array:
        """P(item i chosen, j chosen before it): (n, rows, width)."""
        return np.exp(
            self.prefix[:-1]
            + self.take.T[:, :, None]
            + self.suffix[1:, :, 1:]
            - self.log_total[:, None]
        )

    @cached_property
    def left(self) -> Array:
        """P(item i left, j chosen before it): (n, rows, width)."""
        return np.exp(
            self.prefix[:-1]
            + self.leave.T[:, :, None]
            + self.suffix[1:, :, :-1]
            - self.log_total[:, None]
        )

    @cached_property
    def marginals(self) -> Array:
        return self.chosen.sum(2).T

    @cached_property
    def rests(self) -> Array:
        """1 - marginals, to full relative precision."""
        return self.left.sum(2).T

    def _log_taking(self) -> tuple[Array, Array]:
        """log P(i chosen | j chosen before it) and log P(i left | ...): (n, rows, width)."""
        with np.errstate(invalid="ignore"):
            take = self.take.T[:, :, None] + self.suffix[1:, :, 1:] - self.suffix[:-1, :, :-1]
            leave = self.leave.T[:, :, None] + self.suffix[1:, :, :-1] - self.suffix[:-1, :, :-1]
        return take, leave

    @cached_property
    def entropy(self) -> Array:
        """By the chain rule over items: a sum of non-negative terms."""
        take, leave = self._log_taking()
        with np.errstate(invalid="ignore"):
            terms = np.where(self.chosen > 0, -self.chosen * take, 0)
            terms += np.where(self.left > 0, -self.left * leave, 0)
        return terms.sum((0, 2))

    def divergence(self, other: Exact) -> Array:
        """KL(self || other) by the chain rule over items."""
        value = self._divergence(other)
        if np.isinf(value).any() and not other.open.all():
            # Perhaps only because what is as good as certain is taken to be so.
            value = np.where(np.isinf(value), self._divergence(other.with_all_open()), value)
        return value

    def with_all_open(self) -> Exact:
        return Exact(self.logits, self.k, far=np.inf)

    def _divergence(self, other: Exact) -> Array:
        take, leave = self._log_taking()
        other_take, other_leave = other._log_taking()
        width = self.width
        with np.errstate(invalid="ignore"):
            taken, kept = self.chosen, self.left
            terms = np.where(taken > NEVER, taken * (take - other_take[..., :width]), 0)
            terms += np.where(kept > NEVER, kept * (leave - other_leave[..., :width]), 0)
        # A state that the other cannot reach has no conditional probabilities there.
        total = np.where(np.isnan(terms), np.inf, terms).sum((0, 2))
        return np.where(self.k == other.k, total, np.inf)

    def uniform(self) -> Exact:
        """The uniform distribution over the k-subsets of the items that are not forbidden."""
        return Exact(np.where(self.forbidden, -np.inf, 0.0), self.k)

    @cached_property
    def _steps(self) -> tuple[Array, Array, Array, Array]:
        """P(i chosen | j among the first i + 1) and P(i left | ...), (n, rows, width), and the same
        given that the items from i on complete j to k."""
        take, leave = self.take.T[:, :, None], self.leave.T[:, :, None]
        prefix, suffix = self.prefix, self.suffix
        with np.errstate(invalid="ignore"):
            logs = (
                prefix[:-1, :, :-1] + take - prefix[1:, :, 1:],
                prefix[:-1] + leave - prefix[1:],
                suffix[1:, :, 1:] + take - suffix[:-1, :, :-1],
                suffix[1:, :, :-1] + leave - suffix[:-1, :, :-1],
            )
        chosen, left, chosen_after, left_after = (
            np.exp(x, where=~np.isnan(x), out=np.zeros_like(x)) for x in logs
        )
        return chosen, left, chosen_after, left_after

    def _sweep(self, *vectors: Array) -> tuple[list[Array], list[Array]]:
        """E[U], and for two vectors E[V] and E[U V], of what the items before i add, given j chosen
        there, and of what those from i on add, given that they complete j to k."""
        order = 3 if len(vectors) == 2 else 1
        before = [np.zeros((self.n + 1, self.rows, self.width), WIDE) for _ in range(order)]
        after = [np.zeros((self.n + 1, self.rows, self.width + 1), WIDE) for _ in range(order)]
        chosen, left, chosen_after, left_after = self._steps
        for i in range(self.n):
            here = [v[:, i, None] for v in vectors]
            moved = _moved([table[i, :, :-1] for table in before], here)
            for table, part in zip(before, moved, strict=True):
                table[i + 1] = left[i] * table[i]
                table[i + 1, :, 1:] += chosen[i] * part
        for i in reversed(range(self.n)):
            here = [v[:, i, None] for v in vectors]
            moved = _moved([table[i + 1, :, 1:] for table in after], here)
            for table, part in zip(after, moved, strict=True):
                table[i, :, :-1] = chosen_after[i] * part + left_after[i] * table[i + 1, :, :-1]
        return before, after

    def centred(self, v: Array) -> Array:
        """v less its variance-weighted mean (Cov 1 = 0), and 0 for items that are as good as
        certain: a logit of -1e9 there would leave no digits for the others."""
        spread = self.marginals * self.rests
        matters = self.open & (spread > 1e-40)
        v = np.where(matters, np.asarray(v, dtype=WIDE), 0)
        total = np.where(matters, spread, 0).sum(1, keepdims=True)
        mean = (v * spread).sum(1, keepdims=True) / np.where(total > 0, total, 1)
        return np.where(matters, v - mean, 0)

    def covariance_product(self, v: Array) -> Array:
        """Cov v, (rows, n)."""
        v = self.centred(v)
        (before,), (after,) = self._sweep(v)
        total = after[0, :, :1]
        at = before[:-1] - total
        taken = at + v.T[:, :, None] + after[1:, :, 1:]
        kept = at + after[1:, :, :-1]
        # Cov(z, U) = P(z = 0) E[z U] - P(z = 1) E[(1 - z) U]: no cancellation near certainty.
        product = self.rests * (self.chosen * taken).sum(2).T
        return product - self.marginals * (self.left * kept).sum(2).T

    def third_cumulant_product(self, u: Array, v: Array) -> Array:
        """sum_jl kappa_ijl u_j v_l, (rows, n)."""
        u, v = self.centred(u), self.centred(v)
        before, after = self._sweep(u, v)
        mean_u, mean_v = after[0][0, :, :1], after[1][0, :, :1]
        start = [before[0][:-1] - mean_u, before[1][:-1] - mean_v]
        start.append(
            before[2][:-1] - mean_u * before[1][:-1] - mean_v * before[0][:-1] + mean_u * mean_v
        )
        here = [u.T[:, :, None], v.T[:, :, None]]
        taken = _joined(_moved(start, here), [t[1:, :, 1:] for t in after])
        kept = _joined(start, [t[1:, :, :-1] for t in after])
        product = self.rests * (self.chosen * taken).sum(2).T
        return product - self.marginals * (self.left * kept).sum(2).T


def _moved(moments: list[Array], by: list[Array]) -> list[Array]:
    """E[U + u], and E[V + v] and E[(U + u)(V + v)]."""
    if len(moments) == 1:
        return [moments[0] + by[0]]
    first, second, both = moments
    u, v = by
    return [first + u, second + v, both + u * second + v * first + u * v]


def _joined(left: list[Array], right: list[Array]) -> Array:
    """E[U V] of sums of independent parts."""
    return left[2] + right[2] + left[0] * right[1] + left[1] * right[0]
