"""Functions of rows for some of the rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

_ITEMS = 32 * 1024  # of a block: with a few arrays of so many float32 it stays in a core's cache
_SEVERAL = 8


def by_blocks(function: Callable[..., Any], *arrays: Array) -> Any:
    """A function of rows, block by block.

    Args:
        function: of arrays with equal leading dimensions; so are its results. No row changes what
            it returns for another one.
        arrays: the first of them is (rows, n).
    """
    rows, n = arrays[0].shape
    size = max(_ITEMS // n, 1)
    if rows <= 2 * size:
        return function(*arrays)
    blocks = -(-rows // size)
    size = -(-rows // blocks)
    missing = blocks * size - rows

    def split(x: Array) -> Array:
        # Rows that are added are copies: they ask for no case of their own.
        full = jnp.concatenate([x, x[:missing]]) if missing else x
        return full.reshape(blocks, size, *x.shape[1:])

    # Without the barrier, XLA computes results in the loop that writes them, one by one.
    found = lax.map(
        lambda block: lax.optimization_barrier(function(*block)), tuple(map(split, arrays))
    )
    return jax.tree.map(lambda x: x.reshape(blocks * size, *x.shape[2:])[:rows], found)


def complete(
    done: Array, results: tuple[Array, ...], function: Callable[..., Any], *arrays: Array
) -> tuple[Array, ...]:
    """Results of the rows that are done, and of the function of arrays for the others: a few of
    these at a time, so that the work is theirs only."""
    rows = done.shape[0]
    several = min(rows, _SEVERAL)

    def more(state: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        pending, results = state
        (places,) = jnp.nonzero(pending, size=several, fill_value=rows)
        safe = jnp.minimum(places, rows - 1)
        found = function(*(x[safe] for x in arrays))
        results = tuple(
            x.at[places].set(y, mode="drop") for x, y in zip(results, found, strict=True)
        )
        return pending.at[places].set(False, mode="drop"), results

    return lax.while_loop(lambda state: state[0].any(), more, (~done, results))[1]
