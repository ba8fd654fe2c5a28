"""From logits to tilted coins: the form in which every method meets the problem.

Given that their number of heads S is k, independent coins with logits ``theta + c`` follow
the k-subset distribution of ``theta`` for *any* c. :func:`tilt` picks the c for which E[S] = k, so
that P(S = k) is never tiny and linear-space arithmetic in the working precision is enough.
It also folds every special case into the tilted logits t, once and for all:

=====================================  =========================================
the item is                            t
=====================================  =========================================
forbidden (logit -inf, masked)         -inf
forced (logit +inf)                    +inf
free, but the row leaves no choice     -inf (none of the free) or +inf (all)
in an invalid row                      NaN
otherwise                              finite
=====================================  =========================================

Derivation: docs/mathematics.md, "Tilt".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Far more than the handful of steps ordinary logits take; reached only by rows whose
# mean cannot be brought near k in floating point.
_MAX_STEPS = 128


def can_synchronise(tensor: Tensor) -> bool:
    """Whether a loop may ask the tensor's device if it is done."""
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def widest(x: Tensor) -> torch.dtype:
    """float64 where the tensor's device has it."""
    return x.dtype if x.device.type == "mps" else torch.float64


def wide_sum(x: Tensor) -> Tensor:
    """Sum over the last axis in the widest type."""
    return x.sum(-1, dtype=widest(x))


def log_outcome(t: Tensor, heads: Tensor) -> Tensor:
    """The log-probability of which coins of logits t show heads: that of every coin's more likely
    side, less abs(t) for each that shows the other; terms of one sign."""
    far = t.abs()
    rarer = heads != (t > 0)
    likely = wide_sum(torch.log1p(-torch.sigmoid(-far)))
    return likely - wide_sum(torch.where(rarer, far, 0))


def log_outcomes(t: Tensor) -> tuple[Tensor, Tensor]:
    """log p and log q of coins with logits t; finite also where they only meet a weight of 0."""
    likelier = torch.nn.functional.logsigmoid(t.abs())
    rarer = likelier - torch.where(t.isinf(), 0, t.abs())
    return torch.where(t > 0, likelier, rarer), torch.where(t > 0, rarer, likelier)


def _row_sum(x: Tensor) -> Tensor:
    """Sum of each row, in the same order however many there are: a long row that is alone would be
    shared among threads."""
    return x.sum(-1) if len(x) != 1 else x.expand(2, -1).sum(-1)[:1]


def tilt(logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Shift each row so that its coins' expected number of heads is k.

    Args:
        logits: (rows, n), float32 or float64; -inf forbids, +inf forces.
        k: (rows,) integers.

    Returns:
        The tilted logits t (rows, n), special values as in the table above, and the shift c
        (rows,) with t = logits + c wherever both are finite, in the widest type available.
    """
    free = logits.isfinite()
    forced = logits == torch.inf
    free_count = free.sum(-1)
    free_k = k - forced.sum(-1)
    invalid = logits.isnan().any(-1) | (free_k < 0) | (free_k > free_count)
    open_rows = ~invalid & (free_k > 0) & (free_k < free_count)

    dtype = logits.dtype
    chosen = torch.where(open_rows, free_k, 1).to(dtype)
    count = torch.where(open_rows, free_count, 2).to(dtype)
    theta = torch.where(free & open_rows.unsqueeze(-1), logits, -torch.inf)

    odds = torch.log(chosen) - torch.log(count - chosen)
    highest = theta.amax(-1)
    lowest = torch.where(theta == -torch.inf, torch.inf, theta).amin(-1)
    closed = ~open_rows
    start = _start(theta, chosen, count)
    low = (odds - highest).masked_fill(closed, 0)
    high = (odds - lowest).masked_fill(closed, 0)
    start = start.masked_fill(closed, 0)
    first = _solve(theta, chosen, count, start, low, high, closed)
    # theta + first is exact near the threshold, so a second solve around zero gives the
    # shift digits that `first` has no room for when the logits are far from zero.
    theta = theta + first.unsqueeze(-1)
    reach = 1 + 16 * torch.finfo(dtype).eps * first.abs()
    second = _solve(theta, chosen, count, torch.zeros_like(first), -reach, reach, closed)
    tilted = theta + second.unsqueeze(-1)

    all_free = (closed & (free_k == free_count)).unsqueeze(-1)
    tilted = torch.where(forced | (free & all_free), torch.inf, tilted)
    tilted = tilted.masked_fill(invalid.unsqueeze(-1), torch.nan)
    wide = widest(logits)
    return tilted, (first.to(wide) + second.to(wide)).masked_fill(closed, 0)


def _start(theta: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
    """Where to look for the shift first.

    Coins that all fall on their rarer side rarely do so in proportion to their odds, less the
    squares of them. Otherwise, as if the logits were a sample of a normal distribution, but never
    below what the odds alone give, a bound.
    """
    few = chosen <= count / 2
    rare = torch.where(few, chosen, count - chosen)
    # As if the rarer side were heads.
    y = torch.where(few.unsqueeze(-1), theta, -theta).masked_fill(theta == -torch.inf, -torch.inf)
    top = y.amax(-1)
    depth = (y - top.unsqueeze(-1)).clamp_min(-1e9)
    odds = torch.exp(depth)
    mass, squares = _row_sum(odds), _row_sum(odds.square())
    bound = torch.log(rare / mass)
    ratio = rare * squares / mass.square()
    depth = torch.where(y == -torch.inf, 0, depth)
    mean = _row_sum(depth) / count
    spread = (_row_sum(depth.square()) / count - mean.square()).clamp_min(0)
    normal = _quantile(rare / count) * torch.sqrt(spread + math.pi**2 / 3) - mean
    guess = torch.where(
        ratio < 0.25, bound - torch.log1p(-ratio.clamp_max(0.25)), torch.maximum(bound, normal)
    )
    return torch.where(few, guess - top, top - guess)


def _quantile(q: Tensor) -> Tensor:
    """Of the standard normal distribution, for q at most 1/2, to 0.003."""
    r = torch.sqrt(-2 * torch.log(q))
    return (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r * r) - r


def _solve(
    theta: Tensor,
    chosen: Tensor,
    count: Tensor,
    start: Tensor,
    low: Tensor,
    high: Tensor,
    done: Tensor,
) -> Tensor:
    """Newton on the logarithm of the mean of the rarer outcome, safeguarded by bisection.

    Stops when the mean is within a small part of a standard deviation of its target, then
    takes one more Newton step: the formulas carry the remainder, it only must be small.
    """
    few = chosen <= count / 2
    rare = torch.where(few, chosen, count - chosen)
    c = start.clamp(low, high)
    # At its first ends, never looked at, the bracket has the extreme coins near zero.
    low_variance = high_variance = torch.full_like(c, torch.inf)
    for step in range(_MAX_STEPS):
        t = theta + c.unsqueeze(-1)
        up = t > 0
        x = torch.sigmoid(-t.abs())
        heads = up.sum(-1)
        excess = _row_sum(torch.where(up, -x, x)) + (heads - chosen)
        variance = _row_sum(x * (1 - x))
        mean_rare = torch.where(few, excess, -excess) + rare
        slope = variance / mean_rare.clamp_min(torch.finfo(c.dtype).tiny)
        move = torch.log(rare / mean_rare.clamp_min(torch.finfo(c.dtype).tiny)) / slope
        newton = c + torch.where(few, move, -move)

        close = excess.abs() <= 0.05 * variance.sqrt().clamp_min(1)
        # Near the root the plain step is exact enough and cannot run away: |excess| is at
        # most twice the variance when it is below 0.05.
        polished = c - (excess / variance).clamp(-2, 2).nan_to_num(0, 0, 0)
        low = torch.where(excess < 0, torch.maximum(low, c), low)
        high = torch.where(excess > 0, torch.minimum(high, c), high)
        low_variance = torch.where(excess < 0, variance, low_variance)
        high_variance = torch.where(excess > 0, variance, high_variance)
        bisect = _middle(low, high)
        inside = (newton > low) & (newton < high) & (step % 3 != 2)
        following = torch.where(close, polished, torch.where(inside, newton, bisect))
        c = torch.where(done, c, following)
        done = done | close
        if can_synchronise(done) and bool(done.all()):
            return c
    # Among logits far apart there may be no number that is close. Of the two neighbours that the
    # bracket has closed in on, the one that has the coins in question near zero leaves the rest to
    # a second solve.
    return torch.where(done, c, torch.where(low_variance > high_variance, low, high))


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """Midpoint in a scale that is linear near zero and logarithmic far out.

    Bisection then needs tens of steps, not a hundred, when users forbid items with -1e30.
    """
    middle = torch.sinh((torch.asinh(low) + torch.asinh(high)) / 2)
    # For a bracket far from zero and narrow, sinh(asinh) rounds outside of it.
    plain = low + (high - low) / 2
    return torch.where((middle > low) & (middle < high), middle, plain)


@dataclass
class Coins:
    """Independent coins with logits t whose number of heads S is conditioned to be k.

    Everything is kept in terms of the rarer outcome of each coin, ``x = min(p, q)``, which
    floating point holds to full relative precision on both sides.
    """

    t: Tensor
    k: Tensor
    up: Tensor  # heads is the likelier outcome
    x: Tensor  # min(p, q)
    p: Tensor
    q: Tensor
    pq: Tensor
    skew: Tensor  # p - q
    variance: Tensor  # of S, (rows,)
    excess: Tensor  # E[S] - k, (rows,)

    @classmethod
    def from_tilted(cls, t: Tensor, k: Tensor) -> Coins:
        """From tilted logits (rows, n) and counts (rows,)."""
        up = t > 0
        x = torch.sigmoid(-t.abs())
        pq = x * (1 - x)
        return cls(
            t=t,
            k=k,
            up=up,
            x=x,
            p=torch.where(up, 1 - x, x),
            q=torch.where(up, x, 1 - x),
            pq=pq,
            skew=torch.where(up, 1 - 2 * x, 2 * x - 1),
            variance=pq.sum(-1),
            excess=torch.where(up, -x, x).sum(-1) + (up.sum(-1) - k).to(t.dtype),
        )

    def centre(self, v: Tensor) -> Tensor:
        """v less its variance-weighted mean, zero on coins that cannot fall both ways.

        Cov 1 = 0, so this changes no covariance product; it removes their cancellation.
        """
        alive = self.pq > 0
        v = torch.where(alive, v, 0)
        mean = (v * self.pq).sum(-1) / self.variance.clamp_min(torch.finfo(v.dtype).tiny)
        # A second pass takes out what rounding left of a mean far larger than the spread.
        v = torch.where(alive, v - mean.unsqueeze(-1), 0)
        mean = (v * self.pq).sum(-1) / self.variance.clamp_min(torch.finfo(v.dtype).tiny)
        return torch.where(alive, v - mean.unsqueeze(-1), 0)

    def entropy(self, log_mass: Tensor, rarer: Tensor) -> Tensor:
        """H = log P(S = k) + the cross-entropy of the marginals with the coins, at least 0.

        Args:
            log_mass: log P(S = k), (rows,).
            rarer: P(the coin shows its rarer side | S = k), (rows, n).
        """
        far = torch.where(self.t.isinf(), 0, self.t.abs())
        cross_entropy = wide_sum(far * rarer - torch.log1p(-self.x))
        return (log_mass + cross_entropy).clamp_min(0).to(self.t.dtype)

    def heads(self, rarer: Tensor) -> Tensor:
        """The probability of heads from that of the rarer side."""
        return torch.where(self.up, 1 - rarer, rarer)


def sum_without_overflow(terms: Tensor, shift: Tensor, times: Tensor) -> Tensor:
    """The sum of the terms (rows, n), and of the shift (rows,) so many times, in the widest type:
    of logits near the end of its range too, which may cancel."""
    scale = 2.0**-64
    return (wide_sum(terms.to(shift.dtype) * scale) + shift * scale * times) / scale


def log_partition(logits: Tensor, coins: Coins, shift: Tensor, log_mass: Tensor) -> Tensor:
    """A(theta) over the finite logits, from log P(S = k) of the tilted coins.

    A = log P(S=k) + sum softplus(t) - k c, with the large terms of the likelier heads taken
    from the logits themselves, so that they need not cancel against k c.
    """
    likely = torch.where(coins.up & logits.isfinite(), logits, 0)
    overshoot = (coins.up.sum(-1) - coins.k).to(shift.dtype)
    total = sum_without_overflow(likely, shift, overshoot)
    return (total + log_mass - wide_sum(torch.log1p(-coins.x))).to(logits.dtype)
