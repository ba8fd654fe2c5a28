"""Moments of a row from power sums of its coins' probabilities: one pass however many nodes.

What the spectral method asks of the items at a node are functions of p alone, analytic in a p with
a = e^(i omega) - 1. Nodes far out, where a is large, hardly count when the variance is; so a few
powers of p serve all nodes, unless the coins are few and heavy: then :func:`powers_for` says so.
Derivation and bound: docs/mathematics.md, "Power sums".
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import inlined, part
from ksubset.kernels.cpu.moments import (
    COSINE,
    DEV_IMAG,
    DEV_REAL,
    IMAG,
    MOST_NODES,
    REAL,
    SIGNED,
    SINE,
    WEIGHT,
    variances,
)
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    exp_negative,
    fill,
    load,
    nearest,
    store,
    total,
    width,
)
from ksubset.kernels.cpu.tilt import padded

MOST_POWERS = 20
MOST_SUMS = 32  # powers whose sums alone are worth while
_LOGARITHMS = np.log(np.arange(1, MOST_SUMS + 4))
# Sizes of working space: sums of vectors for every power, in the working precision and in float64.
LANES, SUMS = 2 * (MOST_POWERS + 1) * 8, (MOST_POWERS + 1) * 4
_FOLD = 512  # items whose sum may stay in the working precision
_MARGIN = 2.5
_NUMBERS = np.arange(MOST_NODES, dtype=np.float64)
_TURN = 2 * math.pi
# sin y = y + y^3 S(y^2) and 1 - cos y = y^2 C(y^2)
_SINES = tuple((-1) ** (i + 1) / math.factorial(2 * i + 3) for i in range(8))
_COSINES = tuple((-1) ** i / math.factorial(2 * i + 2) for i in range(8))


@part
def powers_for(top, mean, variance, decay, most_powers=MOST_POWERS):
    """How many powers bring the error at every node below e^-(decay + margin); 0 if too many.

    top: the largest p. With M powers the error is at most (2 s)^(M + 1) e^(-2 variance s^2) times
    what the coins contribute, whatever s = sin(omega / 2).
    """
    if variance <= 0:
        return 0
    # Where 1 + a p comes near 0 the remainder of the series is more than its next term.
    if variance < 32 and top > 0.45:
        return 0
    ratio = 2 * math.log(top) - 1 - math.log(variance)
    weight = math.log(mean / top)
    for powers in range(3, most_powers + 1):
        following = _LOGARITHMS[powers]  # log(powers + 1)
        most = max(_LOGARITHMS[powers + 1], weight - following)
        if 0.5 * (powers + 1) * (following + ratio) + most < -(decay + _MARGIN):
            return powers
    return 0


@part
def _heads(signed, i):
    x = load(signed, i)
    return choose(0.0, x, 1.0 + x, x)


@part
def power_sums(n, coins, powers, lanes, sums):
    """sums[0, m] = sum p^m for m >= 1 and sums[1, m] = sum WEIGHT p^m, up to m = powers.

    lanes: working space (2, powers + 1, width), flat.
    """
    wide = width(lanes)
    signed, weight = coins[SIGNED], coins[WEIGHT]
    half = (powers + 1) * wide
    for m in range(powers + 1):
        sums[0, m], sums[1, m] = 0, 0
    for block in range(0, n, _FOLD):
        for m in range(0, 2 * half, wide):
            store(lanes, m, fill(lanes, 0.0))
        for i in range(block, min(block + _FOLD, padded(n)), 2 * wide):
            p, other_p = _heads(signed, i), _heads(signed, i + wide)
            w, other_w = load(weight, i), load(weight, i + wide)
            store(lanes, half, load(lanes, half) + (w + other_w))
            power, other = p, other_p
            for m in range(wide, half, wide):
                store(lanes, m, load(lanes, m) + (power + other))
                both = w * power + other_w * other
                store(lanes, half + m, load(lanes, half + m) + both)
                power, other = power * p, other * other_p
        for m in range(powers + 1):
            sums[0, m] += total(load(lanes, m * wide))
            sums[1, m] += total(load(lanes, half + m * wide))


@part
def probability_sums(n, coins, powers, lanes, sums):
    """:func:`power_sums` without weights."""
    signed = coins[SIGNED]
    wide = width(lanes)
    for m in range(powers + 1):
        sums[0, m] = 0
    end = (powers + 1) * wide
    for block in range(0, n, _FOLD):
        for m in range(0, end, wide):
            store(lanes, m, fill(lanes, 0.0))
        for i in range(block, min(block + _FOLD, padded(n)), 2 * wide):
            p, other_p = _heads(signed, i), _heads(signed, i + wide)
            power, other = p, other_p
            for m in range(wide, end, wide):
                store(lanes, m, load(lanes, m) + (power + other))
                power, other = power * p, other * other_p
        for m in range(powers + 1):
            sums[0, m] += total(load(lanes, m * wide))


@part
def _rotation(angle):
    """Cosine and sine, in lanes: by Taylor's series of a quarter of the angle, doubled twice."""
    y = (angle - nearest(angle * (1 / _TURN)) * _TURN) * 0.25
    z = y * y
    sine, cosine = fill(angle, _SINES[-1]), fill(angle, _COSINES[-1])
    for i in range(len(_SINES) - 2, -1, -1):
        sine = sine * z + _SINES[i]
        cosine = cosine * z + _COSINES[i]
    # 1 - cos, which keeps its digits.
    sine, less = y + y * z * sine, z * cosine
    for _ in range(2):
        sine, less = 2.0 * sine * (1.0 - less), 2.0 * sine * sine
    return 1.0 - less, sine


@part
def characteristic(count, number, k, mean, powers, sums, nodes):
    """E exp(i omega (S - k)) at every node, from log(1 + a p) = a p - (a p)^2 / 2 + ...

    mean: E S, to more digits than sums[0, 1] has.
    """
    sums[0, 1] = mean
    for first in range(0, count, width(nodes)):
        s, c = load(nodes[SINE], first), load(nodes[COSINE], first)
        a_real, a_imag = -2.0 * s * s, 2.0 * s * c
        real, imag = fill(s, 0.0), fill(s, 0.0)
        for m in range(powers, 0, -1):
            term = sums[0, m] / m
            real, imag = (
                term - (a_real * real - a_imag * imag),
                0.0 - (a_real * imag + a_imag * real),
            )
        # The modulus is at most 1.
        modulus = exp_negative(a_real * real - a_imag * imag)
        node = load(_NUMBERS, first)
        cosine, sine = _rotation(a_real * imag + a_imag * real - node * (2 * math.pi * k / number))
        store(nodes[REAL], first, modulus * cosine)
        store(nodes[IMAG], first, modulus * sine)
    for node in range(count, padded(count)):
        nodes[REAL, node], nodes[IMAG, node] = 0, 0


@part
def deviations(count, powers, sums, nodes):
    """sum_j v_j (r_j - p_j) at every node, from r - p = p q a (1 - a p + (a p)^2 - ...)."""
    for first in range(0, count, width(nodes)):
        s, c = load(nodes[SINE], first), load(nodes[COSINE], first)
        a_real, a_imag = -2.0 * s * s, 2.0 * s * c
        real, imag = fill(s, 0.0), fill(s, 0.0)
        for m in range(powers, -1, -1):
            real, imag = (
                sums[1, m] - (a_real * real - a_imag * imag),
                0.0 - (a_real * imag + a_imag * real),
            )
        store(nodes[DEV_REAL], first, a_real * real - a_imag * imag)
        store(nodes[DEV_IMAG], first, a_real * imag + a_imag * real)


@inlined
def _coefficients(count, powers, nodes, across, within, narrow, both):
    """narrow[0, m] and narrow[1, m], what p^m is multiplied by in the two parts of Cov v; only the
    first, if not both."""
    wide = width(nodes)
    for first in range(0, count, wide):
        s, c = load(nodes[SINE], first), load(nodes[COSINE], first)
        a_real, a_imag = -2.0 * s * s, 2.0 * s * c
        w_real, w_imag = load(nodes[REAL], first), load(nodes[IMAG], first)
        u_real, u_imag = load(nodes[DEV_REAL], first), load(nodes[DEV_IMAG], first)
        u_real, u_imag = u_real * a_real - u_imag * a_imag, u_real * a_imag + u_imag * a_real
        t_real, t_imag = (
            w_real + (w_real * a_real - w_imag * a_imag),
            w_imag + (w_real * a_imag + w_imag * a_real),
        )
        for m in range(powers + 1):
            here = u_real
            if first > 0:
                here = here + load(across, m * wide)
            store(across, m * wide, here)
            u_real, u_imag = (
                u_imag * a_imag - u_real * a_real,
                0.0 - (u_real * a_imag + u_imag * a_real),
            )
            if both:
                there = (m + 1.0) * t_real
                if first > 0:
                    there = there + load(within, m * wide)
                store(within, m * wide, there)
                t_real, t_imag = (
                    t_imag * a_imag - t_real * a_real,
                    0.0 - (t_real * a_imag + t_imag * a_real),
                )
    for m in range(powers + 1):
        narrow[0, m] = total(load(across, m * wide))
        if both:
            narrow[1, m] = total(load(within, m * wide))


@part
def combine(n, coins, count, powers, nodes, sums, narrow, v):
    """v = Cov v, from weighted deviations: the mixture over nodes of p q times a polynomial."""
    _coefficients(count, powers, nodes, sums[2], sums[3], narrow, True)
    signed = coins[SIGNED]
    lanes = width(v)
    for i in range(0, padded(n), 2 * lanes):
        p, q = _heads(signed, i), _heads(signed, i + lanes)
        across, within = fill(v, narrow[0, powers]), fill(v, narrow[1, powers])
        other_across, other_within = across, within
        for m in range(powers - 1, -1, -1):
            across, within = across * p + narrow[0, m], within * p + narrow[1, m]
            other_across = other_across * q + narrow[0, m]
            other_within = other_within * q + narrow[1, m]
        store(v, i, variances(load(signed, i)) * (across + load(v, i) * within))
        i += lanes
        store(v, i, variances(load(signed, i)) * (other_across + load(v, i) * other_within))


@part
def correct(n, coins, count, powers, nodes, sums, narrow, rarer):
    """rarer = P(rarer side | S = k) of every coin, from sum_j w_j (r_j - p) = p q times a
    polynomial in p."""
    prepare_correction(count, powers, nodes, sums, narrow)
    correct_some(0, padded(n), coins, powers, narrow, rarer)


@part
def prepare_correction(count, powers, nodes, sums, narrow):
    """The polynomial of :func:`correct_some`."""
    for node in range(padded(count)):
        nodes[DEV_REAL, node], nodes[DEV_IMAG, node] = nodes[REAL, node], nodes[IMAG, node]
    _coefficients(count, powers, nodes, sums[2], sums[3], narrow, False)


@part
def correct_some(first, last, coins, powers, narrow, rarer):
    """:func:`correct` for the items from the first to the last, in pairs of vectors."""
    signed = coins[SIGNED]
    lanes = width(rarer)
    for i in range(first, last, 2 * lanes):
        p, other_p = _heads(signed, i), _heads(signed, i + lanes)
        shift = fill(rarer, narrow[0, powers])
        other_shift = shift
        for m in range(powers - 1, -1, -1):
            shift = shift * p + narrow[0, m]
            other_shift = other_shift * other_p + narrow[0, m]
        store(rarer, i, _corrected(signed, shift, i))
        store(rarer, i + lanes, _corrected(signed, other_shift, i + lanes))


@inlined
def _corrected(signed, shift, i):
    signed = load(signed, i)
    x = absolute(signed)
    y = x + (x - x * x) * choose(signed, 0.0, shift, 0.0 - shift)
    return choose(0.0, y, 0.0, choose(y, 1.0, 1.0, y))
