"""Loops over rows with several sizes: the spectral method, row by row.

Where one size has e^(-i omega k) at a node, several have the sum of e^(weight(j) - i omega j): see
kernels/sizes.py. All else is as for one size (:mod:`.rows`). If all sizes that the coins reach have
the same weight, the coins are independent, and their moments need no nodes. Rows with anything out
of the ordinary are noted in a list.
"""

from __future__ import annotations

import math

import numpy as np

from ksubset.kernels.cpu import moments, series
from ksubset.kernels.cpu import rows as one_by_one
from ksubset.kernels.cpu.compile import allocating, inlined, part
from ksubset.kernels.cpu.moments import DEV_IMAG, DEV_REAL, IMAG, MOST_NODES, REAL, SIGNED
from ksubset.kernels.cpu.noise import key_of_size, uniform
from ksubset.kernels.cpu.rows import _fill, _scratch
from ksubset.kernels.cpu.short import SCALE
from ksubset.kernels.cpu.simd import (
    absolute,
    choose,
    clear,
    copy,
    fill,
    load,
    rounded,
    store,
    total,
    width,
)
from ksubset.kernels.cpu.tilt import means, padded, shift_row, tilt_row

# What is known of a row beside its nodes, as numbers.
VARIANCE, CERTAIN, MEAN, TOP, UPS, FREE, MASS, FACTS = 0, 1, 2, 3, 4, 5, 6, 7
_FOLD = 128  # logits whose sum may stay in the working precision


@part
def _ends(c):
    """The first and the last size that is possible, as columns."""
    low, high = 0, len(c) - 1
    while low < high and not c[low] > -np.inf:
        low += 1
    while high > low and not c[high] > -np.inf:
        high -= 1
    return low, high if c[low] > -np.inf else -1


@part
def _most_likely(row, n, first, c, low, high, flat):
    """The last column at which the coins, tilted by the slope of c to its left, still expect as
    many heads or more, or one at which they expect as many up to a half; and their expected heads
    with this slope and, if it was needed, the next one."""
    size = padded(n)
    if flat:
        signed, _, likely = means(row, size, 0.0)
        mean = signed + likely
        if np.isnan(mean):
            return -1, mean, mean
        at = min(max(math.floor(mean + 0.5) - first, low), high)
        return at, mean, mean
    on_left, on_right = np.nan, np.nan
    start, end = low, high
    at = (low + high + 1) // 2
    step = 0
    while start < end:
        signed, variance, likely = means(row, size, c[at] - c[at - 1])
        mean = signed + likely
        if np.isnan(mean):
            return -1, mean, mean
        excess = mean - (first + at)
        if abs(excess) <= 0.5:
            # Near enough: no weight is larger with this slope.
            return at, mean, np.nan
        if excess > 0:
            start, on_left = at, mean
        else:
            end, on_right = at - 1, mean
        step += 1
        bend = c[at + 1] - 2 * c[at] + c[at - 1] if at < high else 0.0
        move = excess / (1 - variance * min(bend, 0.0))
        if step > 4 and step % 2 == 0:
            at = (start + end + 1) // 2
        else:
            at = at + math.floor(min(max(move, -1e9), 1e9) + 0.5)
        at = min(max(at, start + 1), end)
    return start, on_left, on_right


@part
def _tilt(row, n, first, c, flat):
    """Tilt a row in place. Returns the column of the centre, -1 if there is none, the shift, and
    the first and last columns that are possible."""
    low, high = _ends(c)
    at, on_left, on_right = -1, np.nan, np.nan
    if high >= 0:
        at, on_left, on_right = _most_likely(row, n, first, c, low, high, flat)
    if at < 0:
        return -1, 0.0, low, high
    centre = first + at
    shift, slope = 0.0, np.nan
    if at > low and on_left <= centre + 0.5:
        slope = c[at] - c[at - 1]
    elif at < high and on_right >= centre - 0.5:
        slope = c[at + 1] - c[at]
    if np.isnan(slope):
        shift = tilt_row(row, n, centre)
        return -1 if np.isnan(row[0]) else at, shift, low, high
    if slope != 0:
        shift = rounded(row, slope)
        shift_row(row, padded(n), shift)
    return at, shift, low, high


@part
def _toss(row, n, coins, facts):
    variance, free, ups, likely, mean, top = moments.toss(row, n, coins)
    facts[VARIANCE], facts[CERTAIN], facts[MEAN] = variance, ups - likely, mean
    facts[TOP], facts[UPS], facts[FREE] = top, ups, free


@part
def _window(facts, centre, tail, low, high):
    """The sizes between low and high that the coins reach, less the centre; and whether those are
    all that the coins reach."""
    certain = facts[CERTAIN]
    reach = moments.spread_of(facts[VARIANCE], tail)
    reach = int(reach + abs(facts[MEAN] + certain - centre))
    least = max(-reach, int(certain) - centre)
    most = min(reach, int(certain + facts[FREE]) - centre)
    lower, upper = max(least, low - centre), min(most, high - centre)
    return lower, upper, lower == least and upper == most


@part
def _place(facts, lower, upper, centre, tail, decay, nodes):
    """Sizes that are N apart are one to the nodes."""
    spread = moments.spread_of(facts[VARIANCE], tail)
    spread += abs(facts[MEAN] + facts[CERTAIN] - centre)
    number = min(facts[FREE] + 1, spread + max(-lower, upper))
    return moments.place(number, facts[VARIANCE], decay, nodes)


@part
def _turn(count, number, k, nodes):
    """E exp(i omega (S - centre)) from that of S - centre - k, twice where a node stands for its
    conjugate too."""
    angle = 2 * math.pi * (k % number) / number
    step_real, step_imag = math.cos(angle), math.sin(angle)
    turn_real, turn_imag = 1.0, 0.0
    for node in range(count):
        real, imag = nodes[REAL, node], nodes[IMAG, node]
        twice = 2.0 if node else 1.0
        nodes[REAL, node] = twice * (real * turn_real - imag * turn_imag)
        nodes[IMAG, node] = twice * (imag * turn_real + real * turn_imag)
        turn_real, turn_imag = (
            turn_real * step_real - turn_imag * step_imag,
            turn_imag * step_real + turn_real * step_imag,
        )


@part
def _angles(number, lower, work):
    """cos and sin of omega j of the first node, for as many sizes j from the lower as a vector has
    lanes, and of a step of that many."""
    lanes = width(work)
    for lane in range(lanes):
        angle = 2 * math.pi * ((lower + lane) % number) / number
        work[lane], work[lanes + lane] = math.cos(angle), math.sin(angle)
    angle = 2 * math.pi * (lanes % number) / number
    return math.cos(angle), math.sin(angle)


@inlined
def _turned(cosine, sine, by_cosine, by_sine):
    """The product of complex numbers."""
    return cosine * by_cosine - sine * by_sine, sine * by_cosine + cosine * by_sine


@part
def _at_sizes(count, number, real, imag, lower, upper, work, found):
    """found[j] = Re sum_v g_v e^(-i omega_v (lower + j)) for g at the nodes."""
    lanes = width(found)
    end = upper - lower + 1
    for j in range(0, end, lanes):
        store(found, j, fill(found, real[0]))
    step_cosine, step_sine = _angles(number, lower, work)
    base_cosine, base_sine = load(work, 0), load(work, lanes)
    start_cosine, start_sine = fill(found, 1.0), fill(found, 0.0)
    jump_cosine, jump_sine = 1.0, 0.0
    # Two nodes at once: half as many steps that wait for each other.
    for node in range(1, count, 2):
        start_cosine, start_sine = _turned(start_cosine, start_sine, base_cosine, base_sine)
        jump_cosine, jump_sine = _turned(jump_cosine, jump_sine, step_cosine, step_sine)
        # g e^(-i omega j), turned from size to size.
        a = start_cosine * real[node] + start_sine * imag[node]
        b = start_cosine * imag[node] - start_sine * real[node]
        c, s = jump_cosine, -jump_sine
        start_cosine, start_sine = _turned(start_cosine, start_sine, base_cosine, base_sine)
        jump_cosine, jump_sine = _turned(jump_cosine, jump_sine, step_cosine, step_sine)
        next_real = real[node + 1] if node + 1 < count else 0.0
        next_imag = imag[node + 1] if node + 1 < count else 0.0
        d = start_cosine * next_real + start_sine * next_imag
        e = start_cosine * next_imag - start_sine * next_real
        for j in range(0, end, lanes):
            store(found, j, load(found, j) + (a + d))
            a, b = _turned(a, b, c, s)
            d, e = _turned(d, e, jump_cosine, -jump_sine)


@part
def _at_nodes(count, number, f, lower, upper, work, real, imag):
    """real + i imag = sum_j f_j e^(-i omega_v (lower + j)) at the nodes. f is padded by zeros."""
    lanes = width(f)
    end = upper - lower + 1
    step_cosine, step_sine = _angles(number, lower, work)
    base_cosine, base_sine = load(work, 0), load(work, lanes)
    start_cosine, start_sine = fill(f, 1.0), fill(f, 0.0)
    jump_cosine, jump_sine = 1.0, 0.0
    for node in range(0, count, 2):
        a, b, c, s = start_cosine, start_sine, jump_cosine, jump_sine
        start_cosine, start_sine = _turned(start_cosine, start_sine, base_cosine, base_sine)
        jump_cosine, jump_sine = _turned(jump_cosine, jump_sine, step_cosine, step_sine)
        d, e = start_cosine, start_sine
        cosines, sines = fill(f, 0.0), fill(f, 0.0)
        other_cosines, other_sines = cosines, sines
        for j in range(0, end, lanes):
            here = load(f, j)
            cosines, sines = cosines + here * a, sines + here * b
            other_cosines, other_sines = other_cosines + here * d, other_sines + here * e
            a, b = _turned(a, b, c, s)
            d, e = _turned(d, e, jump_cosine, jump_sine)
        real[node], imag[node] = total(cosines), -total(sines)
        if node + 1 < count:
            real[node + 1], imag[node + 1] = total(other_cosines), -total(other_sines)
        start_cosine, start_sine = _turned(start_cosine, start_sine, base_cosine, base_sine)
        jump_cosine, jump_sine = _turned(jump_cosine, jump_sine, step_cosine, step_sine)


@part
def _times(count, nodes, real, imag):
    """The nodes' numbers times others, in the latter."""
    for node in range(count):
        a, b, c, d = nodes[REAL, node], nodes[IMAG, node], real[node], imag[node]
        real[node], imag[node] = a * c - b * d, a * d + b * c


@part
def _characteristic(
    n, centre, coins, decay, facts, count, number, nodes, narrow, wide, sums, lanes, sums_of
):
    """Fill the nodes. Returns how many count, and how many powers were enough, 0 for none."""
    powers = series.powers_for(facts[TOP], facts[MEAN], facts[VARIANCE], decay, series.MOST_SUMS)
    if powers > 0:
        series.probability_sums(n, coins, powers, lanes, sums)
        k = centre - facts[CERTAIN]
        series.characteristic(count, number, k, facts[MEAN], powers, sums, nodes)
        _turn(count, number, 0.0, nodes)
    else:
        count = sums_of(n, coins, count, decay, nodes, narrow, wide)
        _turn(count, number, facts[UPS] - centre, nodes)
    return count, powers


@part
def _join(number, lower, upper, weights, joint):
    """From sums over nodes to P(|z| = j) over the window and e^weight(j) / (N Z), in place of
    weights. Returns Z."""
    mass = 0.0
    for j in range(upper - lower + 1):
        joint[j] = max(joint[j] / number, 0.0) * weights[j]
        mass += joint[j]
    if not mass > 0:
        return mass
    for j in range(upper - lower + 1):
        joint[j] /= mass
        weights[j] /= number * mass
    return mass


@part
def _weigh(c, at, shift, flat, lower, upper, weights):
    """e^weight(j) over the window, and zeros behind it. Returns whether all are one."""
    same = flat and shift == 0
    for j in range(upper - lower + 1):
        weights[j] = 1.0
        if not same:
            offset = lower + j
            rise = 0.0 if flat else c[at + offset] - c[at]
            weights[j] = math.exp(rise - shift * offset)
    for j in range(upper - lower + 1, padded(upper - lower + 1)):
        weights[j] = 0.0
    return same


@part
def _write_weights(c, at, shift, flat, low, high, weights):
    """The logarithms, of all sizes."""
    for j in range(low):
        weights[j] = -np.inf
    for j in range(high + 1, len(c)):
        weights[j] = -np.inf
    if flat:
        for j in range(low, high + 1):
            weights[j] = -shift * (j - at)
    else:
        top = c[at]
        for j in range(low, high + 1):
            weights[j] = c[j] - top - shift * (j - at)


@part
def _log_partition(n, centre, log_mass, shift, log_likelier, logits, row, facts):
    """See rows._infer_one."""
    likely = 0.0
    for block in range(0, n, _FOLD):
        here = fill(row, 0.0)
        last = min(block + _FOLD, n)
        whole = last - (last - block) % width(row)
        for i in range(block, whole, width(row)):
            theta = load(logits, i)
            here = here + choose(load(row, i), 0.0, choose(np.inf, theta, theta, 0.0) * SCALE, 0.0)
        likely += total(here)
        for i in range(whole, last):
            if row[i] > 0 and logits[i] < np.inf:
                likely += np.float64(logits[i]) * SCALE
    return log_mass - log_likelier + (likely + shift * SCALE * (facts[UPS] - centre)) / SCALE


@allocating
def _room(n, sizes):
    """Working space for numbers of sizes near the centre."""
    return np.empty((3, padded(sizes) + 16), np.float64)


@allocating
def infer(
    first, last, noted, start, flat, logits, c, tail, decay,
    whole, marginals, chances, tilted, weights, centre, log_mass,
):  # fmt: skip
    """All that ksubset.kernels.sizes.infer returns, for log-weights c (rows, sizes) of sizes from
    the start; c has one row if it is the same for all. Returns how many rows are noted."""
    n, sizes, odd = logits.shape[-1], chances.shape[-1], 0
    row, coins, nodes, narrow, wide, sums, lanes = _scratch(logits)
    rarer = np.empty(padded(n), logits.dtype)
    facts, angles = np.empty(FACTS, np.float64), np.empty(16, np.float64)
    room = _room(n, sizes)
    near, joint = room[0], room[1]
    for r in range(first, last):
        own = c[r if len(c) > 1 else 0]
        copy(logits[r], row, n)
        for i in range(n, padded(n)):
            row[i] = -np.inf
        at, shift, low, high = _tilt(row, n, start, own, flat)
        if at < 0:
            noted[r] = 1
            odd += 1
            continue
        middle = start + at
        _toss(row, n, coins, facts)
        lower, upper, all_reached = _window(facts, middle, tail, start + low, start + high)
        if lower > upper:
            noted[r] = 1
            odd += 1
            continue
        count, number = _place(facts, lower, upper, middle, tail, decay, nodes)
        # The log-partition takes all digits of the characteristic function.
        count, powers = _characteristic(
            n, middle, coins, decay, facts, count, number, nodes, narrow, wide, sums, lanes,
            one_by_one.wide_characteristic,
        )  # fmt: skip
        same = _weigh(own, at, shift, flat, lower, upper, near)
        _at_sizes(count, number, nodes[REAL], nodes[IMAG], lower, upper, angles, joint)
        mass = _join(number, lower, upper, near, joint)
        if not mass > 0:
            noted[r] = 1
            odd += 1
            continue
        copy(row, tilted[r], n)
        centre[r] = middle
        log_mass[r] = math.log(mass)
        log_likelier = moments.log_likelier(n, coins)
        top = 0.0 if flat else own[at]
        whole[r] = top + _log_partition(
            n, middle, log_mass[r], shift, log_likelier, logits[r], row, facts
        )
        _write_weights(own, at, shift, flat, low, high, weights[r])
        clear(chances[r], sizes)
        for j in range(upper - lower + 1):
            chances[r, at + lower + j] = joint[j]
        if same and all_reached:
            _heads(n, row, coins[SIGNED], marginals[r])
            continue
        _at_nodes(count, number, near, lower, upper, angles, nodes[DEV_REAL], nodes[DEV_IMAG])
        _times(count, nodes, nodes[DEV_REAL], nodes[DEV_IMAG])
        for node in range(count):
            nodes[REAL, node], nodes[IMAG, node] = nodes[DEV_REAL, node], nodes[DEV_IMAG, node]
        if 0 < powers <= series.MOST_POWERS:
            series.correct(n, coins, count, powers, nodes, sums, narrow, rarer)
        else:
            moments.correct(n, coins, count, nodes, narrow, rarer)
        for i in range(n):
            marginals[r, i] = 1 - rarer[i] if row[i] > 0 else rarer[i]
    return odd


@part
def _heads(n, row, signed, marginals):
    """Of independent coins."""
    end = n - n % width(signed)
    for i in range(0, end, width(signed)):
        x = absolute(load(signed, i))
        store(marginals, i, choose(load(row, i), 0.0, 1.0 - x, x))
    for i in range(end, n):
        x = abs(signed[i])
        marginals[i] = 1 - x if row[i] > 0 else x


@allocating
def draw(
    first, last, noted, start, flat, logits, c, seeds, several, tail, decay,
    tilted, weights, centre, drawn, sums_of,
):  # fmt: skip
    """Sizes (samples * rows) for seeds of all, or for one and those that follow it. And, if there
    is room for them, the tilted logits and weights that products start from. With
    narrow_characteristic or wide_characteristic of :mod:`.rows`."""
    (rows, n), odd, keeps = logits.shape, 0, len(tilted) > 0
    samples = len(drawn) // rows
    row, coins, nodes, narrow, wide, sums, lanes = _scratch(logits)
    facts, angles = np.empty(FACTS, np.float64), np.empty(16, np.float64)
    room = _room(n, c.shape[-1])
    near, joint = room[0], room[1]
    for r in range(first, last):
        own = c[r if len(c) > 1 else 0]
        copy(logits[r], row, n)
        for i in range(n, padded(n)):
            row[i] = -np.inf
        at, shift, low, high = _tilt(row, n, start, own, flat)
        if at < 0:
            noted[r] = 1
            odd += 1
            continue
        middle = start + at
        if keeps:
            copy(row, tilted[r], n)
            centre[r] = middle
            _write_weights(own, at, shift, flat, low, high, weights[r])
        if samples == 0:
            continue
        _toss(row, n, coins, facts)
        lower, upper, _ = _window(facts, middle, tail, start + low, start + high)
        mass = 0.0
        if lower <= upper:
            count, number = _place(facts, lower, upper, middle, tail, decay, nodes)
            count, _ = _characteristic(
                n, middle, coins, decay, facts, count, number, nodes, narrow, wide, sums, lanes,
                sums_of,
            )  # fmt: skip
            _weigh(own, at, shift, flat, lower, upper, near)
            _at_sizes(count, number, nodes[REAL], nodes[IMAG], lower, upper, angles, joint)
            mass = _join(number, lower, upper, near, joint)
        if not mass > 0:
            noted[r] = 1
            odd += 1
            continue
        for s in range(samples):
            place = s * rows + r
            seed = seeds[0] + place if several == 1 else seeds[place]
            u = uniform(key_of_size(np.uint64(seed)), 0)
            found = -1
            for j in range(upper - lower + 1):
                # Rounding must not lead to a size without a chance.
                if joint[j] > 0:
                    found = j
                    u -= joint[j]
                    if u < 0:
                        break
            drawn[place] = middle + lower + found
    return odd


@part
def _as_independent(n, coins, v, product):
    """Cov v = p q v."""
    signed = coins[SIGNED]
    for i in range(n):
        x = abs(signed[i])
        product[i] = (x - x * x) * v[i] if x > 0 else 0.0


@allocating
def covariance_product(
    first, last, noted, start, of_sizes, tilted, weights, centre, v, f, tail, decay,
    items, sizes_out, sums_of,
):  # fmt: skip
    """The covariances of z, and of the indicators of sizes if these are wanted, with v . z +
    f(|z|); with narrow_sums or wide_sums of :mod:`.rows`."""
    n, sizes, odd = tilted.shape[-1], weights.shape[-1], 0
    row, coins, nodes, narrow, wide, sums, lanes = _scratch(tilted)
    work = np.empty(padded(n), tilted.dtype)
    facts, angles = np.empty(FACTS, np.float64), np.empty(16, np.float64)
    more = np.empty((4, MOST_NODES), np.float64)
    room = _room(n, sizes)
    near, joint, other = room[0], room[1], room[2]
    for r in range(first, last):
        copy(tilted[r], row, n)
        for i in range(n, padded(n)):
            row[i] = -np.inf
        if np.isnan(row[0]):
            _fill(items[r], np.nan)
            if of_sizes:
                _fill(sizes_out[r], np.nan)
            continue
        middle = centre[r]
        _toss(row, n, coins, facts)
        low, high = _ends(weights[r])
        lower, upper, all_reached = _window(facts, middle, tail, start + low, start + high)
        at = middle - start
        # Of what is within reach all sizes may have the same weight.
        same = True
        for j in range(upper - lower + 1):
            same = same and weights[r, at + lower + j] == 0
        if same and all_reached and not of_sizes:
            _as_independent(n, coins, v[r], items[r])
            continue
        copy(v[r], work, n)
        for i in range(n, padded(n)):
            work[i] = 0
        mean = moments.centre(work, n, coins, facts[VARIANCE])
        count, number = _place(facts, lower, upper, middle, tail, decay, nodes)
        powers = series.powers_for(facts[TOP], facts[MEAN], facts[VARIANCE], decay)
        if powers > 0:
            series.power_sums(n, coins, powers, lanes, sums)
            k = middle - facts[CERTAIN]
            series.characteristic(count, number, k, facts[MEAN], powers, sums, nodes)
            series.deviations(count, powers, sums, nodes)
            _turn(count, number, 0.0, nodes)
        else:
            count = sums_of(n, coins, count, decay, nodes, narrow, wide)
            _turn(count, number, facts[UPS] - middle, nodes)
        for j in range(upper - lower + 1):
            near[j] = math.exp(np.float64(weights[r, at + lower + j]))
        for j in range(upper - lower + 1, padded(upper - lower + 1)):
            near[j], other[j] = 0.0, 0.0
        _at_sizes(count, number, nodes[REAL], nodes[IMAG], lower, upper, angles, joint)
        if not _join(number, lower, upper, near, joint) > 0:
            noted[r] = 1
            odd += 1
            continue
        # Of sizes: f, and the mean of v times the size, less their mean.
        expected = 0.0
        for j in range(upper - lower + 1):
            here = mean * (lower + j)
            if of_sizes:
                here += np.float64(f[r, at + lower + j])
            other[j] = here if joint[j] > 0 else 0.0
            expected += joint[j] * other[j]
        for j in range(upper - lower + 1):
            other[j] = other[j] - expected if joint[j] > 0 else 0.0
        if of_sizes:
            clear(sizes_out[r], sizes)
            for j in range(upper - lower + 1):
                sizes_out[r, at + lower + j] = joint[j] * other[j]
        for j in range(upper - lower + 1):
            other[j] *= near[j]
        _at_nodes(count, number, near, lower, upper, angles, more[0], more[1])
        _times(count, nodes, more[0], more[1])
        _at_nodes(count, number, other, lower, upper, angles, more[2], more[3])
        _times(count, nodes, more[2], more[3])
        # The characteristic function goes, the weights of the mixture come.
        for node in range(count):
            a, b = nodes[REAL, node], nodes[IMAG, node]
            nodes[REAL, node], nodes[IMAG, node] = more[0, node], more[1, node]
            more[0, node], more[1, node] = a, b
        moments.centre_deviations(count, nodes)
        if of_sizes:
            for node in range(count):
                a, b = more[0, node], more[1, node]
                g, h = nodes[DEV_REAL, node], nodes[DEV_IMAG, node]
                more[0, node], more[1, node] = a * g - b * h, a * h + b * g
            _at_sizes(count, number, more[0], more[1], lower, upper, angles, joint)
            for j in range(upper - lower + 1):
                sizes_out[r, at + lower + j] += near[j] * joint[j]
        moments.weigh_deviations(count, nodes)
        for node in range(count):
            nodes[DEV_REAL, node] += more[2, node]
            nodes[DEV_IMAG, node] += more[3, node]
        if powers > 0:
            series.combine(n, coins, count, powers, nodes, sums, narrow, work)
        else:
            moments.combine(n, coins, count, nodes, narrow, work)
        copy(work, items[r], n)
    return odd
