"""Short rows, as many side by side as a vector has lanes: one lane, one row.

Arrays are (items, lanes), flat. The same formulas as in tilt.py, moments.py and sampling.py, which
are left the rows with anything out of the ordinary: an infinite logit, no choice, a tilt that does
not converge at once. No lane depends on the others.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import part
from ksubset.kernels.cpu.noise import key, uniform
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    exp_negative,
    fill,
    load,
    root,
    store,
    total,
    width,
)

MOST_ITEMS = 64
_STEPS = 12


@part
def gather(rows, first, have, items):
    """Transpose ``have`` rows from ``first`` on into the lanes; the other lanes repeat the last."""
    lanes = width(items)
    for lane in range(lanes):
        row = first + min(lane, have - 1)
        for i in range(rows.shape[-1]):
            items[i * lanes + lane] = rows[row, i]


@part
def scatter(items, rows, first, have):
    """And back."""
    lanes = width(items)
    for lane in range(have):
        for i in range(rows.shape[-1]):
            rows[first + lane, i] = items[i * lanes + lane]


@part
def gather_counts(k, first, have, out):
    """The same for counts."""
    for lane in range(width(out)):
        out[lane] = k[first + min(lane, have - 1)]


@part
def tilt(theta, n, chosen, odd):
    """Tilt all lanes in place. What is left of a lane marked in ``odd`` is of no use."""
    lanes = width(theta)
    zero, one = fill(theta, 0.0), fill(theta, 1.0)
    mean, square = zero, zero
    for i in range(n):
        t = load(theta, i * lanes)
        mean = mean + t
        square = square + t * t
    k = load(chosen, 0)
    # Infinite logits or NaN, squares that overflow, and no choice.
    strange = choose(np.inf, square, zero, one)
    strange = strange + choose(k, 0.5, zero, one) + choose(n - 0.5, k, zero, one)
    k = choose(strange, 0.5, one, k)
    mean = choose(strange, 0.5, zero, mean * (1.0 / n))
    spread = choose(strange, 0.5, zero, square * (1.0 / n) - mean * mean)
    if total(strange) > 0:
        for i in range(0, n * lanes, lanes):
            store(theta, i, choose(strange, 0.5, zero, load(theta, i)))
    # If the logits were normal, sigmoids of them would average to the sigmoid of a stretched mean.
    stretch = root(1.0 + choose(spread, 0.0, spread, 0.0) * 0.3926990817)
    store(odd, 0, k)
    for lane in range(lanes):
        odd[lane] = math.log(odd[lane] / (n - odd[lane]))
    c = load(odd, 0) * stretch - mean
    few = choose(0.5 * n, k, one, -1.0)
    rare = choose(few, 0.0, k, n - k)
    pending = one
    for _ in range(_STEPS):
        signed, variance, likely = zero, zero, zero
        for i in range(0, n * lanes, lanes):
            t = load(theta, i) + c
            e = exp_negative(t)
            x = e / (1.0 + e)
            signed = signed + choose(t, 0.0, 0.0 - x, x)
            likely = likely + choose(t, 0.0, one, zero)
            variance = variance + (x - x * x)
        excess = signed + (likely - k)
        variance = choose(variance, 1e-30, variance, 1e-30)
        deviation = root(variance)
        far = choose(absolute(excess), 0.05 * choose(deviation, 1.0, deviation, 1.0), one, zero)
        # Newton on the logarithm of the rarer mean, 2 (r - 1) / (r + 1) for log r; near the root
        # the plain step is the last one.
        mean_rare = few * excess + rare
        move = 2.0 * (rare - mean_rare) / (rare + mean_rare) * mean_rare / variance
        move = choose(far, 0.5, few * move, 0.0 - excess / variance)
        move = choose(move, 4.0, 4.0, choose(-4.0, move, -4.0, move))
        c = c + choose(pending, 0.5, move, zero)
        pending = choose(far, 0.5, pending, zero)
        if total(pending) == 0:
            break
    for i in range(0, n * lanes, lanes):
        store(theta, i, load(theta, i) + c)
    # Far from zero, c has no room for the digits that matter.
    store(odd, 0, strange + pending + choose(absolute(c), 1000.0, one, zero))


@part
def most_nodes(n):
    """Nodes of the longest sum, two at a time."""
    return (n + 3) // 2 + 1


@part
def covariance_product(t, n, chosen, v, tail, decay, work, inverses, weights, nodes, odd):
    """v = Cov v, but for the lanes marked in ``odd``.

    First what nodes need of all items, two nodes at a time, then what items need of all nodes.
    work: (5, n lanes); inverses: (nodes, n lanes); weights: (7, nodes lanes).
    """
    lanes = width(t)
    zero, one = fill(t, 0.0), fill(t, 1.0)
    x, signed, skew, pq, weight = work[0], work[1], work[2], work[3], work[4]
    strange = zero
    for i in range(0, n * lanes, lanes):
        strange = strange + choose(np.inf, absolute(load(t, i)), zero, one)
    store(odd, 0, strange)
    variance, ups, weighted = zero, zero, zero
    for i in range(0, n * lanes, lanes):
        at = choose(strange, 0.5, zero, load(t, i))
        e = exp_negative(at)
        small = e / (1.0 + e)
        both = small - small * small
        store(x, i, small)
        store(signed, i, choose(at, 0.0, 0.0 - small, small))
        store(skew, i, choose(at, 0.0, 1.0 - (small + small), (small + small) - 1.0))
        store(pq, i, both)
        variance = variance + both
        ups = ups + choose(at, 0.0, one, zero)
        weighted = weighted + choose(both, 0.0, both * load(v, i), 0.0)
    floor = choose(variance, 1e-30, variance, 1e-30)
    for _ in range(2):
        mean = weighted / floor
        weighted = zero
        for i in range(0, n * lanes, lanes):
            both = load(pq, i)
            moved = choose(both, 0.0, load(v, i) - mean, 0.0)
            store(v, i, moved)
            store(weight, i, both * moved)
            weighted = weighted + both * moved

    # For every lane its N, the first angle and that by which its count turns.
    count = 0
    variances, heads = nodes[0], nodes[1]
    store(variances, 0, variance)
    store(heads, 0, load(chosen, 0) - ups)
    for lane in range(lanes):
        number = tail / 3 + math.sqrt(tail * tail / 9 + 2 * tail * variances[lane])
        number = 2 * math.ceil((min(n + 1.0, number) - 1) / 2) + 1
        count = max(count, int(number + 1) // 2)
        angle = 2 * math.pi * (heads[lane] % number) / number
        nodes[2, lane] = math.sin(math.pi / number)
        nodes[3, lane] = math.cos(math.pi / number)
        nodes[4, lane] = math.cos(angle)
        nodes[5, lane] = -math.sin(angle)
        nodes[6, lane] = (number + 1) / 2
    step_sine, step_cosine = load(nodes[2], 0), load(nodes[3], 0)
    step_real, step_imag = load(nodes[4], 0), load(nodes[5], 0)
    limit = load(nodes[6], 0)
    s, c, turn_real, turn_imag = zero, one, one, zero
    whole, mean = zero, zero
    for node in range(0, count, 2):
        r, d = s * step_cosine + c * step_sine, c * step_cosine - s * step_sine
        s2, c2, sc = s * s, c * c, s * c
        r2, d2, rd = r * r, d * d, r * d
        real, imag, dev_real, dev_imag = one, zero, zero, zero
        other_real, other_imag, other_dev_real, other_dev_imag = one, zero, zero, zero
        at = node * n * lanes
        following = at + n * lanes
        for i in range(0, n * lanes, lanes):
            tilt_of = load(skew, i)
            square = tilt_of * tilt_of
            small, side = load(x, i), load(signed, i)
            # The two nodes share a division.
            left, right = c2 + s2 * square, d2 + r2 * square
            both = 1.0 / (left * right)
            inverse = both * right
            store(inverses, at + i, inverse)
            factor_real, factor_imag = 1.0 - small * (s2 + s2), side * (sc + sc)
            real, imag = (
                real * factor_real - imag * factor_imag,
                real * factor_imag + imag * factor_real,
            )
            ratio = inverse * load(weight, i)
            dev_real = dev_real + ratio * tilt_of
            dev_imag = dev_imag + ratio
            inverse = both * left
            store(inverses, following + i, inverse)
            factor_real, factor_imag = 1.0 - small * (r2 + r2), side * (rd + rd)
            other_real, other_imag = (
                other_real * factor_real - other_imag * factor_imag,
                other_real * factor_imag + other_imag * factor_real,
            )
            ratio = inverse * load(weight, i)
            other_dev_real = other_dev_real + ratio * tilt_of
            other_dev_imag = other_dev_imag + ratio
        for which in range(2):
            # No weight for a node that its lane does not have, or that does not count there.
            twice = 2.0 if node + which else 1.0
            keep = choose(limit, node + which + 0.5, fill(t, twice), 0.0)
            keep = choose(decay, 2.0 * variance * s2, keep, 0.0)
            dev_real, dev_imag = dev_real * (s2 + s2), dev_imag * (sc + sc)
            w_real = keep * (real * turn_real - imag * turn_imag)
            w_imag = keep * (imag * turn_real + real * turn_imag)
            whole = whole + w_real
            mean = mean + (w_real * dev_real - w_imag * dev_imag)
            place = (node + which) * lanes
            store(weights[0], place, w_real)
            store(weights[1], place, w_imag)
            store(weights[2], place, dev_real)
            store(weights[3], place, dev_imag)
            store(weights[4], place, s2)
            store(weights[5], place, c2)
            store(weights[6], place, sc)
            turn_real, turn_imag = (
                turn_real * step_real - turn_imag * step_imag,
                turn_imag * step_real + turn_real * step_imag,
            )
            real, imag, dev_real, dev_imag = (
                other_real,
                other_imag,
                other_dev_real,
                other_dev_imag,
            )
            s2, c2, sc = r2, d2, rd
        s, c = r * step_cosine + d * step_sine, d * step_cosine - r * step_sine
    scale = 1.0 / whole
    mean = mean * scale
    for place in range(0, count * lanes, lanes):
        w_real, w_imag = load(weights[0], place) * scale, load(weights[1], place) * scale
        dev_real, dev_imag = load(weights[2], place) - mean, load(weights[3], place)
        s2, c2, sc = load(weights[4], place), load(weights[5], place), load(weights[6], place)
        store(weights[0], place, (s2 + s2) * (w_real * dev_real - w_imag * dev_imag))
        store(weights[1], place, (sc + sc) * (w_real * dev_imag + w_imag * dev_real))
        store(weights[2], place, w_real * c2)
        store(weights[3], place, (sc + sc) * w_imag)
        store(weights[4], place, w_real * s2)
    for i in range(0, n * lanes, lanes):
        tilt_of = load(skew, i)
        square = tilt_of * tilt_of
        across, within = zero, zero
        for node in range(count):
            inverse, place = load(inverses, node * n * lanes + i), node * lanes
            line = load(weights[0], place) * tilt_of - load(weights[1], place)
            across = across + inverse * line
            spread = load(weights[2], place) + load(weights[3], place) * tilt_of
            spread = spread - load(weights[4], place) * square
            within = within + spread * (inverse * inverse)
        store(v, i, load(pq, i) * (across + load(v, i) * within))


@part
def sample(t, n, chosen, seeds, first, have, table, heads, left, keys, z):
    """Fill z by the backward DP; lanes whose tilt failed are drawn too, to no use.

    The table is (items + 1, heads + 2, lanes): its first heads, -1, have probability 0.
    """
    lanes = width(t)
    one = fill(t, 1.0)
    most = 0
    for lane in range(lanes):
        most = min(max(most, int(chosen[lane])), n)
    row = (most + 2) * lanes
    for j in range(0, row, lanes):
        store(table, j, fill(t, 0.0))
    store(table, lanes, one)
    for i in range(n):
        at = load(t, i * lanes)
        e = exp_negative(at)
        x = e / (1.0 + e)
        p, q = choose(at, 0.0, 1.0 - x, x), choose(at, 0.0, x, 1.0 - x)
        store(heads, i * lanes, p)
        below = fill(t, 0.0)
        store(table, (i + 1) * row, below)
        for j in range(i * row + lanes, (i + 1) * row, lanes):
            here = load(table, j)
            store(table, j + row, here * q + below * p)
            below = here
    for lane in range(lanes):
        left[lane] = min(max(int(chosen[lane]), 0), n)
        keys[lane] = key(seeds[first + min(lane, have - 1)])
    # Lanes innermost: what one waits for, the others do meanwhile. The numbers belong to the items
    # as in sampling._by_dp.
    for i in range(n - 1, -1, -1):
        for lane in range(lanes):
            at = i * lanes + lane
            place = (i + 1) * row + (left[lane] + 1) * lanes + lane
            u = uniform(keys[lane], i)
            with_it = np.float64(heads[at]) * np.float64(table[place - row - lanes])
            take = (left[lane] > i) | (u * np.float64(table[place]) < with_it)
            z[at] = take
            left[lane] -= take
