"""Exact samples of rows: which coins show heads, given that k of them do.

Short rows go backwards through a table of counts. In longer rows, coins that rarely show heads are
drawn with replacement until all are different; of others, all but an eighth are tossed, and
accepted with the probability that the eighth makes up for the count, which then is the same problem
again.
Derivation: docs/mathematics.md, section 6. Rows that wait for acceptance do so together, a few of
those that still wait at a time, so that the work is that of an average row, not of the unluckiest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ksubset._nodes import Precision
from ksubset.jax import _coins, _spectral
from ksubset.jax._blocks import by_blocks
from ksubset.jax._coins import Coins, coins, count_of, zeros

_SHORT = 64  # items of a row that is drawn by a table of counts
_LAST = 128  # items of a part that is drawn so: a shorter part would compile as much once more
_PART = 8  # one of so many coins is not tossed
_BLOCK = 16  # items that are searched one by one
# Draws with replacement are all different with probability exp(-2) or so at this sum of squares.
_CROWDED = 4.0
# Tries of a row. They fail once in 10^40 or less often; such a row then has no sample (NaN).
_TRIES = 2000
# Of the mass of counts: the Fourier sum must be right as far out as accepted counts go.
_SINGLE = Precision(tail=64, decay=16, most=40)
_DOUBLE = Precision(tail=150, decay=41, most=80)


def draw(t: Array, k: Array, keys: Array, *, random: str, most: int, blocks: bool = False) -> Array:
    """Booleans (rows, n).

    Args:
        t: tilted logits (rows, n).
        k: (rows,).
        keys: the data of a key per row, (rows, words).
        random: the name of their generator.
        most: no min(k, n - k) is larger.
        blocks: whether what looks at all items does so for blocks of rows.
    """
    typed = jax.random.wrap_key_data(keys, impl=random)
    n = t.shape[-1]
    if n <= _SHORT:
        reduced = Reduced(coins(t, k))
        return reduced.restore(_by_table(reduced, typed, most))
    bound = min(most, math.isqrt(int(_CROWDED * n)) + 1)
    each = by_blocks if blocks else _at_once
    inside, size, light = each(_sums_of_odds, t, k)
    light &= size <= bound
    items = _with_replacement(inside, size, light, typed, bound)

    def shown(t: Array, k: Array, items: Array) -> Array:
        heads = jnp.zeros(t.shape, bool).at[jnp.arange(t.shape[0])[:, None], items]
        return Reduced(coins(t, k)).restore(heads.set(True, mode="drop"))

    heads = each(shown, t, k, items)

    def others() -> Array:
        reduced = Reduced(coins(t, k))
        found = reduced.restore(_by_parts(reduced, ~light, typed, most))
        return jnp.where(light[:, None], heads, found)

    return lax.cond(light.all(), lambda: heads, others)


def _at_once(function: Callable[..., Any], *arrays: Array) -> Any:
    return function(*arrays)


def _sums_of_odds(t: Array, k: Array) -> tuple[Array, Array, Array]:
    """Sums of the odds of the first items of each block, (rows, blocks, _BLOCK); how many items are
    drawn; and whether these are likely to be different, for all but too many of them."""
    reduced = Reduced(coins(t, k))
    odds = jnp.where(reduced.free, reduced.p / reduced.q, 0)
    rows, n = odds.shape
    blocks = -(-n // _BLOCK)
    padded = jnp.pad(odds, ((0, 0), (0, blocks * _BLOCK - n))).reshape(rows, blocks, _BLOCK)
    inside = padded @ jnp.triu(jnp.ones((_BLOCK, _BLOCK), odds.dtype))
    return inside, reduced.k, (odds * odds).sum(-1) < _CROWDED


class Reduced:
    """The same coins, with heads and tails exchanged where more than half of those that can fall
    either way must show heads, and all others tails for sure."""

    def __init__(self, given: Coins) -> None:
        self.given = given
        self.free = given.pq > 0
        count = count_of(self.free, given.x.dtype)
        k = given.k - count_of(~self.free & given.up, given.x.dtype)
        self.swapped = 2 * k > count
        self.k = jnp.clip(jnp.where(self.swapped, count - k, k), 0, count).astype(jnp.int32)
        swapped = self.swapped[:, None]
        self.p = jnp.where(self.free, jnp.where(swapped, given.q, given.p), 0)
        self.q = jnp.where(self.free, jnp.where(swapped, given.p, given.q), 1)
        self.t = jnp.where(self.free, jnp.where(swapped, -given.t, given.t), -jnp.inf)

    def restore(self, heads: Array) -> Array:
        """What the given coins show."""
        return jnp.where(self.free, heads ^ self.swapped[:, None], self.given.up)


def _uniform(keys: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Above 0, at most 1, and with small values: of 32 bits in float32 too. (rows, *shape)."""
    bits = jax.vmap(lambda key: jax.random.bits(key, shape, jnp.uint32))(keys)
    if dtype == jnp.float64:
        finer = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, 1), shape, jnp.uint32))
        return (bits + (finer(keys) + 0.5) * 2.0**-32) * 2.0**-32
    return (bits.astype(dtype) + 0.5) * 2.0**-32


def _by_table(reduced: Reduced, keys: Array, most: int) -> Array:
    """Backwards through the table a[i, j] = P(j heads among the first i coins): a flag says whether
    coin i shows heads if j are left when it is reached."""
    n, dtype = reduced.p.shape[-1], reduced.p.dtype
    width = min(most, n // 2) + 1

    def grow(a: Array, coin: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        p, q, noise = coin
        heads = jnp.concatenate([jnp.zeros_like(a[:1]), p * a[:-1]])
        tails = q * a
        # The state is possible, so at least one way is: rounding must not pick the other.
        flags = ((noise * (heads + tails) < heads) | (tails == 0)) & (heads > 0)
        return heads + tails, flags

    def walk(left: Array, flags: Array) -> tuple[Array, Array]:
        shown = jnp.take_along_axis(flags, left[None], axis=0)[0]
        return left - shown, shown

    nobody = jnp.where(jnp.arange(width)[:, None] == 0, 1, zeros(reduced.p[:, :1].T))
    noise = _uniform(keys, (n,), dtype)
    _, flags = lax.scan(grow, nobody, (reduced.p.T, reduced.q.T, noise.T))
    _, heads = lax.scan(walk, reduced.k, flags, reverse=True)
    return heads.T


def _until_accepted(
    attempt: Callable[[Array, Array], tuple[Array, Array]], needed: Array, result: Array
) -> tuple[Array, Array]:
    """Rows of results of the first attempts that are accepted, and which rows have none.

    Args:
        attempt: of places of rows and the number of the attempt: results and which are accepted.
        needed: which rows take part.
        result: (rows, ...), for those that do not.
    """
    rows = needed.shape[0]
    several = min(rows, max(8, rows // 4))

    def tried(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        pending, number, result = state
        # Those that have waited; places beyond the end are no rows.
        (places,) = jnp.nonzero(pending, size=several, fill_value=rows)
        safe = jnp.minimum(places, rows - 1)
        new, accepted = attempt(safe, jnp.full((several,), number))
        target = jnp.where(accepted, places, rows)
        result = result.at[target].set(new, mode="drop")
        return pending.at[target].set(False, mode="drop"), number + 1, result

    limit = _TRIES * -(-rows // several)
    pending, _, result = lax.while_loop(
        lambda state: state[0].any() & (state[1] < limit),
        tried,
        (needed, jnp.int32(0), result),
    )
    return result, pending


def _with_replacement(inside: Array, k: Array, light: Array, keys: Array, bound: int) -> Array:
    """Draw k items in proportion to their odds until all are different: their places (rows, bound),
    which are n or more for items that are not wanted.

    Args:
        inside: sums of odds, of :func:`_sums_of_odds`.
    """
    rows, blocks, _ = inside.shape
    n = blocks * _BLOCK
    across = jnp.cumsum(inside[..., -1], -1)

    def attempt(places: Array, number: Array) -> tuple[Array, Array]:
        """Items, and whether all of a row are different."""
        fresh = jax.vmap(jax.random.fold_in)(keys[places], number)
        noise = jax.vmap(lambda key: jax.random.uniform(key, (2, bound), inside.dtype))(fresh)
        sums = across[places]
        aim = noise[:, 0] * sums[:, -1:]
        block = (sums[:, None, :] <= aim[..., None]).sum(-1)
        block = jnp.minimum(block, blocks - 1)
        within = inside[places[:, None], block]
        aim = noise[:, 1] * within[..., -1]
        place = jnp.minimum((within <= aim[..., None]).sum(-1), _BLOCK - 1)
        item = block * _BLOCK + place
        wanted = jnp.arange(bound) < k[places][:, None]
        item = jnp.where(wanted, item, n + jnp.arange(bound)).astype(jnp.int32)
        equal = item[:, :, None] == item[:, None, :]
        return item, equal.sum((-1, -2)) == bound

    nothing = jnp.where(light[:, None], n, jnp.full((rows, bound), n, jnp.int32))
    return _until_accepted(attempt, light, nothing)[0]


def _by_parts(reduced: Reduced, needed: Array, keys: Array, most: int) -> Array:
    """Toss all coins but a part, accept by what the part can make up for, go on with the part."""
    rows, n = reduced.p.shape
    depth = -(-n // _PART)
    missing = depth * _PART - n

    def shared(x: Array, fill: float) -> Array:
        return jnp.pad(x, ((0, 0), (0, missing)), constant_values=fill).reshape(rows, depth, _PART)

    t = shared(reduced.t, -jnp.inf)
    spread = shared(reduced.p * reduced.q, 0).sum(1)
    kept = jnp.argmax(spread, -1)  # the part of the largest variance
    tossed_here = (jnp.arange(_PART) != kept[:, None])[:, None, :]
    part = jnp.take_along_axis(t, kept[:, None, None], -1)[..., 0]
    p = jnp.where(tossed_here, shared(reduced.p, 0), 0).reshape(rows, -1)
    mass = _Mass(part, reduced.k)

    def attempt(places: Array, number: Array) -> tuple[Array, Array]:
        fresh = jax.vmap(jax.random.fold_in)(keys[places], number)
        noise = _uniform(fresh, (p.shape[-1] + 1,), p.dtype)
        tossed = noise[:, 1:] < p[places]
        left = reduced.k[places] - tossed.sum(-1)
        return tossed, noise[:, 0] < mass.acceptance(places, left)

    heads, failed = _until_accepted(attempt, needed, zeros(p) > 0)
    left = reduced.k - heads.sum(-1)
    # Rows that do not take part have nothing to choose.
    idle = ~needed | failed
    part = jnp.where(idle[:, None], -jnp.inf, part)
    left = jnp.where(idle, 0, left)
    tilted, _ = _coins.tilt(part, left)
    again = jax.vmap(lambda key: jax.random.fold_in(key, 2**31 - 1))(keys)
    rest = Reduced(coins(tilted, left))
    if depth <= _LAST:
        found = rest.restore(_by_table(rest, again, most))
    else:
        found = rest.restore(_by_parts(rest, ~idle, again, most))
    heads = heads.reshape(rows, depth, _PART)
    heads = jnp.where(tossed_here, heads, found[..., None]).reshape(rows, -1)[:, :n]
    return heads


class _Mass:
    """P_B(j) / max P_B of the coins of a part, by the Fourier sum around their mean."""

    def __init__(self, t: Array, k: Array) -> None:
        part = coins(t, jnp.zeros_like(k))
        mean = part.excess  # E S_B
        self.centre = jnp.round(mean).astype(jnp.int32)
        precision = _DOUBLE if t.dtype == jnp.float64 else _SINGLE
        self.at = _spectral.spectrum(coins(t, self.centre), precision)
        # The mode is the floor or the ceiling of the mean (Darroch 1964).
        self.largest = jnp.maximum(
            jnp.maximum(self._mass(self.at, 0.0), self._mass(self.at, 1.0)),
            self._mass(self.at, -1.0),
        )

    @staticmethod
    def _mass(at: _spectral.Spectrum, offset: Array | float) -> Array:
        offset = jnp.asarray(offset, at.omega.dtype)
        turned = jnp.cos(at.phase - at.omega * offset[..., None])
        return (at.modulus * turned).sum(-1)

    def acceptance(self, places: Array, count: Array) -> Array:
        """At counts of the rows at these places."""
        at = jax.tree.map(lambda x: x[places], self.at)
        offset = (count - self.centre[places]).astype(at.omega.dtype)
        value = self._mass(at, offset) / self.largest[places]
        return jnp.where(jnp.abs(offset) < at.number[:, 0] / 2, jnp.clip(value, 0, 1), 0)
