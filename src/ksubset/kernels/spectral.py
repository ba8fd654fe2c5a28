"""The spectral method: the k-subset distribution as a complex mixture of independent coins.

With half-angle h = omega/2, C = cos h, S = sin h (not the number of heads, here), skew = p - q
and D = C^2 + skew^2 S^2, a coin's factor of the characteristic function is e^{ih} (C + i skew S),
and under the mixture component of that node it falls heads with the complex "probability" r, where

    r - p        = (2 p q S / D) (skew S + i C)
    r (1 - r)    = p q (C - i skew S)^2 / D^2
    1 - 2 r      = (-skew C - i S) / (C + i skew S)

Moments of the k-subset distribution are weighted sums of moments of independent coins over about
ten to thirty nodes, whatever n and k: O(n) time and memory. Everything is written in terms of
r - p, which is small, so that nothing large cancels. Derivation: docs/mathematics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset._nodes import DOUBLE, SINGLE, Precision
from ksubset.kernels.coins import Coins, can_synchronise

# Elements of one (nodes, rows, n) block: small problems take all nodes at once, large ones
# one node at a time, so memory stays O(n).
_BLOCK = 1 << 17


PRECISIONS = {torch.float32: SINGLE, torch.float64: DOUBLE}


@dataclass
class Spectrum:
    """E[exp(i omega (S - k))] at the nodes of a row, (rows, V) each."""

    number: Tensor  # N, (rows, 1)
    omega: Tensor
    sine: Tensor  # of omega / 2
    cosine: Tensor
    modulus: Tensor  # twice the modulus for a node that stands for its conjugate too
    phase: Tensor

    def mass(self, offset: Tensor) -> Tensor:
        """P(S = k + offset), right within N/2 of the mean: (rows,)."""
        turned = torch.cos(self.phase - self.omega * offset.unsqueeze(-1))
        return (self.modulus * turned / self.number).sum(-1)


@dataclass
class Mixture:
    """Nodes (rows, V) and the complex weights of the mixture over them."""

    sine: Tensor  # S
    cosine: Tensor  # C
    real: Tensor  # weights, summing to 1 in their real part
    imag: Tensor
    log_mass: Tensor  # log P(S = k), (rows,)


def _nodes(coins: Coins, precision: Precision) -> tuple[Tensor, Tensor, Tensor]:
    """Integer nodes (rows, V) as floats, their number N (rows, 1), and which of them count."""
    free = coins.t.isfinite().sum(-1).to(coins.variance.dtype)
    number = torch.minimum(free + 1, precision.number(coins.variance))
    return nodes_of(coins, number, precision.decay, precision.most)


def nodes_of(
    coins: Coins, number: Tensor, enough: float, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The nodes for N = ``number`` or one more, (rows,): those where the characteristic function is
    not below exp(-enough)."""
    number = 2 * torch.ceil((number - 1) / 2) + 1  # odd: at omega = pi a fair coin has D = 0
    nodes = torch.arange(most, device=number.device, dtype=number.dtype)
    number = number.unsqueeze(-1)
    # s^2 (1 - cos omega) = 2 s^2 sin^2(omega / 2)
    decay = 2 * coins.variance.unsqueeze(-1) * torch.sin(torch.pi * nodes / number) ** 2
    active = (nodes <= (number - 1) / 2) & (decay < enough)
    if active.shape[0] and can_synchronise(active):
        most = max(1, int(active.sum(-1).amax()))
    return torch.where(active, nodes, 0)[:, :most], number, active[:, :most]


def _blocks(coins: Coins, nodes: int) -> Iterator[slice]:
    width = max(1, _BLOCK // max(1, coins.t.numel()))
    for first in range(0, nodes, width):
        yield slice(first, min(first + width, nodes))


def _columns(x: Tensor, block: slice) -> Tensor:
    """(rows, V) -> (block, rows, 1), to broadcast against (rows, n)."""
    return x[:, block].T.unsqueeze(-1)


def spectrum(coins: Coins, precision: Precision) -> Spectrum:
    """The characteristic function of S - k."""
    return spectrum_at(coins, *_nodes(coins, precision))


def spectrum_at(coins: Coins, node: Tensor, number: Tensor, active: Tensor) -> Spectrum:
    """The characteristic function of S - k at nodes (rows, V) of N (rows, 1), where they count.

    Logarithms and centred phases add up without the drift of a long complex product.
    """
    omega = 2 * torch.pi * node / number
    sine = torch.sin(omega / 2)
    cosine = torch.sin(torch.pi * (number - 2 * node) / (2 * number))
    log_modulus, phase = torch.empty_like(omega), torch.empty_like(omega)
    sign = torch.where(coins.up, -1.0, 1.0).to(coins.x.dtype)
    for block in _blocks(coins, omega.shape[-1]):
        s, c, w = (_columns(part, block) for part in (sine, cosine, omega))
        log_modulus[:, block] = 0.5 * torch.log1p(-4 * coins.pq * s**2).sum(-1).T
        turn = torch.atan(2 * coins.x * s * c / (1 - 2 * coins.x * s**2))
        phase[:, block] = (sign * (turn - w * coins.x)).sum(-1).T
    twice = torch.where(active, torch.where(node > 0, 2.0, 1.0), 0.0)
    return Spectrum(
        number=number,
        omega=omega,
        sine=sine,
        cosine=cosine,
        modulus=twice * torch.exp(log_modulus),
        phase=phase + omega * coins.excess.unsqueeze(-1),
    )


def mixture(coins: Coins) -> Mixture:
    """Weights w = E[exp(i omega (S - k))], normalised, of the mixture of independent coins."""
    at = spectrum(coins, PRECISIONS[coins.t.dtype])
    real, imag = at.modulus * torch.cos(at.phase), at.modulus * torch.sin(at.phase)
    total = real.sum(-1, keepdim=True)
    return Mixture(
        sine=at.sine,
        cosine=at.cosine,
        real=real / total,
        imag=imag / total,
        log_mass=torch.log(total / at.number).squeeze(-1),
    )


def infer(coins: Coins) -> tuple[Tensor, Tensor]:
    """log P(S = k), (rows,), and P(rarer side | S = k) of every coin, (rows, n)."""
    mix = mixture(coins)
    correction = torch.zeros_like(coins.p)
    for block in _blocks(coins, mix.real.shape[-1]):
        s, c, real, imag = _slices(mix, block)
        determinant = c**2 + (coins.skew * s) ** 2
        correction += (2 * s * (real * s * coins.skew - imag * c) / determinant).sum(0)
    correction = torch.where(coins.up, -correction, correction)
    return mix.log_mass, (coins.x + coins.pq * correction).clamp(0, 1)


def _slices(mix: Mixture, block: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sine, cosine, real, imag = (
        _columns(part, block) for part in (mix.sine, mix.cosine, mix.real, mix.imag)
    )
    return sine, cosine, real, imag


def _weighted_deviation(coins: Coins, mix: Mixture, v: Tensor) -> tuple[Tensor, Tensor]:
    """sum_j v_j (r_j - p_j) at every node, less its mean over the mixture: complex (rows, V)."""
    real, imag = torch.empty_like(mix.real), torch.empty_like(mix.real)
    weight = coins.pq * v
    for block in _blocks(coins, real.shape[-1]):
        s, c, _, _ = _slices(mix, block)
        ratio = weight * (2 * s) / (c**2 + (coins.skew * s) ** 2)
        real[:, block] = (ratio * coins.skew * s).sum(-1).T
        imag[:, block] = (ratio * c).sum(-1).T
    mean = (mix.real * real - mix.imag * imag).sum(-1, keepdim=True)
    return real - mean, imag


def covariance_product(coins: Coins, v: Tensor) -> Tensor:
    """Cov v by total covariance: between nodes, and within each node."""
    v = coins.centre(v)
    mix = mixture(coins)
    between = _multiply((mix.real, mix.imag), _weighted_deviation(coins, mix, v))
    across, within = torch.zeros_like(v), torch.zeros_like(v)
    for block in _blocks(coins, mix.real.shape[-1]):
        s, c, real, imag = _slices(mix, block)
        between_real, between_imag = (_columns(part, block) for part in between)
        tilted = coins.skew * s
        determinant = c**2 + tilted**2
        across += (2 * s * (between_real * tilted - between_imag * c) / determinant).sum(0)
        spread = real * (c**2 - tilted**2) + imag * (2 * c * tilted)
        within += (spread / determinant**2).sum(0)
    return coins.pq * (across + v * within)


def third_cumulant_product(coins: Coins, u: Tensor, v: Tensor) -> Tensor:
    """sum_jl kappa_ijl u_j v_l by the law of total cumulance."""
    u, v = coins.centre(u), coins.centre(v)
    mix = mixture(coins)
    weights = (mix.real, mix.imag)
    g, f = _weighted_deviation(coins, mix, u), _weighted_deviation(coins, mix, v)
    inner = _weighted_variance(coins, mix, u * v)
    moment = _multiply(g, f)
    moment = (moment[0] + inner[0], moment[1] + inner[1])
    mean = (mix.real * moment[0] - mix.imag * moment[1]).sum(-1, keepdim=True)
    first = _multiply(weights, (moment[0] - mean, moment[1]))
    on_u, on_v = _multiply(weights, f), _multiply(weights, g)

    across, by_u, by_v, within = (torch.zeros_like(v) for _ in range(4))
    for block in _blocks(coins, mix.real.shape[-1]):
        s, c, real, imag = _slices(mix, block)
        tilted = coins.skew * s
        determinant = c**2 + tilted**2
        first_real, first_imag = (_columns(part, block) for part in first)
        across += (2 * s * (first_real * tilted - first_imag * c) / determinant).sum(0)
        # r (1 - r) / pq = square, and its product with 1 - 2r = cube
        square = ((c**2 - tilted**2) / determinant**2, -2 * c * tilted / determinant**2)
        quotient = (
            -(coins.skew * c**2 + tilted * s) / determinant,
            (coins.skew * tilted * c - s * c) / determinant,
        )
        cube = _multiply(square, quotient)
        within += (real * cube[0] - imag * cube[1]).sum(0)
        for total, weight in ((by_u, on_u), (by_v, on_v)):
            weight_real, weight_imag = (_columns(part, block) for part in weight)
            total += (weight_real * square[0] - weight_imag * square[1]).sum(0)
    return coins.pq * (across + u * by_u + v * by_v + u * v * within)


def _weighted_variance(coins: Coins, mix: Mixture, v: Tensor) -> tuple[Tensor, Tensor]:
    """sum_j v_j r_j (1 - r_j) at every node: complex (rows, V)."""
    real, imag = torch.empty_like(mix.real), torch.empty_like(mix.real)
    weight = coins.pq * v
    for block in _blocks(coins, real.shape[-1]):
        s, c, _, _ = _slices(mix, block)
        tilted = coins.skew * s
        ratio = weight / (c**2 + tilted**2) ** 2
        real[:, block] = (ratio * (c**2 - tilted**2)).sum(-1).T
        imag[:, block] = (ratio * (-2 * c * tilted)).sum(-1).T
    return real, imag


def _multiply(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
