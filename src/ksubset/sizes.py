"""Sizes of subsets: what may stand wherever k stands.

:func:`exactly` k, :func:`between` a and b, :func:`at_most` k and :func:`at_least` k admit a range
of sizes, :func:`weighted_sizes` gives each size a weight,

    p(z) ∝ exp(θ · z + c(|z|)),

and :func:`random_sizes` gives each size a probability, with the k-subset distribution within each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import check_dense, check_device, integer, values_can_be_read

__all__ = [
    "Sizes",
    "at_least",
    "at_most",
    "between",
    "exactly",
    "random_sizes",
    "weighted_sizes",
]


class SizeRows(NamedTuple):
    """Sizes as functions of them want them: ``first``, ``first + 1``, ..., and their weights."""

    first: int
    log_weights: Tensor  # (..., sizes), -inf where a size is not possible
    given: bool  # the log-weights are log-probabilities of the sizes


class Sizes:
    """Which sizes subsets may have, and how much each weighs: an argument in place of k.

    Made by :func:`exactly`, :func:`between`, :func:`at_most`, :func:`at_least`,
    :func:`weighted_sizes` and :func:`random_sizes`.

    Examples:
        >>> isinstance(between(2, 5), Sizes)
        True
        >>> marginals(torch.zeros(4), between(1, 2))
        tensor([0.4000, 0.4000, 0.4000, 0.4000])
    """

    @property
    def exact(self) -> int | Tensor | None:
        """k, if there is no other size."""
        return None

    @property
    def concave(self) -> bool:
        """Whether log-weights are known to be concave: no size weighs less than its neighbours."""
        return False

    @property
    def batch_shape(self) -> torch.Size:
        """Of sizes that differ from row to row."""
        raise NotImplementedError

    def rows(self, n: int, dtype: torch.dtype, device: torch.device, name: str) -> SizeRows:
        """For rows of n items; ``name`` is what the caller calls the argument."""
        raise NotImplementedError


class Between(Sizes):
    """All sizes from a to b, each with the weight of its subsets; b is None for n."""

    def __init__(self, low: int | Tensor, high: int | Tensor | None) -> None:
        self.low = low
        self.high = high

    @property
    def exact(self) -> int | Tensor | None:
        """k, if there is no other size."""
        same = self.low is self.high or (
            isinstance(self.low, int) and isinstance(self.high, int) and self.low == self.high
        )
        return self.high if same else None

    @property
    def concave(self) -> bool:
        """All have the same."""
        return True

    @property
    def batch_shape(self) -> torch.Size:
        """Of both bounds."""
        return torch.broadcast_shapes(_shape(self.low), _shape(self.high))

    def bounds(self, n: int, device: torch.device, name: str) -> tuple[Any, Any]:
        """Both, for rows of n items: ints, or tensors on the device of the logits."""
        high = n if self.high is None else self.high
        for bound in (self.low, high):
            if isinstance(bound, int) and bound > n:
                raise ValueError(
                    f"{name} must not go beyond the number of items n = {n}, got {self!r}"
                )
        moved = [b.to(device) if isinstance(b, Tensor) else b for b in (self.low, high)]
        return moved[0], moved[1]

    def rows(self, n: int, dtype: torch.dtype, device: torch.device, name: str) -> SizeRows:
        """For rows of n items."""
        low, high = self.bounds(n, device, name)
        first, last = _least(low, 0), _most(high, n)
        sizes = torch.arange(first, last + 1, device=device)
        low, high = (x.unsqueeze(-1) if isinstance(x, Tensor) else x for x in (low, high))
        inside = (sizes >= low) & (sizes <= high)
        weights = torch.zeros(inside.shape, dtype=dtype, device=device)
        return SizeRows(first, weights.masked_fill(~inside, -torch.inf), given=False)

    def __repr__(self) -> str:
        low, high = _shown(self.low), _shown(self.high)
        if self.exact is not None:
            return f"exactly({high})"
        if self.high is None:
            return f"at_least({low})"
        if isinstance(self.low, int) and self.low == 0:
            return f"at_most({high})"
        return f"between({low}, {high})"


class Weighted(Sizes):
    """Sizes ``first``, ``first + 1``, ... with log-weights, or with log-probabilities."""

    def __init__(self, first: int, log_weights: Tensor, given: bool, shown: str) -> None:
        self.first = first
        self.log_weights = log_weights  # (..., sizes)
        self.given = given
        self._shown = shown
        self._concave = not given and _readable(log_weights) and _is_concave(log_weights.detach())

    @property
    def concave(self) -> bool:
        """As far as can be seen without waiting for a device."""
        return self._concave

    @property
    def batch_shape(self) -> torch.Size:
        """Of the weights."""
        return self.log_weights.shape[:-1]

    def rows(self, n: int, dtype: torch.dtype, device: torch.device, name: str) -> SizeRows:
        """For rows of n items."""
        last = self.first + self.log_weights.shape[-1] - 1
        if last > n:
            raise ValueError(
                f"{name} must not go beyond the number of items n = {n}, got {self!r}, whose "
                f"largest size is {last}"
            )
        weights = self.log_weights
        if weights.dim() > 1:
            check_device(name, weights, torch.empty(0, device=device))
        return SizeRows(self.first, weights.to(device, dtype), self.given)

    def __repr__(self) -> str:
        return self._shown


def exactly(k: int | Tensor) -> Sizes:
    """Subsets of exactly k items: the same as k itself.

    Args:
        k: an int, or integers broadcast over the batch.

    Examples:
        >>> exactly(3)
        exactly(3)
    """
    k = _bound("k", k)
    return Between(k, k)


def between(a: int | Tensor, b: int | Tensor) -> Sizes:
    r"""Subsets of at least a and at most b items, :math:`p(z) \propto \exp(\theta \cdot z)`.

    With a mask that allows fewer than b items, sizes end at what it allows.

    Args:
        a: an int, or integers broadcast over the batch.
        b: likewise, at least a.

    Examples:
        >>> sizes = between(2, 5)
        >>> sizes
        between(2, 5)
        >>> sample(torch.zeros(8, 20), sizes).sum(-1).max() <= 5
        tensor(True)
    """
    a, b = _bound("a", a), _bound("b", b)
    if isinstance(a, int) and isinstance(b, int):
        wrong = a > b
    else:
        tensors = [x for x in (a, b) if isinstance(x, Tensor)]
        try:
            torch.broadcast_shapes(*(x.shape for x in tensors))
        except RuntimeError:
            shapes = " and ".join(str(tuple(x.shape)) for x in tensors)
            raise ValueError(f"the shapes of a and b must broadcast, got {shapes}") from None
        wrong = all(_readable(x) for x in tensors) and bool((a > b).any())  # type: ignore[union-attr]
    if wrong:
        raise ValueError(f"a must be at most b, got a = {_shown(a)} and b = {_shown(b)}")
    return Between(a, b)


def at_most(k: int | Tensor) -> Sizes:
    """Subsets of up to k items, the empty one included: ``between(0, k)``.

    Args:
        k: an int, or integers broadcast over the batch.

    Examples:
        >>> size_probabilities(torch.zeros(3), at_most(2))  # 1, 3 and 3 subsets
        tensor([0.1429, 0.4286, 0.4286, 0.0000])
    """
    return Between(0, _bound("k", k))


def at_least(k: int | Tensor) -> Sizes:
    """Subsets of k items or more.

    Args:
        k: an int, or integers broadcast over the batch.

    Examples:
        >>> size_probabilities(torch.zeros(3), at_least(2))
        tensor([0.0000, 0.0000, 0.7500, 0.2500])
    """
    return Between(_bound("k", k), None)


def weighted_sizes(log_weights: Mapping[int, float] | Tensor) -> Sizes:
    r"""Subsets of several sizes with a log-weight for each,
    :math:`p(z) \propto \exp(\theta \cdot z + c_{|z|})`.

    Args:
        log_weights: :math:`c_j` by size j, or a tensor (..., m + 1) of :math:`c_0, \dots, c_m`;
            sizes that are not in it, and those with -inf, are not possible.

    Examples:
        >>> sizes = weighted_sizes({0: 0.0, 1: 0.0, 2: 1.0})
        >>> sizes
        weighted_sizes({0: 0.0, 1: 0.0, 2: 1.0})
        >>> size_probabilities(torch.zeros(2), sizes)  # weights 1, 2 and e
        tensor([0.1749, 0.3498, 0.4754])
    """
    first, weights, shown = _table("log_weights", log_weights, -torch.inf)
    if _readable(weights):
        values = weights.detach()
        if bool(values.isnan().any() | (values == torch.inf).any()):
            raise ValueError(f"log_weights must be below +inf and not NaN, got {shown}")
        if not bool((values > -torch.inf).any(-1).all()):
            raise ValueError(f"log_weights must have a size that is not -inf, got {shown}")
    return Weighted(first, weights, given=False, shown=f"weighted_sizes({shown})")


def random_sizes(probabilities: Mapping[int, float] | Tensor) -> Sizes:
    r"""Subsets of a random size: j with probability :math:`\rho_j`, whatever the logits, and given
    the size the k-subset distribution,
    :math:`p(z) = \rho_{|z|} \exp(\theta \cdot z) / e_{|z|}(e^\theta)`.

    Args:
        probabilities: :math:`\rho_j` by size j, or a tensor (..., m + 1) of
            :math:`\rho_0, \dots, \rho_m`; they sum to 1.

    Examples:
        >>> sizes = random_sizes({7: 0.75, 8: 0.25})
        >>> sizes
        random_sizes({7: 0.75, 8: 0.25})
        >>> marginals(torch.randn(20), sizes).sum()
        tensor(7.2500)
    """
    first, values, shown = _table("probabilities", probabilities, 0.0)
    total = values.sum(-1, keepdim=True)
    if _readable(values):
        if not bool((values >= 0).all()):
            raise ValueError(f"probabilities must be at least 0, got {shown}")
        if not bool(((total - 1).abs() < 1e-3).all()):
            found = _shown(total.squeeze(-1))
            raise ValueError(f"probabilities must sum to 1, got {shown}, whose sum is {found}")
    return Weighted(first, (values / total).log(), given=True, shown=f"random_sizes({shown})")


def admits(sizes: Sizes, count: Tensor, n: int) -> Tensor:
    """Which counts (...) of n items are among the sizes, row by row."""
    own = sizes.rows(n, torch.float32, count.device, "k")
    possible = own.log_weights > -torch.inf
    inside = (count >= own.first) & (count < own.first + possible.shape[-1])
    shape = torch.broadcast_shapes(count.shape, possible.shape[:-1])
    at = (count - own.first).clamp(0, possible.shape[-1] - 1).expand(shape).unsqueeze(-1)
    return inside & possible.expand(*shape, -1).gather(-1, at).squeeze(-1)


def one_row(sizes: Sizes, n: int) -> list[int]:
    """All sizes that are possible, where no row has others."""
    if sizes.batch_shape.numel() != 1:
        raise NotImplementedError(f"sizes that differ between rows cannot be listed, got {sizes!r}")
    own = sizes.rows(n, torch.float32, torch.device("cpu"), "k")
    possible = (own.log_weights > -torch.inf).flatten()
    return [own.first + at for at in possible.nonzero().flatten().tolist()]


def _table(name: str, values: Any, absent: float) -> tuple[int, Tensor, str]:
    """The smallest size, what is given for it and all that follow, and how to show it."""
    if isinstance(values, Mapping):
        try:
            table = {integer(size): float(value) for size, value in values.items()}
        except TypeError:
            raise TypeError(f"{name} must have ints for sizes and numbers, got {values}") from None
        if not table or min(table) < 0:
            raise ValueError(f"{name} must have sizes, all at least 0, got {values}")
        first, last = min(table), max(table)
        row = [table.get(size, absent) for size in range(first, last + 1)]
        return first, torch.tensor(row, dtype=torch.float64), repr(table)
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a mapping or a tensor, got {type(values).__name__}")
    check_dense(name, values)
    if not values.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {values.dtype}")
    if values.dim() == 0 or values.shape[-1] == 0:
        raise ValueError(
            f"{name} must have shape (..., m + 1) for sizes 0 ... m, got {tuple(values.shape)}"
        )
    return 0, values, _shown(values)


def _is_concave(weights: Tensor) -> bool:
    """Between the first and the last size that is possible, up to rounding."""
    c = weights.double()
    inside = c > -torch.inf
    # Behind the first possible size and before the last: there must be no gap.
    within = (inside.cumsum(-1) > 0) & (inside.flip(-1).cumsum(-1).flip(-1) > 0)
    if bool((within & ~inside).any()) or not bool(inside.any(-1).all()):
        return False
    c = torch.where(inside, c, 0)
    bend = c[..., 2:] - 2 * c[..., 1:-1] + c[..., :-2]
    whole = inside[..., 2:] & inside[..., 1:-1] & inside[..., :-2]
    return not bool((whole & (bend > 1e-6 * (1 + c[..., 1:-1].abs()))).any())


def _bound(name: str, value: Any) -> int | Tensor:
    if isinstance(value, Tensor):
        check_dense(name, value)
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"{name} must be an int or an integer tensor, got {value.dtype}")
        if _readable(value) and bool((value < 0).any()):
            raise ValueError(f"{name} must be at least 0, got {_shown(value)}")
        return value.to(torch.int64)
    try:
        value = integer(value)
    except TypeError:
        raise TypeError(f"{name} must be an int or an integer tensor, got {value!r}") from None
    if value < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    return int(value)


def _readable(x: Tensor) -> bool:
    """Without waiting for a device."""
    return x.device.type == "cpu" and values_can_be_read()


def _least(bound: int | Tensor, otherwise: int) -> int:
    if isinstance(bound, int):
        return bound
    return int(bound.min()) if _readable(bound) and bound.numel() else otherwise


def _most(bound: int | Tensor, otherwise: int) -> int:
    if isinstance(bound, int):
        return bound
    known = _readable(bound) and bound.numel()
    return min(int(bound.max()), otherwise) if known else otherwise


def _shape(bound: int | Tensor | None) -> torch.Size:
    return bound.shape if isinstance(bound, Tensor) else torch.Size()


def _shown(value: Any) -> str:
    """In a repr or a message: short."""
    if not isinstance(value, Tensor):
        return repr(value)
    if value.numel() <= 8 and not value.is_meta and _readable(value):
        return f"tensor({value.tolist()})"
    return f"tensor of shape {tuple(value.shape)}"
