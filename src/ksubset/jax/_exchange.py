"""Products with the rates of the exact plan of swaps (docs/swaps.md), for rows (rows, n)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from ksubset.jax._coins import coins, zeros
from ksubset.jax._drawing import Reduced

Jet = tuple[Array, Array]  # a polynomial and its derivative, (rows, width)


def exchange(t: Array, k: Array, z: Array, v: Array, *, most: int) -> Array:
    """sum_j r_ij v_j at chosen items i and sum_i r_ij v_i at items j that are not.

    In coins p, q that have k heads on average, r_ij is p_j q_i / P(S = k) times the sum over s of
    E_{k-1-s}(z without i) E_s(rest without j) / (s + 1), with E_m(A) the probability of m heads
    among the coins of A. The form sum_ij r_ij a_i b_j is a sum of products of two derivatives of
    generating functions, one of either side, and its gradients in a and b are what is asked for.
    O(nk) work and memory.
    """
    reduced = Reduced(coins(t, k))
    chosen = ((z > 0.5) ^ reduced.swapped[:, None]) & reduced.free
    other = ~chosen & reduced.free
    form = partial(_form, reduced, chosen, other, most + 1)
    at_chosen = jax.grad(lambda a: form(a, v))(zeros(v))
    at_other = jax.grad(lambda b: form(v, b))(zeros(v))
    return jnp.where(chosen, at_chosen, jnp.where(other, at_other, 0))


def _form(reduced: Reduced, chosen: Array, other: Array, width: int, a: Array, b: Array) -> Array:
    """The sum over rows of sum_ij r_ij a_i b_j."""
    start = zeros(a[:, :1]) + jnp.zeros(width, a.dtype)
    one = start.at[:, 0].set(1)

    def multiply(jet: Jet, side: Array, q: Array, p: Array, dq: Array, dp: Array) -> Jet:
        """By q + p x with the derivatives dq + dp x, where the coin is on this side."""

        def times(polynomial: Array, tails: Array, heads: Array) -> Array:
            raised = jnp.pad(polynomial[:, :-1], ((0, 0), (1, 0)))
            return tails[:, None] * polynomial + heads[:, None] * raised

        q, p = jnp.where(side, q, 1), jnp.where(side, p, 0)
        dq, dp = jnp.where(side, dq, 0), jnp.where(side, dp, 0)
        return times(jet[0], q, p), times(jet[1], q, p) + times(jet[0], dq, dp)

    def grow(jets: tuple[Jet, Jet], coin: tuple[Array, ...]) -> tuple[tuple[Jet, Jet], None]:
        kept, rest = jets
        p, q, a, b, chosen, other = coin
        kept = multiply(kept, chosen, q, p, a * q, zeros(p))
        rest = multiply(rest, other, q, p, zeros(p), b * p)
        return (kept, rest), None

    columns = (reduced.p.T, reduced.q.T, a.T, b.T, chosen.T, other.T)
    (kept, rest), _ = lax.scan(grow, ((one, start), (one, start)), columns)
    count = jnp.arange(width)
    mirrored = reduced.k[:, None] - count  # heads on one side, of so many on the other
    index = jnp.maximum(mirrored, 0)

    def facing(polynomial: Array) -> Array:
        return jnp.where(mirrored >= 0, jnp.take_along_axis(polynomial, index, -1), 0)

    mass = lax.stop_gradient((facing(kept[0]) * rest[0]).sum(-1))
    # Of k - 1 - s heads kept and s + 1 among the rest, the share is 1 / (s + 1).
    pairs = jnp.where(count > 0, facing(kept[1]) * rest[1] / jnp.maximum(count, 1), 0).sum(-1)
    return jnp.where(mass > 0, pairs / jnp.where(mass > 0, mass, 1), 0).sum()
