"""Triton kernels for rows that fit in registers: one program per row, one pass over it.

The same mathematics as the plain torch files (docs/mathematics.md): the tilt of ``coins.py``, the
mixture of ``spectral.py`` in one loop over nodes, and samples by rejection: toss all coins until
k show heads, four tries per call of Philox. Nothing here synchronises with the host.

float32 only. Every loop is bounded; a row whose tries run out is drawn item by item from the
characteristic function in float64, which is exact as well.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_ITEMS = 8192
_STEPS = tl.constexpr(64)  # of the tilt
_PI = tl.constexpr(3.141592653589793)
_INF = tl.constexpr(float("inf"))
# As in spectral.PRECISIONS
_TAIL, _DECAY = tl.constexpr(18.0), tl.constexpr(19.0)


@triton.jit
def _add3(a0, b0, c0, a1, b1, c1):
    return a0 + a1, b0 + b1, c0 + c1


@triton.jit
def _middle(low, high):
    """Midpoint in the order of floating point numbers: any bracket closes in 32 steps."""
    a = low.to(tl.int32, bitcast=True)
    b = high.to(tl.int32, bitcast=True)
    a = a ^ ((a >> 31) & 0x7FFFFFFF)
    b = b ^ ((b >> 31) & 0x7FFFFFFF)
    mid = (a >> 1) + (b >> 1) + (a & b & 1)
    mid = mid ^ ((mid >> 31) & 0x7FFFFFFF)
    return mid.to(tl.float32, bitcast=True)


@triton.jit
def _solve(theta, chosen, count, start, low, high, is_open):
    """See coins._solve: Newton on the logarithm of the rarer mean, safeguarded by bisection."""
    few = chosen <= count * 0.5
    rare = tl.where(few, chosen, count - chosen)
    c = tl.minimum(tl.maximum(start, low), high)
    step = chosen * 0
    running = is_open > 0
    while running:
        t = theta + c
        up = t > 0
        e = tl.exp(-tl.abs(t))
        x = e / (1 + e)
        signed = tl.where(up, -x, x)
        signed_sum, variance, heads = tl.reduce((signed, x * (1 - x), up.to(tl.float32)), 0, _add3)
        excess = signed_sum + (heads - chosen)
        mean_rare = tl.maximum(tl.where(few, excess, -excess) + rare, 1e-30)
        move = tl.log(rare / mean_rare) * mean_rare / tl.maximum(variance, 1e-30)
        newton = c + tl.where(few, move, -move)
        close = tl.abs(excess) <= 0.05 * tl.maximum(tl.sqrt(variance), 1.0)
        polish = excess / tl.maximum(variance, 1e-37)
        polish = tl.minimum(tl.maximum(polish, -2.0), 2.0)
        low = tl.where(excess < 0, tl.maximum(low, c), low)
        high = tl.where(excess > 0, tl.minimum(high, c), high)
        inside = (newton > low) & (newton < high) & (step - 3 * tl.floor(step / 3) < 1.5)
        c = tl.where(close, c - polish, tl.where(inside, newton, _middle(low, high)))
        step += 1
        running = tl.where(close, step * 0, _STEPS - step) > 0.5
    return c


@triton.jit
def _tilt(theta, k, inside):
    """The tilted row with its special values, and the shift in two parts (coins.tilt)."""
    free = (tl.abs(theta) < _INF) & inside
    forced = (theta == _INF) & inside
    nan = (theta != theta) & inside
    free_count, forced_count, nan_count = tl.reduce(
        (free.to(tl.float32), forced.to(tl.float32), nan.to(tl.float32)), 0, _add3
    )
    free_k = k.to(tl.float32) - forced_count
    # Flags of the row are numbers: they multiply the flags of its items.
    valid = tl.where(nan_count > 0, 0.0, 1.0)
    valid = tl.where(free_k < 0, 0.0, tl.where(free_k > free_count, 0.0, valid))
    is_open = tl.where(free_k > 0, valid, 0.0)
    is_open = tl.where(free_k < free_count, is_open, 0.0)
    chosen = tl.where(is_open > 0, free_k, 1.0)
    count = tl.where(is_open > 0, free_count, 2.0)
    use = free.to(tl.float32) * is_open > 0
    row = tl.where(use, theta, -_INF)
    highest = tl.where(is_open > 0, tl.max(row, 0), 0.0)
    lowest = tl.where(is_open > 0, tl.min(tl.where(use, theta, _INF), 0), 0.0)
    odds = tl.log(chosen) - tl.log(count - chosen)
    few = chosen <= count * 0.5
    mass_low = tl.sum(tl.where(use, tl.exp(theta - highest), 0.0), 0)
    mass_high = tl.sum(tl.where(use, tl.exp(lowest - theta), 0.0), 0)
    start = tl.where(
        few,
        tl.log(chosen) - tl.log(tl.maximum(mass_low, 1e-37)) - highest,
        tl.log(tl.maximum(mass_high, 1e-37)) - lowest - tl.log(count - chosen),
    )
    start = tl.where(is_open > 0, start, 0.0)
    first = _solve(row, chosen, count, start, odds - highest, odds - lowest, is_open)
    row = row + first
    reach = 1 + 2e-6 * tl.abs(first)
    second = _solve(row, chosen, count, 0.0 * first, -reach, reach, is_open)
    first = tl.where(is_open > 0, first, 0.0)
    second = tl.where(is_open > 0, second, 0.0)
    all_free = tl.where(free_k == free_count, 1.0 - is_open, 0.0)
    t = row + second
    always = forced.to(tl.float32) + free.to(tl.float32) * all_free > 0
    t = tl.where(always, _INF, t)
    t = tl.where(inside.to(tl.float32) * (1 - valid) > 0, float("nan"), t)
    return t, first, second


@triton.jit
def _tilt_kernel(logits, counts, tilted, shifts, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, first, second = _tilt(theta, tl.load(counts + row), inside)
    tl.store(tilted + row * n + at, t, inside)
    tl.store(shifts + row, first.to(tl.float64) + second.to(tl.float64))


@triton.jit
def _complex_and_sums(a, b, g, h, c, d, i, j):
    """Multiply complex numbers and add two more, in one reduction."""
    return a * c - b * d, a * d + b * c, g + i, h + j


@triton.jit
def _coins(t, inside):
    up = t > 0
    e = tl.exp(-tl.abs(t))
    x = e / (1 + e)
    x = tl.where(inside, x, 0.0)
    pq = x * (1 - x)
    skew = tl.where(up, 1 - 2 * x, 2 * x - 1)
    return up, x, pq, skew


@triton.jit
def _sine(x):
    """sin x for |x| <= pi/2 to the last digits of float32. (The interpreter that tests these
    kernels on CPUs has no tl.sin.)"""
    y = x * x
    r = 1.6059044e-10 * y - 2.5052108e-8
    r = r * y + 2.7557319e-6
    r = r * y - 1.9841270e-4
    r = r * y + 8.3333333e-3
    r = r * y - 1.6666667e-1
    return x + x * y * r


@triton.jit
def _sine_wide(x):
    """The same in float64, up to x^21."""
    y = x * x
    r = 1.9572941063391263e-20 * y - 8.22063524662433e-18
    r = r * y + 2.8114572543455206e-15
    r = r * y - 7.647163731819816e-13
    r = r * y + 1.6059043836821613e-10
    r = r * y - 2.505210838544172e-08
    r = r * y + 2.7557319223985893e-06
    r = r * y - 1.984126984126984e-04
    r = r * y + 8.333333333333333e-03
    r = r * y - 1.6666666666666666e-01
    return x + x * y * r


@triton.jit
def _half_angle(steps, number):
    """sin and cos of pi steps / number for 0 <= steps < number."""
    sine = _sine(_PI * tl.minimum(steps, number - steps) / number)
    return sine, _sine(_PI * (number - 2 * steps) / (2 * number))


@triton.jit
def _half_angle_wide(steps, number):
    sine = _sine_wide(_PI * tl.minimum(steps, number - steps) / number)
    return sine, _sine_wide(_PI * (number - 2 * steps) / (2 * number))


@triton.jit
def _rotation(node, k, number):
    """cos and sin of omega k, the angle reduced exactly: all products are below 2^24."""
    steps = node * k
    steps = steps - number * tl.floor(steps / number)
    s, c = _half_angle(steps, number)
    return 1 - 2 * s * s, 2 * s * c


@triton.jit
def _moments(t, k, v, inside):
    """One loop over nodes (see spectral.py).

    Returns the coins' parts up, x, pq, the log of P(S = k), the correction of the marginals and
    the covariance product, the last two over pq.
    """
    up, x, pq, skew = _coins(t, inside)
    free = (tl.abs(t) < _INF) & inside
    alive = pq > 0
    variance, weighted, free_count = tl.reduce(
        (pq, tl.where(alive, v * pq, 0.0), free.to(tl.float32)), 0, _add3
    )
    # Twice, to take out what rounding left of a mean far larger than the spread. Both steps must
    # see the same v - mean: written twice, one may be fused into a multiply-add.
    floor = tl.maximum(variance, 1e-37)
    v = tl.where(alive, v - weighted / floor, 0.0)
    bad, ups, recentred = tl.reduce(
        (((t != t) & inside).to(tl.float32), (up & inside).to(tl.float32), v * pq), 0, _add3
    )
    v = tl.where(alive, v - recentred / floor, 0.0)
    # Heads beyond those of the coins that likely show them: the product below is that of the
    # rarer sides, close to 1, where factors of e^(i omega) would pile up rounding.
    k = k.to(tl.float32) - ups
    number = _TAIL / 3 + tl.sqrt(_TAIL * _TAIL / 9 + 2 * _TAIL * variance)
    number = tl.minimum(free_count + 1, number)
    number = 2 * tl.ceil((number - 1) * 0.5) + 1
    signed = tl.where(up, -x, x)
    weight = pq * v

    total = variance * 0
    mean = variance * 0
    correction = pq * 0
    across = pq * 0
    within = pq * 0
    node = variance * 0
    active = bad == 0
    while active:
        s, c = _half_angle(node, number)
        tilt = skew * s
        inverse = 1 / (c * c + tilt * tilt)
        deviation_real = 2 * s * inverse * tilt
        deviation_imag = 2 * s * inverse * c
        phi_real, phi_imag, g_real, g_imag = tl.reduce(
            (
                tl.where(free, 1 - 2 * x * s * s, 1.0),
                tl.where(free, signed * (2 * s * c), 0.0),
                weight * deviation_real,
                weight * deviation_imag,
            ),
            0,
            _complex_and_sums,
        )
        turn_real, turn_imag = _rotation(node, k, number)
        twice = tl.where(node > 0, 2.0, 1.0)
        w_real = twice * (phi_real * turn_real + phi_imag * turn_imag)
        w_imag = twice * (phi_imag * turn_real - phi_real * turn_imag)
        wg_real = w_real * g_real - w_imag * g_imag
        wg_imag = w_real * g_imag + w_imag * g_real
        total += w_real
        mean += wg_real
        correction += w_real * deviation_real - w_imag * deviation_imag
        across += wg_real * deviation_real - wg_imag * deviation_imag
        spread = w_real * (c * c - tilt * tilt) + w_imag * (2 * c * tilt)
        within += spread * inverse * inverse
        node += 1
        following = _sine(_PI * tl.minimum(node / number, 0.5))
        decay = 2 * variance * following * following
        active = tl.where(node <= (number - 1) * 0.5, decay, _DECAY) < _DECAY
    total = tl.where(bad > 0, float("nan"), total)
    correction = correction / total
    product = (across - correction * mean) / total + v * (within / total)
    return up, x, pq, tl.log(total / number), correction, product


@triton.jit
def _infer_kernel(logits, counts, marginals, tilted, scalars, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    k = tl.load(counts + row)
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, first, second = _tilt(theta, k, inside)
    up, x, pq, mass, correction, _product = _moments(t, k, tl.zeros_like(t), inside)
    y = x + tl.where(up, -pq, pq) * correction
    y = tl.where(y != y, y, tl.minimum(tl.maximum(y, 0.0), 1.0))
    tl.store(tilted + row * n + at, t, inside)
    tl.store(marginals + row * n + at, tl.where(up, 1 - y, y), inside)
    # See coins.log_partition and Coins.entropy.
    finite = tl.abs(theta) < _INF
    far = tl.where(tl.abs(t) < _INF, tl.abs(t), 0.0) * y
    log_tails, likely, cross = tl.reduce(
        (
            tl.log(1 - x.to(tl.float64)),
            tl.where(up & finite, theta, 0.0).to(tl.float64),
            tl.where(inside, far, 0.0).to(tl.float64),
        ),
        0,
        _add3,
    )
    ups = tl.sum((up & inside).to(tl.float32), 0)
    shift = first.to(tl.float64) + second.to(tl.float64)
    log_mass = mass.to(tl.float64)
    entropy = log_mass + cross - log_tails
    entropy = tl.where(entropy < 0, 0.0, entropy)
    overshoot = (ups - k.to(tl.float32)).to(tl.float64)
    tl.store(scalars + row * 4, log_mass + likely - log_tails + shift * overshoot)
    tl.store(scalars + row * 4 + 1, entropy)
    tl.store(scalars + row * 4 + 2, log_mass)
    tl.store(scalars + row * 4 + 3, shift)


@triton.jit
def _covariance_kernel(tilted, counts, vectors, product, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    t = tl.load(tilted + row * n + at, inside, -_INF)
    v = tl.load(vectors + row * n + at, inside, 0.0)
    _up, _x, pq, _mass, _correction, cov = _moments(t, tl.load(counts + row), v, inside)
    tl.store(product + row * n + at, pq * cov, inside)


@triton.jit
def _add4(a0, b0, c0, d0, a1, b1, c1, d1):
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1


@triton.jit
def _one_by_one(tilted_row, drawn_row, k, number, free_count, seed, n, NODES: tl.constexpr):
    """Draw a row item by item from the characteristic function of what is left, in float64.

    Dividing an item's factor out keeps every node's value to full relative precision.
    """
    node = tl.arange(0, NODES).to(tl.float64)
    use = node <= (number - 1) * 0.5
    node = tl.where(use, node, 0.0)
    twice = tl.where(use, tl.where(node > 0, 2.0, 1.0), 0.0).to(tl.float64)
    s, c = _half_angle_wide(node, number)
    cosine = 1 - 2 * s * s
    sine = 2 * s * c
    real = twice * 0 + 1.0
    imag = twice * 0
    for i in range(n):
        t = tl.load(tilted_row + i).to(tl.float64)
        if tl.abs(t) < _INF:
            p = 1 / (1 + tl.exp(-t))
            q = 1 / (1 + tl.exp(t))
            a = q + p * cosine
            b = p * sine
            new = real * a - imag * b
            imag = real * b + imag * a
            real = new
    left = k
    rest = free_count
    one = tl.arange(0, 1)
    for i in range(n):
        t = tl.load(tilted_row + i).to(tl.float64)
        take = tl.where(t > 0, 1.0, 0.0).to(tl.float64)
        if tl.abs(t) < _INF:
            p = 1 / (1 + tl.exp(-t))
            q = 1 / (1 + tl.exp(t))
            a = q + p * cosine
            b = p * sine
            size = a * a + b * b
            new = (real * a + imag * b) / size
            imag = (imag * a - real * b) / size
            real = new
            steps = node * left
            s, c = _half_angle_wide(steps - number * tl.floor(steps / number), number)
            turn_real = 1 - 2 * s * s
            turn_imag = 2 * s * c
            tails = q * tl.sum(twice * (real * turn_real + imag * turn_imag), 0)
            # One head less to come: turned back by omega.
            back_real = turn_real * cosine + turn_imag * sine
            back_imag = turn_imag * cosine - turn_real * sine
            heads = p * tl.sum(twice * (real * back_real + imag * back_imag), 0)
            heads = tl.maximum(heads, 0.0)
            tails = tl.maximum(tails, 0.0)
            u = tl.sum(tl.rand(seed, one * 0 + i + 0x40000000), 0).to(tl.float64)
            take = tl.where(u * (heads + tails) < heads, 1.0, 0.0).to(tl.float64)
            take = tl.where(left <= 0.5, 0.0, tl.where(left >= rest - 0.5, 1.0, take))
            left = left - take
            rest = rest - 1
        tl.store(drawn_row + i, take.to(tl.float32))


@triton.jit
def _sample_kernel(
    logits, counts, keys, drawn, tilted, n, rows, samples,
    BLOCK: tl.constexpr, ROUNDS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    k = tl.load(counts + row)
    theta = tl.load(logits + row * n + at, inside, -_INF)
    t, _first, _second = _tilt(theta, k, inside)
    tl.store(tilted + row * n + at, t, inside)
    p = tl.where(inside, 1 / (1 + tl.exp(-t)), 0.0)
    bad = tl.max(((t != t) & inside).to(tl.int32), 0)
    wanted = k.to(tl.float32)
    for s in range(samples):
        key = tl.load(keys + s * rows + row)
        z = p * 0
        found = bad
        turn = bad
        running = (found == 0) & (turn < ROUNDS)
        while running:
            u0, u1, u2, u3 = tl.rand4x(key, turn * BLOCK + at)
            # A uniform of 0, one in 2^31, would choose items that have next to no chance.
            z0 = (tl.maximum(u0, 2.3e-10) < p).to(tl.float32)
            z1 = (tl.maximum(u1, 2.3e-10) < p).to(tl.float32)
            z2 = (tl.maximum(u2, 2.3e-10) < p).to(tl.float32)
            z3 = (tl.maximum(u3, 2.3e-10) < p).to(tl.float32)
            n0, n1, n2, n3 = tl.reduce((z0, z1, z2, z3), 0, _add4)
            z = tl.where(n2 == wanted, z2, z3)
            z = tl.where(n1 == wanted, z1, z)
            z = tl.where(n0 == wanted, z0, z)
            hit = (n0 == wanted) | (n1 == wanted) | (n2 == wanted) | (n3 == wanted)
            found = tl.where(hit, 1, 0)
            turn += 1
            running = (found == 0) & (turn < ROUNDS)
        z = tl.where(bad > 0, float("nan"), z)
        place = drawn + (s * rows + row) * n
        tl.store(place + at, z, inside)
        if found == 0:
            tl.debug_barrier()
            _up, _x, pq, _skew = _coins(t, inside)
            variance, free_count, forced = tl.reduce(
                (
                    pq,
                    ((tl.abs(t) < _INF) & inside).to(tl.float32),
                    ((t == _INF) & inside).to(tl.float32),
                ),
                0,
                _add3,
            )
            # Wider than for moments: right also far from the mean.
            number = tl.minimum(free_count + 1, 26 + 13 * tl.sqrt(variance))
            number = 2 * tl.ceil((number - 1) * 0.5) + 1
            _one_by_one(
                tilted + row * n, place, (wanted - forced).to(tl.float64),
                number.to(tl.float64), free_count.to(tl.float64), key, n, NODES,
            )  # fmt: skip


def _launch(rows: int, n: int, items_per_warp: int = 256) -> dict[str, int]:
    """Measured on an H200: few rows leave the chip room for more warps each, and many rows want
    them narrow. docs/decisions.md has the figures."""
    block = triton.next_power_of_2(n)
    if rows < 512:
        items_per_warp = 128
    return {
        "BLOCK": block,
        "num_warps": min(8, max(1, block // items_per_warp)),
        # Fused multiply-adds spoil the centring of vectors with a large mean: measured at 1e-5 of
        # the product, where 2e-7 is right.
        "enable_fp_fusion": False,
    }


def infer(logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Marginals (rows, n), tilted logits (rows, n), and float64 (rows, 4): the log-partition, the
    entropy, log P(S = k) and the shift."""
    logits, k = logits.contiguous(), k.contiguous()
    rows, n = logits.shape
    marginals, tilted = torch.empty_like(logits), torch.empty_like(logits)
    scalars = logits.new_empty(rows, 4, dtype=torch.float64)
    if rows:
        _infer_kernel[(rows,)](logits, k, marginals, tilted, scalars, n, **_launch(rows, n))
    return marginals, tilted, scalars


def tilt(logits: Tensor, k: Tensor) -> Tensor:
    """The tilted logits."""
    logits, k = logits.contiguous(), k.contiguous()
    rows, n = logits.shape
    tilted = torch.empty_like(logits)
    shifts = logits.new_empty(rows, dtype=torch.float64)
    if rows:
        _tilt_kernel[(rows,)](logits, k, tilted, shifts, n, **_launch(rows, n))
    return tilted


def covariance_product(tilted: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cov v of every row."""
    tilted, k, v = tilted.contiguous(), k.contiguous(), v.contiguous()
    rows, n = tilted.shape
    product = torch.empty_like(tilted)
    if rows:
        _covariance_kernel[(rows,)](tilted, k, v, product, n, **_launch(rows, n, 512))
    return product


def sample(logits: Tensor, k: Tensor, seeds: Tensor, rounds: int = 1024) -> tuple[Tensor, Tensor]:
    """Samples (samples, rows, n) for seeds (samples, rows), and the tilted logits."""
    logits, k, seeds = logits.contiguous(), k.contiguous(), seeds.contiguous()
    rows, n = logits.shape
    samples = seeds.shape[0]
    drawn = logits.new_empty(samples, rows, n)
    tilted = torch.empty_like(logits)
    if rows:
        _sample_kernel[(rows,)](
            logits, k, seeds, drawn, tilted, n, rows, samples,
            **_launch(rows, n), ROUNDS=rounds, NODES=min(512, max(16, triton.next_power_of_2(n))),
        )  # fmt: skip
    return drawn, tilted
