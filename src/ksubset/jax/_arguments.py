"""One check of arguments for all functions of JAX arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import checkify

from ksubset._checks import Names, integer, k_out_of_range


class Problem(NamedTuple):
    """A batch of k-subset distributions as the primitives take it."""

    logits: Array  # (..., n), float32 or float64, masked items at -inf
    k: Array  # (...)
    most: int  # no min(k, n - k) is larger
    dtype: Any  # the user's, for vectors

    @property
    def n(self) -> int:
        return self.logits.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.logits.shape[:-1]

    def vector(self, name: str, value: Any) -> Array:
        """A vector of the user's, broadcast to the logits."""
        value = jnp.asarray(value)
        if not jnp.issubdtype(value.dtype, jnp.floating) and not jnp.issubdtype(
            value.dtype, jnp.integer
        ):
            raise TypeError(f"{name} must be a real array, got {value.dtype}")
        if value.ndim == 0 or value.shape[-1] not in (1, self.n):
            raise ValueError(
                f"{name} must have shape (..., n) with n = {self.n}, got {value.shape}"
            )
        return value.astype(self.logits.dtype)


def problem(
    logits: Any,
    k: Any,
    mask: Any = None,
    *,
    names: Names = Names(),  # noqa: B008
    more: dict[str, tuple[int, ...]] | None = None,
    validate_args: bool | None = None,
) -> Problem:
    """Check and broadcast.

    Args:
        more: further batch shapes to broadcast with, by argument.
        validate_args: whether to check values. By default those of arrays that are known; under a
            transform values are checked with ``jax.experimental.checkify``.
    """
    logits = as_logits(names.logits, logits)
    n = logits.shape[-1]
    sizes, most = _sizes(k, n, names.k)
    shapes = {names.logits: logits.shape[:-1], names.k: sizes.shape}
    if mask is not None:
        mask = _as_mask(mask, n, names.mask)
        shapes[names.mask] = mask.shape[:-1]
    shapes |= more or {}
    try:
        batch_shape = jnp.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"the batch shapes of the arguments must broadcast: {listed}") from None
    wide = logits if logits.dtype in (jnp.float32, jnp.float64) else logits.astype(jnp.float32)
    if mask is not None:
        wide = jnp.where(mask, wide, -jnp.inf)
    given = Problem(
        jnp.broadcast_to(wide, (*batch_shape, n)),
        jnp.broadcast_to(sizes, batch_shape),
        most,
        logits.dtype,
    )
    if validate_args is not False:
        _check_values(given, names, asked=validate_args is True)
    return given


def as_logits(name: str, logits: Any) -> Array:
    """An array of floating point numbers (..., n)."""
    if not isinstance(logits, (Array, np.ndarray)):
        raise TypeError(f"{name} must be an array, got {type(logits).__name__}")
    logits = jnp.asarray(logits)
    if logits.dtype not in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
        raise TypeError(f"{name} must be float16, bfloat16, float32 or float64, got {logits.dtype}")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., n) with n >= 1, got shape {logits.shape}")
    return logits


def _sizes(k: Any, n: int, name: str) -> tuple[Array, int]:
    if isinstance(k, (Array, np.ndarray)) and (k.ndim or isinstance(k, jax.core.Tracer)):
        if not jnp.issubdtype(k.dtype, jnp.integer):
            raise TypeError(f"{name} must be an int or an array of integers, got {k.dtype}")
        return jnp.asarray(k, jnp.int32), n // 2
    try:
        size = integer(k)
    except TypeError:
        raise TypeError(f"{name} must be an int or an array of integers, got {k!r}") from None
    if not 0 <= size <= n:
        raise ValueError(k_out_of_range(name, n, size))
    return jnp.int32(size), min(size, n // 2)


def _as_mask(mask: Any, n: int, name: str) -> Array:
    if not isinstance(mask, (Array, np.ndarray)):
        raise TypeError(f"{name} must be an array, got {type(mask).__name__}")
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(f"{name} must be boolean (True: may be chosen), got {mask.dtype}")
    if mask.ndim == 0 or mask.shape[-1] not in (1, n):
        raise ValueError(
            f"{name} must have shape (..., n) with n = {n} items, got shape {mask.shape}"
        )
    return mask


def is_known(*arrays: Array) -> bool:
    """Whether the values are there to be looked at."""
    return not any(isinstance(x, jax.core.Tracer) for x in arrays)


def _check_values(given: Problem, names: Names, asked: bool) -> None:
    """Raise for NaN logits and for a k that no subset of the allowed items has."""
    logits, k = given.logits, given.k
    if not is_known(logits, k):
        check = checkify.check if asked else checkify.debug_check
        allowed = (logits > -jnp.inf).sum(-1)
        forced = (logits == jnp.inf).sum(-1)
        check(~jnp.isnan(logits).any(), f"{names.logits} must not be NaN")
        check(
            ((k >= 0) & (k <= allowed)).all(),
            f"{names.k} must be between 0 and the number of allowed items",
        )
        check(
            (k >= forced).all(),
            f"{names.k} must be at least the number of items with a logit of +inf",
        )
        return
    theta, size = np.asarray(logits), np.asarray(k)
    if theta.size == 0:
        return
    bad = np.isnan(theta).any(-1)
    if bad.any():
        raise ValueError(f"{names.logits} must not be NaN, got NaN in {_where(bad)}")
    allowed, forced = (theta > -np.inf).sum(-1), (theta == np.inf).sum(-1)
    bad = (size < 0) | (size > allowed)
    if bad.any():
        row = tuple(np.argwhere(bad)[0])
        raise ValueError(
            f"{names.k} must be between 0 and the number of allowed items, "
            f"{allowed[row]}, got {size[row]} in {_where(bad)}"
        )
    bad = size < forced
    if bad.any():
        row = tuple(np.argwhere(bad)[0])
        raise ValueError(
            f"{names.k} must be at least the number of items with a logit of +inf, "
            f"{forced[row]}, got {size[row]} in {_where(bad)}"
        )


def _where(bad: np.ndarray) -> str:
    if bad.ndim == 0:
        return "the only row"
    row = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"row {row} ({int(bad.sum())} of {bad.size} rows)"


def check_support(value: Array, k: Array) -> None:
    """Raise unless every vector of known values is k-hot."""
    if not is_known(value, k):
        return
    z, size = np.asarray(value), np.asarray(k)
    if not ((z == 0) | (z == 1)).all():
        raise ValueError("value must be k-hot: its entries must be 0 or 1, got other entries")
    ones, size = np.broadcast_arrays((z != 0).sum(-1), size)
    if (ones != size).any():
        row = tuple(np.argwhere(ones != size)[0])
        raise ValueError(f"value must be k-hot with k = {size[row]} ones, got {int(ones[row])}")


def keys_of_rows(key: Any, shape: tuple[int, ...]) -> tuple[Array, str]:
    """The data of a key for every drawn row, (*shape, words), and the name of their generator."""
    typed = isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed:
        if not isinstance(key, (Array, np.ndarray)) or key.dtype != jnp.uint32:
            kind = getattr(key, "dtype", type(key).__name__)
            raise TypeError(f"key must be a key of jax.random, got {kind}")
        key = jax.random.wrap_key_data(jnp.asarray(key))
    if key.ndim:
        raise ValueError(f"key must be a single key of jax.random, got shape {key.shape}")
    keys = jax.random.split(key, math.prod(shape))
    data = jax.random.key_data(keys)
    return data.reshape(*shape, *data.shape[1:]), str(jax.random.key_impl(key))
