"""The spectral method for several sizes: p(z) ∝ exp(theta . z + c(|z|)) with a concave c.

The coins are tilted so that their expected number of heads S is near the most likely size. In the
tilted logits t = theta + shift the distribution is proportional to exp(t . z + weight(|z|)) with

    weight(j) = c(j) - shift (j - centre),

which has its maximum at the centre: weights never blow up what rounding leaves of P(S = j). Where
one size has e^{-i omega k} at a node omega, several have sum_j e^{weight(j) - i omega j}, and all
moments follow from the same mixture of independent coins. A function f of the size beside
v . z is a change of h: sum_j e^{weight(j)} (f(j) - E f) e^{-i omega j}. Derivation:
docs/mathematics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ksubset.kernels import spectral
from ksubset.kernels.coins import Coins, can_synchronise, log_partition, tilt, widest
from ksubset.kernels.device import are_compiled
from ksubset.kernels.spectral import PRECISIONS, Spectrum, _blocks, _multiply

__all__ = ["covariance_product", "infer", "items_product", "law", "third_cumulant_product"]

Complex = tuple[Tensor, Tensor]


class Sizes(NamedTuple):
    """Rows of coins and the weights of their numbers of heads."""

    tilted: Tensor  # (rows, n)
    weights: Tensor  # (rows, sizes), at most 0 up to a constant; -inf for what cannot be
    centre: Tensor  # (rows,), int64: near the most likely size
    first: int  # the size of the first column


def centred(logits: Tensor, log_weights: Tensor, first: int, flat: bool) -> tuple[Sizes, Tensor]:
    """Tilt rows of logits to their most likely sizes; and the shift (rows,), in the widest type.

    Args:
        logits: (rows, n).
        log_weights: c, (rows, sizes), concave where it is not -inf.
        first: the size that the first column belongs to.
        flat: whether c is 0 where it is not -inf.
    """
    wide = widest(logits)
    c = log_weights.to(wide)
    inside = c > -torch.inf
    invalid = ~inside.any(-1) | logits.isnan().any(-1)
    forced = (logits == torch.inf).sum(-1)
    allowed = (logits > -torch.inf).sum(-1)
    # Slopes of c to the left and to the right of every size.
    inner = torch.where(inside[:, 1:] & inside[:, :-1], c[:, 1:] - c[:, :-1], torch.nan)
    edge = torch.full_like(c[:, :1], torch.nan)
    left = torch.cat([edge, inner], -1)
    right = torch.cat([inner, edge], -1)
    left, right = left.nan_to_num(torch.inf), right.nan_to_num(-torch.inf)

    low, high = _ends(inside)
    place = _most_likely(logits, left, low, high, first, flat)
    centre = place + first
    at = place.unsqueeze(-1)
    left, right = left.gather(1, at).squeeze(-1), right.gather(1, at).squeeze(-1)
    by_mean, shift = tilt(logits, centre.masked_fill(invalid, -1))
    # At the end of all that is possible no tilt has this mean; the slope on the other side will do.
    shift = torch.where(centre == allowed, torch.inf, shift)
    shift = torch.where((centre == forced) & (centre < allowed), -torch.inf, shift)
    kept = shift.clamp(right, left)
    alone = kept.isinf()
    by_slope = (logits.to(wide) + kept.unsqueeze(-1)).to(logits.dtype)
    tilted = torch.where(((kept == shift) | alone | invalid).unsqueeze(-1), by_mean, by_slope)
    kept = torch.where(alone, 0, kept)

    offset = torch.arange(first, first + c.shape[-1], device=c.device) - centre.unsqueeze(-1)
    weights = torch.where(inside, c - c.gather(1, at) - kept.unsqueeze(-1) * offset, -torch.inf)
    tilted = tilted.masked_fill(invalid.unsqueeze(-1), torch.nan)
    return Sizes(tilted, weights.to(logits.dtype), centre, first), kept


def _ends(inside: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last column of every row that is possible."""
    columns = torch.arange(inside.shape[-1], device=inside.device)
    low = torch.where(inside, columns, inside.shape[-1] - 1).amin(-1)
    return low, torch.where(inside, columns, 0).amax(-1).maximum(low)


def _most_likely(
    logits: Tensor, left: Tensor, low: Tensor, high: Tensor, first: int, flat: bool
) -> Tensor:
    """The last column j at which the coins tilted by c(j) - c(j - 1) still expect j heads or more,
    up to a half: by bisection, since the one falls with j and the other grows."""

    def expected(shift: Tensor) -> Tensor:
        return torch.sigmoid(logits + shift.to(logits.dtype).unsqueeze(-1)).sum(-1)

    if flat:
        mean = expected(torch.zeros_like(left[:, 0])).nan_to_num(0)
        return (torch.floor(mean + 0.5).long() - first).clamp(low, high)
    for _ in range(left.shape[-1].bit_length()):
        middle = (low + high + 1) // 2
        slope = left.gather(1, middle.unsqueeze(-1)).squeeze(-1)
        slope = torch.where(slope.isinf(), 0, slope)
        reached = expected(slope) >= middle + first - 0.5
        low = torch.where(reached | (low == high), torch.maximum(low, middle), low)
        high = torch.where(reached, high, torch.maximum(low, middle - 1))
    return low


class Mixture(NamedTuple):
    """A row's coins at the nodes, and the sizes near its centre."""

    coins: Coins
    at: Spectrum
    columns: Tensor  # (rows, window): which sizes are near
    offset: Tensor  # (rows, window): those less the centre, as numbers
    scale: Tensor  # e^weight / (N Z), (rows, window)
    chances: Tensor  # P(|z| = j | window), (rows, window)
    log_mass: Tensor  # log Z = log sum_j e^weight(j) P(S = j), (rows,)

    def transform(self, f: Tensor | None = None) -> Complex:
        """The weights of the mixture over nodes, (rows, V), with f (rows, window) in them."""
        weights = self.scale if f is None else self.scale * f
        turn = self.at.omega.unsqueeze(-1) * self.offset.unsqueeze(1)  # (rows, V, window)
        real = (weights.unsqueeze(1) * torch.cos(turn)).sum(-1)
        imag = -(weights.unsqueeze(1) * torch.sin(turn)).sum(-1)
        return _multiply(self.characteristic(), (real, imag))

    def characteristic(self) -> Complex:
        """E exp(i omega (S - centre)), twice where a node stands for its conjugate too."""
        return (
            self.at.modulus * torch.cos(self.at.phase),
            self.at.modulus * torch.sin(self.at.phase),
        )

    def by_size(self, g: Complex) -> Tensor:
        """P(|z| = j) E[g | |z| = j] for a quantity of the coins at nodes: (rows, window)."""
        real, imag = _multiply(self.characteristic(), g)
        turn = self.at.omega.unsqueeze(1) * self.offset.unsqueeze(-1)  # (rows, window, V)
        parts = real.unsqueeze(1) * torch.cos(turn) + imag.unsqueeze(1) * torch.sin(turn)
        return self.scale * parts.sum(-1)

    def near(self, f: Tensor) -> Tensor:
        """Of a function of sizes (rows, sizes), what is near, less its mean."""
        f = torch.where(self.chances > 0, f.gather(1, self.columns), 0)
        return f - (self.chances * f).sum(-1, keepdim=True)

    def far(self, f: Tensor, like: Tensor) -> Tensor:
        """The inverse of :meth:`near`: (rows, sizes), 0 for what is far."""
        return torch.zeros_like(like).scatter(1, self.columns, f)

    def slices(self, block: slice) -> tuple[Tensor, Tensor]:
        """sin and cos of omega / 2, (nodes, rows, 1)."""
        return _columns(self.at.sine, block), _columns(self.at.cosine, block)


def _columns(x: Tensor, block: slice) -> Tensor:
    return x[:, block].T.unsqueeze(-1)


def mixture(sizes: Sizes) -> Mixture:
    """The coins at their nodes, and the sizes that are not too far from the centre to matter."""
    coins = Coins.from_tilted(sizes.tilted, sizes.centre)
    precision = PRECISIONS[sizes.tilted.dtype]
    radius = precision.number(coins.variance) + coins.excess.abs()
    columns, offset = _window(sizes, radius)
    weights = sizes.weights.gather(1, columns)
    near = (weights > -torch.inf) & (offset.abs() <= radius.unsqueeze(-1))
    weights = torch.where(near, weights, -torch.inf)
    # Sizes that are N apart are one to the nodes.
    reach = torch.where(near, offset.abs(), 0).amax(-1)
    free = coins.t.isfinite().sum(-1).to(radius.dtype)
    number = torch.minimum(free + 1, radius + reach)
    at = spectral.spectrum_at(
        coins, *spectral.nodes_of(coins, number, precision.decay, 2 * precision.most + 2)
    )
    turn = at.phase.unsqueeze(1) - at.omega.unsqueeze(1) * offset.unsqueeze(-1)
    mass = (at.modulus.unsqueeze(1) * torch.cos(turn)).sum(-1) / at.number
    joint = torch.exp(weights) * mass.clamp_min(0)
    joint = torch.where(sizes.tilted.isnan().any(-1, keepdim=True), torch.nan, joint)
    total = joint.sum(-1, keepdim=True)
    scale = torch.exp(weights) / (at.number * total)
    return Mixture(coins, at, columns, offset, scale, joint / total, total.log().squeeze(-1))


def _window(sizes: Sizes, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Columns (rows, window) around the centre, without repetition, and their offsets from it."""
    count = sizes.weights.shape[-1]
    if can_synchronise(radius) and radius.numel():
        reach = float(radius.nan_to_num(0).amax())
    else:
        most = torch.tensor(sizes.tilted.shape[-1] / 4)  # no coins vary more than fair ones
        reach = float(PRECISIONS[radius.dtype].number(most)) + 1
    width = min(count, 2 * math.ceil(reach) + 1)
    start = (sizes.centre - sizes.first - width // 2).clamp(0, count - width)
    columns = start.unsqueeze(-1) + torch.arange(width, device=radius.device)
    offset = columns + (sizes.first - sizes.centre).unsqueeze(-1)
    return columns, offset.to(radius.dtype)


def _are_compiled(rows: Tensor, method: str) -> bool:
    return not rows.is_cuda and rows.numel() > 0 and are_compiled(rows, method)


def _has_tables(rows: Tensor, log_weights: Tensor, first: int) -> bool:
    from ksubset.kernels.cpu import sizes as tables

    return tables.serves(rows, first + log_weights.shape[-1] - 1)


def infer(
    logits: Tensor, log_weights: Tensor, first: int, flat: bool, method: str = "spectral"
) -> tuple[Tensor, ...]:
    """Log-partition (rows,), marginals (rows, n), probabilities of sizes (rows, sizes); and tilted
    logits, weights, centre and log sum_j e^weight(j) P(S = j), in the widest type."""
    if not _are_compiled(logits, method):
        return _infer(logits, log_weights, first, flat)
    if flat and _has_tables(logits, log_weights, first):
        from ksubset.kernels.cpu import sizes as tables

        found, left = tables.infer(logits, log_weights, first)
        return _filled(found, left, _infer_rows, logits, log_weights, first, flat)
    return _infer_rows(logits, log_weights, first, flat)


def _infer_rows(logits: Tensor, log_weights: Tensor, first: int, flat: bool) -> tuple[Tensor, ...]:
    """By nodes, compiled."""
    from ksubset.kernels.cpu import size_rows

    found, left = size_rows.infer(logits, log_weights, first, flat)
    return _filled(found, left, _infer, logits, log_weights, first, flat)


def _filled(
    found: tuple[Tensor, ...],
    left: Tensor | None,
    following: Callable[..., tuple[Tensor, ...]],
    logits: Tensor,
    log_weights: Tensor,
    first: int,
    flat: bool,
) -> tuple[Tensor, ...]:
    """With the rows that were left, by the following way to do it."""
    if left is not None:
        parts = following(logits[left], log_weights[left], first, flat)
        for whole, part in zip(found, parts, strict=True):
            whole[left] = part.to(whole.dtype)
    return found


def law(
    logits: Tensor, log_weights: Tensor, first: int, flat: bool, method: str = "spectral"
) -> Sizes:
    """What :func:`covariance_product` starts from."""
    if not _are_compiled(logits, method):
        return centred(logits, log_weights, first, flat)[0]
    if flat and _has_tables(logits, log_weights, first):
        _, _, _, tilted, weights, centre, _ = infer(logits, log_weights, first, flat, method)
        return Sizes(tilted, weights, centre, first)
    from ksubset.kernels.cpu import size_rows

    none = torch.empty(0, len(logits), dtype=torch.int64)
    drawn = size_rows.draw(logits, log_weights, first, flat, none, True)
    found = drawn.tilted, drawn.weights, drawn.centre
    if drawn.left is not None:
        some = centred(logits[drawn.left], log_weights[drawn.left], first, flat)[0]
        for whole, part in zip(found, some[:3], strict=True):
            whole[drawn.left] = part
    return Sizes(drawn.tilted, drawn.weights, drawn.centre, first)


def _infer(logits: Tensor, log_weights: Tensor, first: int, flat: bool) -> tuple[Tensor, ...]:
    """By torch operations."""
    sizes, shift = centred(logits, log_weights, first, flat)
    mix = mixture(sizes)
    coins = mix.coins
    rarer = _marginals(mix)
    top = log_weights.gather(1, (sizes.centre - first).unsqueeze(-1)).squeeze(-1)
    log_mass = mix.log_mass.to(shift.dtype)
    whole = log_partition(logits, coins, shift, log_mass + top.to(shift.dtype))
    chances = mix.far(mix.chances, sizes.weights)
    return (
        whole,
        coins.heads(rarer),
        chances,
        sizes.tilted,
        sizes.weights,
        sizes.centre,
        log_mass,
    )


def _marginals(mix: Mixture) -> Tensor:
    """P(the rarer side), (rows, n)."""
    coins, weights = mix.coins, mix.transform()
    correction = torch.zeros_like(coins.p)
    for block in _blocks(coins, weights[0].shape[-1]):
        s, c = mix.slices(block)
        real, imag = (_columns(part, block) for part in weights)
        determinant = c**2 + (coins.skew * s) ** 2
        correction += (2 * s * (real * s * coins.skew - imag * c) / determinant).sum(0)
    correction = torch.where(coins.up, -correction, correction)
    return (coins.x + coins.pq * correction).clamp(0, 1)


class Direction(NamedTuple):
    """v . z + f(|z|), less its mean: what two of make a covariance."""

    v: Tensor  # (rows, n), centred
    f: Tensor  # (rows, window), centred, with the mean of v times the size in it
    deviation: Complex  # of v . z at every node, less its mean
    transform: Complex  # f's, at every node


def _direction(mix: Mixture, v: Tensor, f: Tensor, weights: Complex) -> Direction:
    coins = mix.coins
    alive = coins.pq > 0
    v = torch.where(alive, v, 0)
    mean = (v * coins.pq).sum(-1) / coins.variance.clamp_min(torch.finfo(v.dtype).tiny)
    v = torch.where(alive, v - mean.unsqueeze(-1), 0)
    near = mix.near(f)
    steps = torch.where(mix.chances > 0, mix.offset, 0)
    steps = steps - (mix.chances * steps).sum(-1, keepdim=True)
    near = near + mean.unsqueeze(-1) * steps
    real, imag = torch.empty_like(weights[0]), torch.empty_like(weights[0])
    loads = coins.pq * v
    for block in _blocks(coins, real.shape[-1]):
        s, c = mix.slices(block)
        ratio = loads * (2 * s) / (c**2 + (coins.skew * s) ** 2)
        real[:, block] = (ratio * coins.skew * s).sum(-1).T
        imag[:, block] = (ratio * c).sum(-1).T
    mean = (weights[0] * real - weights[1] * imag).sum(-1, keepdim=True)
    return Direction(v, near, (real - mean, imag), mix.transform(near))


def covariance_product(
    sizes: Sizes, v: Tensor, f: Tensor, method: str = "spectral"
) -> tuple[Tensor, Tensor]:
    """The covariances of z, (rows, n), and of the indicators of sizes, (rows, sizes), with
    v . z + f(|z|)."""
    if not _are_compiled(v, method):
        return _product(sizes, v, f)
    if _has_tables(v, sizes.weights, sizes.first):
        from ksubset.kernels.cpu import sizes as tables

        return tables.covariance_product(*sizes, v, f)
    from ksubset.kernels.cpu import size_rows

    items, of_sizes, left = size_rows.covariance_product(*sizes, v, f)
    if left is not None:
        items[left], of_sizes[left] = _product(_some(sizes, left), v[left], f[left])
    return items, of_sizes


def items_product(sizes: Sizes, v: Tensor, method: str = "spectral") -> Tensor:
    """Cov v alone, (rows, n)."""
    if not _are_compiled(v, method) or _has_tables(v, sizes.weights, sizes.first):
        return covariance_product(sizes, v, torch.zeros_like(sizes.weights), method)[0]
    from ksubset.kernels.cpu import size_rows

    items, _, left = size_rows.covariance_product(*sizes, v, None)
    if left is not None:
        some = _some(sizes, left)
        items[left] = _product(some, v[left], torch.zeros_like(some.weights))[0]
    return items


def _some(sizes: Sizes, rows: Tensor) -> Sizes:
    return Sizes(sizes.tilted[rows], sizes.weights[rows], sizes.centre[rows], sizes.first)


def _product(sizes: Sizes, v: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """By torch operations."""
    mix = mixture(sizes)
    coins, weights = mix.coins, mix.transform()
    one = _direction(mix, v, f, weights)
    between = _plus(_multiply(weights, one.deviation), one.transform)
    across, within = torch.zeros_like(v), torch.zeros_like(v)
    for block in _blocks(coins, weights[0].shape[-1]):
        s, c = mix.slices(block)
        real, imag = (_columns(part, block) for part in weights)
        between_real, between_imag = (_columns(part, block) for part in between)
        slope = coins.skew * s
        determinant = c**2 + slope**2
        across += (2 * s * (between_real * slope - between_imag * c) / determinant).sum(0)
        spread = real * (c**2 - slope**2) + imag * (2 * c * slope)
        within += (spread / determinant**2).sum(0)
    of_items = coins.pq * (across + one.v * within)
    of_sizes = mix.by_size(one.deviation) + mix.chances * one.f
    return of_items, mix.far(of_sizes, sizes.weights)


def third_cumulant_product(
    sizes: Sizes, u: Tensor, f: Tensor, v: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    """The third cumulants of z, (rows, n), and of the indicators of sizes, (rows, sizes), with
    u . z + f(|z|) and v . z + g(|z|)."""
    mix = mixture(sizes)
    coins, weights = mix.coins, mix.transform()
    one, other = (_direction(mix, *pair, weights) for pair in ((u, f), (v, g)))
    moment = _plus(_multiply(one.deviation, other.deviation), _variance(mix, one.v * other.v))
    crossed = _plus(
        _multiply(other.transform, one.deviation), _multiply(one.transform, other.deviation)
    )
    whole = _plus(_plus(_multiply(weights, moment), crossed), mix.transform(one.f * other.f))
    covariance = whole[0].sum(-1, keepdim=True)
    total = (whole[0] - weights[0] * covariance, whole[1] - weights[1] * covariance)
    on_u = _plus(_multiply(weights, other.deviation), other.transform)
    on_v = _plus(_multiply(weights, one.deviation), one.transform)

    across, by_u, by_v, within = (torch.zeros_like(v) for _ in range(4))
    for block in _blocks(coins, weights[0].shape[-1]):
        s, c = mix.slices(block)
        slope = coins.skew * s
        determinant = c**2 + slope**2
        real, imag = (_columns(part, block) for part in total)
        across += (2 * s * (real * slope - imag * c) / determinant).sum(0)
        # r (1 - r) / pq, and its product with 1 - 2r
        square = ((c**2 - slope**2) / determinant**2, -2 * c * slope / determinant**2)
        quotient = (
            -(coins.skew * c**2 + slope * s) / determinant,
            (coins.skew * slope * c - s * c) / determinant,
        )
        cube = _multiply(square, quotient)
        real, imag = (_columns(part, block) for part in weights)
        within += (real * cube[0] - imag * cube[1]).sum(0)
        for place, weight in ((by_u, on_u), (by_v, on_v)):
            real, imag = (_columns(part, block) for part in weight)
            place += (real * square[0] - imag * square[1]).sum(0)
    of_items = coins.pq * (across + one.v * by_u + other.v * by_v + one.v * other.v * within)
    of_sizes = (
        mix.by_size(moment)
        + one.f * mix.by_size(other.deviation)
        + other.f * mix.by_size(one.deviation)
        + mix.chances * (one.f * other.f - covariance)
    )
    return of_items, mix.far(of_sizes, sizes.weights)


def _plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _variance(mix: Mixture, v: Tensor) -> Complex:
    """sum_j v_j r_j (1 - r_j) at every node: complex (rows, V)."""
    coins = mix.coins
    real, imag = torch.empty_like(mix.at.omega), torch.empty_like(mix.at.omega)
    weight = coins.pq * v
    for block in _blocks(coins, real.shape[-1]):
        s, c = mix.slices(block)
        slope = coins.skew * s
        ratio = weight / (c**2 + slope**2) ** 2
        real[:, block] = (ratio * (c**2 - slope**2)).sum(-1).T
        imag[:, block] = (ratio * (-2 * c * slope)).sum(-1).T
    return real, imag
