"""The k-subset distribution as a ``torch.distributions.Distribution``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, register_kl
from torch.distributions.constraints import (
    Constraint,
    dependent_property,
    independent,
    nonnegative_integer,
    unit_interval,
)

from ksubset import functional
from ksubset._arguments import (
    check_logits,
    check_method,
    check_values,
    integer,
    problem,
    values_can_be_read,
)
from ksubset.distributions.constraints import extended_real_vector, k_hot
from ksubset.distributions.maximum_entropy import logits_from_marginals
from ksubset.functional._inferred import Inferred, Kept
from ksubset.functional._size_problem import sized_problem
from ksubset.functional._sized import OfSizes
from ksubset.sizes import Sizes, one_row

__all__ = ["KSubset"]


class KSubset(Distribution):
    r"""The distribution :math:`p(z) \propto \exp(\theta \cdot z)` over k-hot vectors z.

    Equivalently: independent coins :math:`P(z_i = 1) = \sigma(\theta_i)` given that exactly k
    show heads. Samples, log-probabilities, moments, entropy and divergences are exact, in O(n)
    for any k. The batch shape is that of logits, k and mask broadcast together; the event shape
    is (n,).

    The mean and what :meth:`log_prob` needs are worked out once and kept until the logits are
    written to, as PyTorch counts it: a write through ``.data`` or a shared NumPy array, and that
    of a fused optimiser to the parameter that the logits are a detached view of, go unnoticed.
    Nothing is kept for parameters themselves.

    Args:
        k: the number of chosen items: an int, an integer tensor broadcast over the batch, or sizes
            such as ``between(2, 5)``.
        logits: (..., n); -inf forbids an item, +inf forces it.
        probs: the probabilities of the independent coins, instead of logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: as in ``torch.distributions``: check values of arguments and samples.

    Examples:
        >>> d = KSubset(2, logits=torch.tensor([1.0, 0.0, 0.0, -1.0]))
        >>> d.mean
        tensor([0.7876, 0.5000, 0.5000, 0.2124])
        >>> d.log_prob(d.mode).exp()
        tensor(0.3326)
    """

    arg_constraints = {
        "logits": extended_real_vector,
        "probs": independent(unit_interval, 1),
        "k": nonnegative_integer,
    }
    has_rsample = False
    has_enumerate_support = True

    def __init__(
        self,
        k: int | Tensor | Sizes,
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        method: str = "auto",
        validate_args: bool | None = None,
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError(
                "exactly one of logits and probs must be given, got "
                + ("both" if logits is not None else "neither")
            )
        if isinstance(k, Tensor) and k.is_floating_point() and not isinstance(logits, Tensor):
            raise TypeError(
                f"k comes first, KSubset(k, logits=...): k must be an integer, got {k.dtype}"
            )
        validate = _validates(type(self), validate_args)
        if probs is not None:
            check_logits("probs", probs)
            if validate:
                _check_range("probs", probs, "in [0, 1]", (probs >= 0) & (probs <= 1))
            logits = _logits(torch.logit, probs)
        assert logits is not None
        check_method(method)
        if isinstance(k, Sizes) and k.exact is not None:
            k = k.exact
        if isinstance(k, Sizes):
            given = sized_problem(logits, k, mask, validate_args=validate).given
        else:
            given = problem(logits, k, mask, validate_args=False)
            if validate:
                check_values(given)
        n = logits.shape[-1]
        if mask is not None:
            logits = torch.where(mask, logits, -torch.inf)
        shape = (*given.batch_shape, n)
        # Not even a view of the user's own: a copy of the distribution can only copy a leaf.
        self.logits = logits if logits.shape == shape else logits.expand(shape)
        self.k = k if isinstance(k, Sizes) else given.k.reshape(given.batch_shape)
        self._static_k = None if isinstance(k, Tensor | Sizes) else integer(k)
        self._method = method
        self._kept = Kept()
        # The values were checked above, with messages that name them.
        super().__init__(given.batch_shape, torch.Size((n,)), validate_args=False)
        self._validate_args = validate

    @classmethod
    def from_marginals(
        cls,
        marginals: Tensor,
        *,
        method: str = "auto",
        validate_args: bool | None = None,
        tolerance: float | None = None,
    ) -> Self:
        r"""The k-subset distribution with given inclusion probabilities.

        Of all distributions on k-subsets with these marginals (or on subsets of two neighbouring
        sizes) it has the largest entropy: a conditional Poisson design of survey sampling. Found
        by iteration on the exact marginals.
        The logits are centred so that the coins' expected number of heads is k.

        Args:
            marginals: (..., n) in [0, 1]; 0 and 1 give logits of -inf and +inf. They sum to k, or
                in between two numbers, which are then the sizes: 7.3 of marginals are 7 items, or 8
                with probability 0.3. Not differentiable.
            method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
            validate_args: of the distribution that is returned.
            tolerance: largest error of a marginal, by default near the precision of the type.

        Raises:
            ValueError: marginals outside [0, 1].
            RuntimeError: no convergence (marginals within rounding of 0 or 1).

        Examples:
            >>> d = KSubset.from_marginals(torch.tensor([0.9, 0.6, 0.3, 0.2]))
            >>> d.mean
            tensor([0.9000, 0.6000, 0.3000, 0.2000])
        """
        k, logits = logits_from_marginals(marginals, method=method, tolerance=tolerance)
        return cls(k, logits=logits, method=method, validate_args=validate_args)

    @classmethod
    def from_weights(
        cls,
        k: int | Tensor | Sizes,
        weights: Tensor,
        *,
        mask: Tensor | None = None,
        method: str = "auto",
        validate_args: bool | None = None,
    ) -> Self:
        r"""The distribution :math:`p(z) \propto \prod_i w_i^{z_i}` of weights :math:`w = e^\theta`.

        Differentiable; items of weight 0 get no gradient.

        Args:
            k: the number of chosen items: an int, an integer tensor broadcast over the batch, or
                sizes such as ``between(2, 5)``.
            weights: (..., n), at least 0; 0 forbids an item, +inf forces it.
            mask: boolean, broadcast to the weights; False forbids an item.
            method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
            validate_args: as in ``torch.distributions``: check values of arguments and samples.

        Examples:
            >>> KSubset.from_weights(1, torch.tensor([3.0, 1.0, 0.0])).mean
            tensor([0.7500, 0.2500, 0.0000])
        """
        check_logits("weights", weights)
        if _validates(cls, validate_args):
            _check_range("weights", weights, "at least 0", weights >= 0)
        logits = _logits(torch.log, weights)
        return cls(k, logits=logits, mask=mask, method=method, validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities of the independent coins, (*batch_shape, n) (not the marginals: those
        are ``mean``)."""
        return torch.sigmoid(self.logits)

    @dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        """The k-hot vectors."""
        return k_hot(self.k)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distributions in a larger batch shape, without copies."""
        new = self._get_checked_instance(KSubset, _instance)
        new.logits = self.logits.expand(*batch_shape, *self.event_shape)
        batch_shape = new.logits.shape[:-1]
        new.k = self.k if isinstance(self.k, Sizes) else self.k.expand(batch_shape)
        new._static_k = self._static_k
        new._method = self._method
        new._kept = Kept()
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _options(self) -> dict[str, Any]:
        return {"method": self._method, "validate_args": False}

    @property
    def _size(self) -> int | Tensor | Sizes:
        """k as it was given: an int is known without asking a device."""
        return self.k if self._static_k is None else self._static_k

    def _inferred(self) -> Inferred | OfSizes:
        size = self._size
        if isinstance(size, Sizes):
            return OfSizes(self.logits, size, self._method)
        given = problem(self.logits, size, validate_args=False)
        sizes = (size,) if isinstance(size, Tensor) else ()
        return self._kept.infer(given, self._method, self.logits, *sizes)

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Exact samples, (*sample_shape, *batch_shape, n), without a gradient.

        Args:
            sample_shape: the leading shape of several samples per row.
            generator: the source of randomness; the same seed gives the same samples.
        """
        return functional.sample(
            self.logits, self._size, sample_shape, generator=generator, **self._options()
        )

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Not for exact samples, which have no gradient: see :class:`SimpleKSubset`.

        Args:
            sample_shape: the leading shape of several samples per row.
            generator: the source of randomness; the same seed gives the same samples.
        """
        raise NotImplementedError(
            f"samples of {type(self).__name__} have no gradient: use sample, or rsample of "
            "SimpleKSubset, whose gradient is SIMPLE's estimate"
        )

    def sample_indices(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Exact samples as ascending indices, (*sample_shape, *batch_shape, k); all rows must have
        the same k. With several sizes k is the largest, and -1 stands behind what is chosen.

        Args:
            sample_shape: the leading shape of several samples per row.
            generator: the source of randomness; the same seed gives the same samples.
        """
        return functional.sample_indices(
            self.logits,
            self.k if isinstance(self.k, Sizes) else self._one_k("sample_indices"),
            sample_shape,
            generator=generator,
            **self._options(),
        )

    def log_prob(self, value: Tensor) -> Tensor:
        r"""The log-probability :math:`\theta \cdot z - A(\theta)`, (*sample_shape, *batch_shape).

        Args:
            value: k-hot vectors z, (*sample_shape, *batch_shape, n).
        """
        if self._validate_args:
            self._validate_sample(value)
        return self._inferred().log_prob(value, validate=False)

    def log_prob_indices(self, indices: Tensor) -> Tensor:
        """The log-probability of subsets given by their indices, (*sample_shape, *batch_shape); all
        rows must have the same k.

        Args:
            indices: (*sample_shape, *batch_shape, k), as :meth:`sample_indices` returns them, in
                any order.
        """
        k = 0 if isinstance(self.k, Sizes) else self._one_k("log_prob_indices")
        return self._inferred().log_prob_indices(k, indices, validate=self._validate_args)

    def entropy(self) -> Tensor:
        """The entropy in nats, (*batch_shape)."""
        return functional.entropy(self.logits, self._size, **self._options())

    @property
    def mean(self) -> Tensor:
        r"""The marginals :math:`\mu_i = P(z_i = 1)`, (*batch_shape, n); they sum to k."""
        return self._inferred().marginals()

    @property
    def size_probabilities(self) -> Tensor:
        """The probabilities of the sizes 0 ... n, (*batch_shape, n + 1)."""
        return functional.size_probabilities(self.logits, self._size, **self._options())

    @property
    def variance(self) -> Tensor:
        r"""The variances :math:`\mu_i (1 - \mu_i)`, (*batch_shape, n)."""
        mean = self.mean
        return mean * (1 - mean)

    @property
    def covariance_matrix(self) -> Tensor:
        r"""The covariances :math:`\mathrm{Cov}(z_i, z_j)`, (*batch_shape, n, n)."""
        return functional.covariance_matrix(self.logits, self._size, **self._options())

    @property
    def mode(self) -> Tensor:
        """The most likely subset, k-hot (*batch_shape, n)."""
        return functional.mode(self.logits, self._size, validate_args=False)

    def log_partition(self) -> Tensor:
        r"""The log of the sum of :math:`\exp(\theta \cdot z)` over the subsets, (*batch_shape)."""
        return self._inferred().log_partition()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All C(n, k) subsets, (C(n, k), *batch_shape, n), of each size in turn; all rows must have
        the same."""
        if isinstance(self.k, Sizes):
            n, parts = self.event_shape[0], []
            for k in one_row(self.k, n):
                single = KSubset(k, logits=self.logits, validate_args=False)
                parts.append(single.enumerate_support(expand))
            return torch.cat(parts)
        n, k = self.event_shape[0], self._one_k("enumerate_support")
        flat = itertools.chain.from_iterable(itertools.combinations(range(n), k))
        chosen = torch.tensor(list(flat), dtype=torch.int64, device=self.logits.device)
        rows = chosen.reshape(-1, k) if k else chosen.new_empty(1, 0)
        values = self.logits.new_zeros(len(rows), n).scatter_(1, rows, 1)
        values = values.reshape(-1, *(1,) * len(self.batch_shape), n)
        return values.expand(-1, *self.batch_shape, -1) if expand else values

    def _one_k(self, what: str) -> int:
        if self._static_k is not None:
            return self._static_k
        assert isinstance(self.k, Tensor)
        if not self.k.numel():
            raise NotImplementedError(f"{what} needs at least one row to tell k")
        first = int(self.k.flatten()[0])
        if not bool((self.k == first).all()):
            raise NotImplementedError(f"{what} is not supported for a k that differs between rows")
        return first

    def __repr__(self) -> str:
        k: Any = self.k if self._static_k is None else self._static_k
        if isinstance(k, Tensor):
            k = tuple(k.shape)
        return f"{type(self).__name__}(k: {k}, logits: {tuple(self.logits.shape)})"


def _validates(cls: type[KSubset], validate_args: bool | None) -> bool:
    """Checks read values, which a transform or the compiler cannot."""
    return cls._validate_args and values_can_be_read() if validate_args is None else validate_args


def _check_range(name: str, value: Tensor, wanted: str, valid: Tensor) -> None:
    if not bool(valid.all()):
        low, high = float(value.min()), float(value.max())
        raise ValueError(f"{name} must be {wanted}, got values from {low} to {high}")


def _logits(function: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """The logits of coins or weights. Where they are infinite they have no gradient: by the rules
    of arithmetic it would be 0 times infinity."""
    ends = function(value.detach())
    inside = torch.where(ends.isinf(), 0.5, value)
    return torch.where(ends.isinf(), ends, function(inside))


@register_kl(KSubset, KSubset)  # type: ignore[untyped-decorator]
def _kl_ksubset_ksubset(p: KSubset, q: KSubset) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"p and q must have the same number of items, got {p.event_shape[0]} and "
            f"{q.event_shape[0]}"
        )
    return functional.kl_divergence(p.logits, q.logits, p._size, q._size, **p._options())
