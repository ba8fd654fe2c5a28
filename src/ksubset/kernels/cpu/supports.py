"""Compiled search and sampling of the supports of a least squares problem.

The quantities of a support, and the formulas by which they follow a change of it, are those of
:mod:`ksubset.regression.exchange`, which also has the plain version of the search;
:mod:`ksubset.regression.walk` has that of the samples.

What both share: gram, with the penalty on its diagonal, (n, n); moments, (t, n); support, (k,). The
rest of their arguments is room for mixed (k, n), common (t, n), left (n,), inverse (k, k), weights
(t, k), losses (n,) and taken (n,).
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import kernel, part

__all__ = ["climb", "room", "walk"]

_ALONE = 1e3 * 2.0**-52  # the share of a column that rounding leaves of it in the span of others
_AGAIN = 50  # changes after which all is computed anew, before rounding adds up
_LEAST = 30.0  # nats: what is less likely by more does not count


def room(n, k, t):
    """What the kernels work in."""
    return (
        np.zeros((k, n)), np.empty((t, n)), np.empty(n), np.zeros((k, k)), np.zeros((t, k)),
        np.empty(n), np.empty(n, np.uint8),
    )  # fmt: skip


@part
def _begin(gram, moments, common, left):
    """The quantities of no columns."""
    for j in range(len(left)):
        left[j] = gram[j, j]
        for q in range(len(common)):
            common[q, j] = moments[q, j]


@part
def _add(gram, size, new, support, mixed, common, left, inverse, weights):
    """Put a column in the place behind the last. Returns by how much the loss falls."""
    n = len(left)
    # Of a column in the span of others rounding may leave nothing, or less.
    pivot = max(left[new], _ALONE * gram[new, new])
    row = mixed[size]
    for j in range(n):
        row[j] = gram[new, j]
    for r in range(size):
        other, shared = mixed[r], gram[new, support[r]]
        for j in range(n):
            row[j] -= other[j] * shared
    for j in range(n):
        row[j] /= pivot
    gain = 0.0
    for q in range(len(common)):
        before = common[q, new]
        weight = before / pivot
        gain += before * weight
        for j in range(n):
            common[q, j] -= row[j] * before
        for r in range(size):
            weights[q, r] -= mixed[r, new] * weight
            common[q, support[r]] = 0
        weights[q, size] = weight
        common[q, new] = 0
    for j in range(n):
        left[j] -= row[j] * row[j] * pivot
    left[new] = 0
    for r in range(size):
        own = mixed[r, new]
        for s in range(size):
            inverse[r, s] += own * mixed[s, new] / pivot
        inverse[r, size] = inverse[size, r] = -own / pivot
    inverse[size, size] = 1 / pivot
    for r in range(size):
        other, own = mixed[r], mixed[r, new]
        for j in range(n):
            other[j] -= own * row[j]
    support[size] = new
    return gain


@part
def _remove(size, out, support, mixed, common, left, inverse, weights):
    """Leave out the column in a place, which the last one takes."""
    n, own, row = len(left), inverse[out, out], mixed[out]
    for q in range(len(common)):
        share = weights[q, out] / own
        for j in range(n):
            common[q, j] += row[j] * share
        for r in range(size):
            if r != out:
                weights[q, r] -= inverse[r, out] * share
    for j in range(n):
        left[j] += row[j] * row[j] / own
    for r in range(size):
        if r != out:
            other, share = mixed[r], inverse[r, out] / own
            for j in range(n):
                other[j] -= row[j] * share
    for r in range(size):
        for s in range(size):
            if r != out and s != out:
                inverse[r, s] -= inverse[r, out] * inverse[out, s] / own
    last = size - 1
    if out == last:
        return
    support[out] = support[last]
    for j in range(n):
        row[j] = mixed[last, j]
    for q in range(len(common)):
        weights[q, out] = weights[q, last]
    for r in range(size):
        inverse[out, r] = inverse[last, r]
    for r in range(size):
        inverse[r, out] = inverse[r, last]


@part
def _losses(gram, out, without, floor, taken, mixed, common, left, inverse, weights, losses):
    """With each column in the place of one: the loss; infinite for columns that are taken. Returns
    the least."""
    own, row = inverse[out, out], mixed[out]
    for j in range(len(left)):
        losses[j] = 0
    for q in range(len(common)):
        share = weights[q, out] / own
        for j in range(len(left)):
            all_in_common = common[q, j] + row[j] * share
            losses[j] += all_in_common * all_in_common
    least = max(without, floor)
    for j in range(len(left)):
        room = left[j] + row[j] * row[j] / own
        gain = losses[j] / room if room > _ALONE * gram[j, j] else 0.0
        losses[j] = np.inf if taken[j] else max(without - gain, floor)
        least = min(least, losses[j])
    return least


@part
def _best_addition(gram, taken, common, left):
    """The column that lowers the loss most."""
    best, most = 0, -1.0
    for j in range(len(left)):
        if taken[j]:
            continue
        gain = 0.0
        if left[j] > _ALONE * gram[j, j]:
            for q in range(len(common)):
                gain += common[q, j] * common[q, j] / left[j]
        if gain > most:
            best, most = j, gain
    return best


@kernel
def climb(
    gram, moments, total, size, tolerance, most,
    support, mixed, common, left, inverse, weights, losses, taken,
):  # fmt: skip
    """Add the best column to the first ones of a support until it is full, then make the best swap
    while one gains more than the tolerance, up to a number of times. Returns the swaps made."""
    n, k = len(left), len(support)
    _begin(gram, moments, common, left)
    for j in range(n):
        taken[j] = 0
    loss = total
    for r in range(k):
        new = support[r] if r < size else _best_addition(gram, taken, common, left)
        taken[new] = 1
        loss -= _add(gram, r, new, support, mixed, common, left, inverse, weights)
    for swap in range(most):
        if swap % _AGAIN == _AGAIN - 1:
            loss = total
            _begin(gram, moments, common, left)
            for r in range(k):
                loss -= _add(
                    gram, r, support[r], support, mixed, common, left, inverse, weights
                )  # fmt: skip
        if loss <= tolerance:
            return swap  # an exact fit: what is left is rounding
        lowest, out, new = loss - tolerance, -1, -1
        for r in range(k):
            without = loss
            for q in range(len(common)):
                without += weights[q, r] * weights[q, r] / inverse[r, r]
            least = _losses(
                gram, r, without, -np.inf, taken, mixed, common, left, inverse, weights, losses
            )  # fmt: skip
            if least < lowest:
                for j in range(n):
                    if losses[j] < lowest:
                        lowest, out, new = losses[j], r, j
        if out < 0:
            return swap
        taken[support[out]] = 0
        taken[new] = 1
        _remove(k, out, support, mixed, common, left, inverse, weights)
        loss = lowest
        _add(gram, k - 1, new, support, mixed, common, left, inverse, weights)
    return most


@kernel
def walk(
    gram, moments, total, power, floor, outside, uniform, burn,
    support, best, marginals, mixed, common, left, inverse, weights, losses, taken,
):  # fmt: skip
    """Draw one place after the other anew, given the others, with weights loss^-power.

    floor: losses below are alike. outside: how likely a column is that is not here, in units of one
    that explains nothing. uniform: one number for every step. burn: steps that do not count.

    support: where the walk starts, and where it ends. Filled: best, the support with the least loss
    on the way; marginals (n,), the mean of every column's probability. Returns how likely a column
    outside was.
    """
    n, k = len(left), len(support)
    loss, lowest, changes, elsewhere = total, np.inf, _AGAIN, 0.0
    for j in range(n):
        marginals[j] = 0
        taken[j] = 0
    for r in range(k):
        taken[support[r]] = 1
    for step in range(len(uniform)):
        if changes == _AGAIN:
            changes, loss = 0, total
            _begin(gram, moments, common, left)
            for r in range(k):
                loss -= _add(
                    gram, r, support[r], support, mixed, common, left, inverse, weights
                )  # fmt: skip
        if loss < lowest:
            lowest = loss
            for r in range(k):
                best[r] = support[r]
        out = step % k
        old, without = support[out], loss
        for q in range(len(common)):
            without += weights[q, out] * weights[q, out] / inverse[out, out]
        taken[old] = 0
        least = _losses(
            gram, out, without, floor, taken, mixed, common, left, inverse, weights, losses
        )  # fmt: skip
        most, mass = least * math.exp(_LEAST / power), 0.0
        for j in range(n):
            if losses[j] <= most:
                losses[j] = math.exp(-power * math.log(losses[j] / least))
                mass += losses[j]
            else:
                losses[j] = 0
        rest = outside * math.exp(-power * math.log(max(without, floor) / least))
        if step >= burn:
            share = 1 / ((mass + rest) * (len(uniform) - burn))
            for j in range(n):
                marginals[j] += losses[j] * share
            for r in range(k):
                if r != out:
                    marginals[support[r]] += 1 / (len(uniform) - burn)
            elsewhere += rest * share
        target, new = uniform[step] * mass, old
        for j in range(n):
            if losses[j] > 0:
                new = j
                target -= losses[j]
                if target < 0:
                    break
        taken[new] = 1
        if new != old:
            changes += 1
            _remove(k, out, support, mixed, common, left, inverse, weights)
            loss = without - _add(
                gram, k - 1, new, support, mixed, common, left, inverse, weights
            )  # fmt: skip
    if loss < lowest:
        for r in range(k):
            best[r] = support[r]
    return elsewhere
