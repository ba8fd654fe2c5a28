"""The k-subset distribution for NumPyro (extra ``numpyro``).

As in all of NumPyro, values are checked where ``validate_args`` or
``numpyro.enable_validation()`` asks for it.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

import ksubset.jax as functions
from ksubset.jax._arguments import problem

try:
    import jax
    import jax.numpy as jnp
    from jax import Array
    from numpyro.distributions import Distribution, constraints, kl_divergence
    from numpyro.distributions.util import validate_sample
except ImportError as error:
    raise ImportError("ksubset.numpyro needs numpyro: pip install 'ksubset[numpyro]'") from error

__all__ = ["KSubset", "SimpleKSubset"]


class _KHot(constraints.Constraint):
    """Vectors of zeros with exactly k ones."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: Any) -> None:
        self.k = k

    def __call__(self, x: Array) -> Array:
        return ((x == 0) | (x == 1)).all(-1) & ((x != 0).sum(-1) == self.k)

    def __repr__(self) -> str:
        return f"k_hot(k={self.k})"

    def feasible_like(self, prototype: Array) -> Array:
        """The first k items."""
        first = jnp.arange(prototype.shape[-1]) < jnp.expand_dims(self.k, -1)
        return jnp.broadcast_to(first, prototype.shape).astype(prototype.dtype)

    def tree_flatten(self) -> Any:
        return (self.k,), (("k",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        if not isinstance(other, _KHot):
            return False
        return np.array_equal(self.k, other.k) if static else jnp.array_equal(self.k, other.k)


class _ExtendedRealVector(constraints.Constraint):
    """Real, -inf or +inf, but not NaN."""

    event_dim = 1

    def __call__(self, x: Array) -> Array:
        return ~jnp.isnan(x).any(-1)

    def feasible_like(self, prototype: Array) -> Array:
        """Zeros."""
        return jnp.zeros_like(prototype)

    def tree_flatten(self) -> Any:
        return (), ((), {})

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _ExtendedRealVector)


extended_real_vector = _ExtendedRealVector()


class KSubset(Distribution):
    r"""The distribution :math:`p(z) \propto \exp(\theta \cdot z)` over vectors of zeros with
    exactly k ones.

    Samples carry no gradient; those of :class:`SimpleKSubset` carry SIMPLE's.

    Args:
        k: an int, or integers broadcast over the batch.
        logits: (..., n).
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values.

    Examples:
        >>> d = KSubset(2, jnp.zeros((3, 5)))
        >>> d.batch_shape, d.event_shape
        ((3,), (5,))
        >>> d.sample(jax.random.key(0), (7,)).shape
        (7, 3, 5)
        >>> d.mean[0].round(1)
        Array([0.4, 0.4, 0.4, 0.4, 0.4], dtype=float32)
    """

    arg_constraints = {"logits": extended_real_vector}
    pytree_data_fields = ("logits", "_each")
    pytree_aux_fields = ("_all",)

    def __init__(
        self, k: Any, logits: Array, mask: Array | None = None, *, validate_args: bool | None = None
    ) -> None:
        given = problem(logits, k, mask, validate_args=False)
        # A k that is the same for all rows is no array: it says how much there is to do.
        varies = jnp.ndim(k) > 0 or isinstance(k, jax.core.Tracer)
        self._all = None if varies else int(k)
        self._each = given.k if varies else None
        self.logits = given.logits
        super().__init__(given.batch_shape, (given.n,), validate_args=validate_args)

    @property
    def k(self) -> Any:
        """An int, or integers (...)."""
        return self._each if self._all is None else self._all

    @property
    def support(self) -> constraints.Constraint:
        """k-hot vectors."""
        return _KHot(self.k)

    @property
    def mean(self) -> Array:
        """The marginals P(z_i = 1)."""
        return functions.marginals(self.logits, self.k, validate_args=False)

    @property
    def variance(self) -> Array:
        """Of each item."""
        mean = self.mean
        return mean * (1 - mean)

    @property
    def covariance_matrix(self) -> Array:
        """(..., n, n)."""
        return functions.covariance_matrix(self.logits, self.k, validate_args=False)

    @property
    def mode(self) -> Array:
        """The most likely subset."""
        return functions.mode(self.logits, self.k, validate_args=False)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact samples (*sample_shape, ..., n)."""
        return functions.sample(key, self.logits, self.k, sample_shape, validate_args=False)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        """Of k-hot vectors (..., n)."""
        return functions.log_prob(self.logits, self.k, value, validate_args=False)

    def entropy(self) -> Array:
        """In nats, (...)."""
        return functions.entropy(self.logits, self.k, validate_args=False)

    @property
    def has_enumerate_support(self) -> bool:
        """Whether all rows have the same k."""
        return self._all is not None

    def enumerate_support(self, expand: bool = True) -> Array:
        """All :math:`\\binom{n}{k}` subsets: (subsets, ..., n)."""
        if self._all is None:
            raise NotImplementedError("rows of different k have different numbers of subsets")
        n = self.event_shape[0]
        chosen = list(combinations(range(n), self._all))
        values = np.zeros((len(chosen), n), self.logits.dtype)
        np.put_along_axis(values, np.array(chosen, int).reshape(len(chosen), -1), 1, axis=1)
        shape = (len(chosen), *(1 for _ in self.batch_shape), n)
        values = jnp.asarray(values).reshape(shape)
        return jnp.broadcast_to(values, (shape[0], *self.batch_shape, n)) if expand else values

    @staticmethod
    def infer_shapes(k: Any = (), logits: Any = (), mask: Any = ()) -> Any:
        """Batch and event shape from those of the arguments."""
        batch = jnp.broadcast_shapes(k, logits[:-1], mask[:-1] if mask else ())
        return batch, logits[-1:]


class SimpleKSubset(KSubset):
    """:class:`KSubset` whose samples have SIMPLE's gradient, for losses of samples.

    Args:
        k: an int, or integers broadcast over the batch.
        logits: (..., n).
        mask: boolean, broadcast to the logits; False forbids an item.
        validate_args: check values.

    Examples:
        >>> from ksubset.numpyro import SimpleKSubset
        >>> def first(logits):
        ...     return SimpleKSubset(2, logits).rsample(jax.random.key(0))[0]
        >>> jax.grad(first)(jnp.zeros(5)).round(2)
        Array([ 0.24, -0.06, -0.06, -0.06, -0.06], dtype=float32)
    """

    reparametrized_params = ["logits"]

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact samples (*sample_shape, ..., n), with a gradient."""
        return functions.simple(key, self.logits, self.k, sample_shape, validate_args=False)


@kl_divergence.register(KSubset, KSubset)
def _kl(p: KSubset, q: KSubset) -> Array:
    return functions.kl_divergence(p.logits, q.logits, p.k, q.k, validate_args=False)
