"""Moments of a row by the spectral method (see kernels/spectral.py), in two passes.

The first gathers what nodes need from all items, the characteristic function and the weighted
deviations; the second, with items in lanes, what each item needs from all nodes.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu.compile import inlined, part
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    exp_negative,
    fill,
    largest,
    load,
    store,
    total,
    width,
)
from ksubset.kernels.cpu.tilt import padded

# Arrays of a row's coins. SIGNED: the probability of the rarer side, times -1 where that is tails.
SIGNED, WEIGHT, COIN_ARRAYS = 0, 1, 2
# Arrays of its nodes. A lane that is no node has S = 0, C = 1 and weight 0.
SINE, COSINE, REAL, IMAG, DEV_REAL, DEV_IMAG, NODE_ARRAYS = 0, 1, 2, 3, 4, 5, 6
MOST_NODES = 64
_FOLD = 512  # items whose sum may stay in the working precision


@part
def variances(signed):
    """p q of coins, the variances of their heads."""
    x = absolute(signed)
    return x - x * x


@part
def toss(t, n, coins):
    """Fill the coins' arrays from tilted logits, padded with -inf.

    Returns the variance, the number of free coins, that of coins likelier to fall heads, and of
    free ones among these, the expected number of heads of free coins, and their largest p.
    """
    one, zero = fill(t, 1.0), fill(t, 0.0)
    some, free, ups, likely, top = zero, zero, zero, zero, zero
    variance, mean = 0.0, 0.0
    for block in range(0, n, _FOLD):
        signs = zero
        for i in range(block, min(block + _FOLD, padded(n)), width(t)):
            at = load(t, i)
            e = exp_negative(at)
            x = e / (1.0 + e)
            signed = choose(at, 0.0, 0.0 - x, x)
            store(coins[SIGNED], i, signed)
            some = some + variances(signed)
            signs = signs + signed
            ups = ups + choose(at, 0.0, one, zero)
            # Infinite ones have x = 0 exactly, and so have those that might as well be.
            free = free + choose(x, 0.0, one, zero)
            likely = likely + choose(0.0, signed, one, zero)
            p = choose(0.0, signed, 1.0 - x, x)
            top = choose(p, top, p, top)
        variance += total(some)
        some = zero
        mean += total(signs)
    heads = total(likely)
    return variance, total(free), total(ups), heads, mean + heads, np.float64(largest(top))


@part
def _skew(signed):
    """p - q of coins; -1 for all with p q = 0, where it does not matter."""
    return signed + signed + choose(0.0, signed, 1.0, -1.0)


@part
def centre(v, n, coins, variance):
    """v less its variance-weighted mean, in place, and WEIGHT = p q v.

    Twice: the second time takes out what rounding left of a mean far larger than the spread.
    Returns the mean.
    """
    size = padded(n)
    signed = coins[SIGNED]
    weighted = fill(v, 0.0)
    for i in range(0, size, width(v)):
        w = variances(load(signed, i))
        weighted = weighted + choose(w, 0.0, w * load(v, i), 0.0)
    mean = total(weighted) / max(variance, 1e-300)
    weighted = fill(v, 0.0)
    for i in range(0, size, width(v)):
        w = variances(load(signed, i))
        moved = choose(w, 0.0, load(v, i) - mean, 0.0)
        weighted = weighted + w * moved
        store(v, i, moved)
    rest = total(weighted) / max(variance, 1e-300)
    for i in range(0, size, width(v)):
        w = variances(load(signed, i))
        moved = choose(w, 0.0, load(v, i) - rest, 0.0)
        store(coins[WEIGHT], i, w * moved)
        store(v, i, moved)
    return mean + rest


@part
def place_nodes(variance, free, tail, decay, nodes):
    """Sines and cosines of half the angles of all nodes that count. Returns how many, and N."""
    return place(min(free + 1, spread_of(variance, tail)), variance, decay, nodes)


@part
def spread_of(variance, tail):
    """How far S is from its mean with probability exp(-tail) at most, by Bernstein's inequality."""
    return tail / 3 + math.sqrt(tail * tail / 9 + 2 * tail * variance)


@part
def place(number, variance, decay, nodes):
    """:func:`place_nodes` for N = ``number`` or a little more."""
    number = 2 * math.ceil((number - 1) / 2) + 1
    step_sine, step_cosine = math.sin(math.pi / number), math.cos(math.pi / number)
    sine, cosine = 0.0, 1.0
    count = 0
    for node in range(MOST_NODES):
        if 2 * node >= number or 2 * variance * sine * sine >= decay:
            break
        nodes[SINE, node], nodes[COSINE, node] = sine, cosine
        sine, cosine = (
            sine * step_cosine + cosine * step_sine,
            cosine * step_cosine - sine * step_sine,
        )
        count = node + 1
    _no_nodes(nodes, count)
    return count, number


@part
def _no_nodes(nodes, count):
    """The lanes beyond the last node, up to whole vectors. (A slice takes Numba longer.)"""
    for node in range(count, padded(count)):
        for array in range(NODE_ARRAYS):
            nodes[array, node] = 1 if array == COSINE else 0


@part
def characteristic(n, coins, count, nodes, at):
    """prod (1 - x + x e^(+- i omega)) at every node: E exp(i omega (S - ups)).

    With nodes in lanes, and multiplied up in float64, the type of ``at`` (4, nodes): ratios of such
    products, all that moments need, are good to the last digits of float32 for a few thousand
    items (:func:`gather`); the product itself, and longer ones, are not.
    """
    signed = coins[SIGNED]
    for node in range(padded(count)):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        at[0, node] = 2 * s * s
        at[1, node] = 2 * s * c
    for first in range(0, count, width(at)):
        down, turn = load(at[0], first), load(at[1], first)
        real, imag = fill(at, 1.0), fill(at, 0.0)
        # Two items at once: half as many steps that wait for each other.
        for i in range(0, padded(n), 2):
            a, b = signed[i], signed[i + 1]
            a_real, a_imag = 1.0 - abs(a) * down, a * turn
            b_real, b_imag = 1.0 - abs(b) * down, b * turn
            both_real = a_real * b_real - a_imag * b_imag
            both_imag = a_real * b_imag + a_imag * b_real
            real, imag = real * both_real - imag * both_imag, real * both_imag + imag * both_real
        store(at[2], first, real)
        store(at[3], first, imag)
    for node in range(count):
        nodes[REAL, node] = at[2, node]
        nodes[IMAG, node] = at[3, node]


@part
def weigh(count, number, k, nodes):
    """From the characteristic function to the weights of the mixture. Returns log P(S = k), k
    counted like S."""
    angle = 2 * math.pi * (k % number) / number
    step_real, step_imag = math.cos(angle), -math.sin(angle)
    turn_real, turn_imag = 1.0, 0.0
    whole = 0.0
    for node in range(count):
        real, imag = nodes[REAL, node], nodes[IMAG, node]
        twice = 2.0 if node else 1.0
        nodes[REAL, node] = twice * (real * turn_real - imag * turn_imag)
        nodes[IMAG, node] = twice * (imag * turn_real + real * turn_imag)
        whole += nodes[REAL, node]
        turn_real, turn_imag = (
            turn_real * step_real - turn_imag * step_imag,
            turn_imag * step_real + turn_real * step_imag,
        )
    for node in range(count):
        nodes[REAL, node] /= whole
        nodes[IMAG, node] /= whole
    return math.log(whole / number) if whole > 0 else math.nan


@part
def deviations(n, coins, count, nodes, narrow):
    """sum_j v_j (r_j - p_j) at every node, with nodes in lanes."""
    signed, weight = coins[SIGNED], coins[WEIGHT]
    end = padded(count)
    lanes = width(signed)
    for node in range(end):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        narrow[0, node] = s * s
        narrow[1, node] = c * c
        nodes[DEV_REAL, node] = 0
        nodes[DEV_IMAG, node] = 0
    for first in range(0, count, lanes):
        s2, c2 = load(narrow[0], first), load(narrow[1], first)
        for block in range(0, n, _FOLD):
            real, imag = fill(signed, 0.0), fill(signed, 0.0)
            # Two items share a division.
            for i in range(block, min(block + _FOLD, padded(n)), 2):
                a, b = signed[i], signed[i + 1]
                d = a + a + (1 if a < 0 else -1)
                e = b + b + (1 if b < 0 else -1)
                left, right = c2 + s2 * (d * d), c2 + s2 * (e * e)
                inverse = 1.0 / (left * right)
                first_ratio = weight[i] * (right * inverse)
                second_ratio = weight[i + 1] * (left * inverse)
                real = real + first_ratio * d + second_ratio * e
                imag = imag + first_ratio + second_ratio
            store(narrow[2], first, real)
            store(narrow[3], first, imag)
            for node in range(first, min(first + lanes, count)):
                nodes[DEV_REAL, node] += narrow[2, node]
                nodes[DEV_IMAG, node] += narrow[3, node]
    _scale_deviations(count, nodes)


@part
def _product(real, imag, lanes):
    """The product of complex numbers."""
    a, b = 1.0, 0.0
    for i in range(lanes):
        a, b = a * real[i] - b * imag[i], a * imag[i] + b * real[i]
    return a, b


@inlined
def _gather(n, coins, count, decay, nodes, lanes, weighted):
    """:func:`gather`; only the characteristic function if not weighted."""
    enough = math.exp(-2 * decay)
    signed, weight = coins[SIGNED], coins[WEIGHT]
    for node in range(0, count, 2):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        t, d = nodes[SINE, node + 1], nodes[COSINE, node + 1]
        s2, c2, sc = s * s, c * c, 2 * s * c
        t2, d2, td = t * t, d * d, 2 * t * d
        one, zero = fill(signed, 1.0), fill(signed, 0.0)
        real, imag, other_real, other_imag = one, zero, one, zero
        dev_real, dev_imag, other_dev_real, other_dev_imag = zero, zero, zero, zero
        for i in range(0, padded(n), width(signed)):
            ys = load(signed, i)
            xs = absolute(ys)
            a, b = 1.0 - xs * (2 * s2), ys * sc
            real, imag = real * a - imag * b, real * b + imag * a
            a, b = 1.0 - xs * (2 * t2), ys * td
            other_real, other_imag = (
                other_real * a - other_imag * b,
                other_real * b + other_imag * a,
            )
            if weighted:
                ds = _skew(ys)
                square = ds * ds
                # The two nodes share a division.
                left, right = c2 + s2 * square, d2 + t2 * square
                both = load(weight, i) / (left * right)
                ratio = both * right
                dev_real, dev_imag = dev_real + ratio * ds, dev_imag + ratio
                ratio = both * left
                other_dev_real, other_dev_imag = other_dev_real + ratio * ds, other_dev_imag + ratio
        store(lanes[0], 0, real)
        store(lanes[1], 0, imag)
        store(lanes[2], 0, other_real)
        store(lanes[3], 0, other_imag)
        nodes[REAL, node], nodes[IMAG, node] = _product(lanes[0], lanes[1], width(signed))
        if weighted:
            nodes[DEV_REAL, node], nodes[DEV_IMAG, node] = total(dev_real), total(dev_imag)
        if node + 1 < count:
            nodes[REAL, node + 1], nodes[IMAG, node + 1] = _product(
                lanes[2], lanes[3], width(signed)
            )
            if weighted:
                nodes[DEV_REAL, node + 1] = total(other_dev_real)
                nodes[DEV_IMAG, node + 1] = total(other_dev_imag)
            a, b = nodes[REAL, node + 1], nodes[IMAG, node + 1]
            if a * a + b * b < enough:
                count = node + 2
                _no_nodes(nodes, count)
                break
    return count


@part
def gather(n, coins, count, decay, nodes, lanes):
    """:func:`characteristic` and :func:`deviations` in one pass with items in lanes,
    two nodes at a time, in the working precision. Returns how many nodes count: the modulus of the
    characteristic function falls from node to node, and often faster than place_nodes can know.
    lanes: an array (4, width)."""
    count = _gather(n, coins, count, decay, nodes, lanes, True)
    _scale_deviations(count, nodes)
    return count


@part
def gather_characteristic(n, coins, count, decay, nodes, lanes):
    """:func:`gather` without the deviations."""
    return _gather(n, coins, count, decay, nodes, lanes, False)


@part
def _scale_deviations(count, nodes):
    """From sums over items to sum_j v_j (r_j - p_j)."""
    for node in range(count):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        nodes[DEV_REAL, node] *= 2 * s * s
        nodes[DEV_IMAG, node] *= 2 * s * c


@part
def centre_deviations(count, nodes):
    """Less their mean over the mixture."""
    mean = 0.0
    for node in range(count):
        mean += nodes[REAL, node] * nodes[DEV_REAL, node]
        mean -= nodes[IMAG, node] * nodes[DEV_IMAG, node]
    for node in range(count):
        nodes[DEV_REAL, node] -= mean


@part
def weigh_deviations(count, nodes):
    """Times the weights of the mixture: what :func:`combine` takes."""
    for node in range(padded(count)):
        real, imag = nodes[REAL, node], nodes[IMAG, node]
        g, h = nodes[DEV_REAL, node], nodes[DEV_IMAG, node]
        nodes[DEV_REAL, node], nodes[DEV_IMAG, node] = real * g - imag * h, real * h + imag * g


@part
def correct(n, coins, count, nodes, narrow, rarer):
    """rarer = P(rarer side | S = k) of every coin."""
    prepare_correction(count, nodes, narrow)
    correct_some(0, padded(n), coins, count, narrow, rarer)


@part
def prepare_correction(count, nodes, narrow):
    """What :func:`correct_some` needs of the nodes."""
    for node in range(padded(count)):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        narrow[0, node] = s * s
        narrow[1, node] = c * c
        narrow[2, node] = 2 * s * s * nodes[REAL, node]
        narrow[3, node] = 2 * s * c * nodes[IMAG, node]


@part
def correct_some(first, last, coins, count, narrow, rarer):
    """:func:`correct` for the items from the first to the last, in whole vectors."""
    coin = coins[SIGNED]
    for i in range(first, last, width(coin)):
        signed = load(coin, i)
        d = _skew(signed)
        square = d * d
        shift = fill(d, 0.0)
        for node in range(0, count, 2):
            left = narrow[1, node] + narrow[0, node] * square
            right = narrow[1, node + 1] + narrow[0, node + 1] * square
            both = 1.0 / (left * right)
            shift = shift + (narrow[2, node] * d - narrow[3, node]) * (right * both)
            shift = shift + (narrow[2, node + 1] * d - narrow[3, node + 1]) * (left * both)
        y = absolute(signed) + variances(signed) * choose(signed, 0.0, shift, 0.0 - shift)
        y = choose(0.0, y, 0.0, choose(y, 1.0, 1.0, y))
        store(rarer, i, y)


@part
def combine(n, coins, count, nodes, narrow, v):
    """v = Cov v, from weighted deviations."""
    coin = coins[SIGNED]
    for node in range(padded(count)):
        s, c = nodes[SINE, node], nodes[COSINE, node]
        real, imag = nodes[REAL, node], nodes[IMAG, node]
        g, h = nodes[DEV_REAL, node], nodes[DEV_IMAG, node]
        narrow[0, node] = s * s
        narrow[1, node] = c * c
        narrow[2, node] = 2 * s * s * g
        narrow[3, node] = -2 * s * c * h
        narrow[4, node] = real * c * c
        narrow[5, node] = 2 * s * c * imag
        narrow[6, node] = -real * s * s
    for i in range(0, padded(n), width(v)):
        signed = load(coin, i)
        d = _skew(signed)
        square = d * d
        across, within = fill(d, 0.0), fill(d, 0.0)
        # Two nodes share a division.
        for node in range(0, count, 2):
            left = narrow[1, node] + narrow[0, node] * square
            right = narrow[1, node + 1] + narrow[0, node + 1] * square
            both = 1.0 / (left * right)
            inverse = right * both
            across = across + inverse * (narrow[2, node] * d + narrow[3, node])
            spread = narrow[4, node] + narrow[5, node] * d + narrow[6, node] * square
            within = within + spread * inverse * inverse
            inverse = left * both
            across = across + inverse * (narrow[2, node + 1] * d + narrow[3, node + 1])
            spread = narrow[4, node + 1] + narrow[5, node + 1] * d + narrow[6, node + 1] * square
            within = within + spread * inverse * inverse
        store(v, i, variances(signed) * (across + load(v, i) * within))


@part
def log_likelier(n, coins):
    """sum log(1 - x) over rarer sides: x <= 1/2, and a few hundred factors fit into float64."""
    signed = coins[SIGNED]
    whole = 0.0
    for block in range(0, n, _FOLD):
        product = 1.0
        for i in range(block, min(block + _FOLD, n)):
            product *= 1.0 - np.float64(abs(signed[i]))
        whole += math.log(product)
    return whole
