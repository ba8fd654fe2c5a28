"""Rows of different lengths, without padding: the items of all rows one after the other.

Rows are sorted by length and worked on in groups of nearly the same length, each padded to its own
longest row: a few hundredths of the work, where a rectangle for all would be most of it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ksubset import functional
from ksubset._arguments import check_logits, reads_values
from ksubset.functional._primitives import plain_eager
from ksubset.kernels.device import are_compiled
from ksubset.sizes import Between, Sizes, Weighted

__all__ = ["Ragged"]

_WASTE = 1.125  # the longest row of a group to its shortest
_SHORT = 16  # rows up to here are one group: they cost a call each, not their length


class Ragged:
    r"""Logits of rows that differ in length, and what functions of logits say of each row.

    Items are in one flat tensor, row after row. Methods have the names of the functions; k is an
    int, one integer for every row, or sizes (of one row, or with one entry for every row). What a
    function gives per item comes back flat, what it gives per row as (rows,).

    Args:
        logits: (items,), or a jagged nested tensor (rows, *).
        offsets: (rows + 1,), where each row begins, from 0 to the number of items: PyTorch
            Geometric's ``ptr``.
        batch: (items,), the row of every item, ascending, instead of offsets: PyTorch Geometric's
            ``batch``.
        rows: how many rows there are, for a ``batch`` whose last rows are empty.

    Attributes:
        logits: (items,).
        offsets: int64 (rows + 1,).
        lengths: (rows,).

    Examples:
        >>> rows = Ragged(torch.zeros(7), offsets=torch.tensor([0, 3, 7]))
        >>> rows.marginals(2)
        tensor([0.6667, 0.6667, 0.6667, 0.5000, 0.5000, 0.5000, 0.5000])
        >>> rows.entropy(torch.tensor([1, 2])).exp()  # 3 and 6 subsets
        tensor([3., 6.])
        >>> Ragged(torch.zeros(3), batch=torch.tensor([0, 0, 1])).sample(at_most(1)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        logits: Tensor,
        offsets: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        rows: int | None = None,
    ) -> None:
        if isinstance(logits, Tensor) and logits.is_nested:
            if offsets is not None or batch is not None:
                raise ValueError("a nested tensor has offsets of its own: give no other ones")
            logits, offsets = _of_nested(logits)
        if (offsets is None) == (batch is None):
            given = "neither" if batch is None else "both"
            raise ValueError(f"exactly one of offsets and batch must be given, got {given}")
        if not isinstance(logits, Tensor) or logits.dim() != 1:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"logits must have shape (items,), got {shape}")
        if len(logits):
            check_logits("logits", logits)
        if batch is not None:
            offsets = _of_batch(batch, len(logits), rows)
        assert offsets is not None
        ends = _checked(offsets, len(logits))
        self.logits = logits
        self.offsets = ends.to(logits.device)
        self.lengths = self.offsets.diff()
        self._lengths = ends.diff()  # in the host's memory
        self._groups = _groups(self._lengths)
        if self._groups:
            self._layout = _Layout(self._groups, self._lengths, ends, logits.device)
            order = torch.cat([group.rows for group in self._groups]).argsort()
            # On the device of the logits once, not at every call.
            self._order = order.to(logits.device)

    def marginals(self, k: int | Tensor | Sizes, **options: Any) -> Tensor:
        """The inclusion probabilities: (items,).

        Args:
            k: how many items of each row.
            **options: of :func:`ksubset.marginals`.
        """
        return self._of_items(functional.marginals, k, (), **options)

    def simple(
        self, k: int | Tensor | Sizes, sample_shape: Sequence[int] = (), **options: Any
    ) -> Tensor:
        """Exact samples with SIMPLE's gradient: (*sample_shape, items).

        Args:
            k: how many items of each row.
            sample_shape: the leading shape of several samples.
            **options: of :func:`ksubset.simple`.
        """
        shape = tuple(sample_shape)
        return self._of_items(functional.simple, k, shape, sample_shape=shape, **options)

    def swap(
        self, k: int | Tensor | Sizes, sample_shape: Sequence[int] = (), **options: Any
    ) -> Tensor:
        """Exact samples with a gradient from single swaps: (*sample_shape, items).

        Args:
            k: how many items of each row.
            sample_shape: the leading shape of several samples.
            **options: of :func:`ksubset.swap`.
        """
        shape = tuple(sample_shape)
        return self._of_items(functional.swap, k, shape, sample_shape=shape, **options)

    def sample(
        self, k: int | Tensor | Sizes, sample_shape: Sequence[int] = (), **options: Any
    ) -> Tensor:
        """Exact samples without a gradient: (*sample_shape, items).

        Args:
            k: how many items of each row.
            sample_shape: the leading shape of several samples.
            **options: of :func:`ksubset.sample`.
        """
        shape = tuple(sample_shape)
        return self._of_items(functional.sample, k, shape, sample_shape=shape, **options)

    def mode(self, k: int | Tensor | Sizes, **options: Any) -> Tensor:
        """The most likely subset of each row: (items,).

        Args:
            k: how many items of each row.
            **options: of :func:`ksubset.mode`.
        """
        return self._of_items(functional.mode, k, (), **options)

    def covariance_product(self, k: int | Tensor | Sizes, v: Tensor, **options: Any) -> Tensor:
        """Cov v, row by row: (items,).

        Args:
            k: how many items of each row.
            v: (items,).
            **options: of :func:`ksubset.covariance_product`.
        """
        return self._of_items(functional.covariance_product, k, (), v=self._flat("v", v), **options)

    def log_prob(self, k: int | Tensor | Sizes, value: Tensor, **options: Any) -> Tensor:
        """The log-probability of each row's subset: (..., rows).

        Args:
            k: how many items of each row.
            value: 0/1, (..., items).
            **options: of :func:`ksubset.log_prob`.
        """
        value = self._flat("value", value)
        shape = value.shape[:-1]
        return self._of_rows(functional.log_prob, k, shape, value=value, **options)

    def log_partition(self, k: int | Tensor | Sizes, **options: Any) -> Tensor:
        """Each row's log-partition function: (rows,).

        Args:
            k: how many items of each row.
            **options: of :func:`ksubset.log_partition`.
        """
        return self._of_rows(functional.log_partition, k, (), **options)

    def entropy(self, k: int | Tensor | Sizes, **options: Any) -> Tensor:
        """Each row's entropy: (rows,).

        Args:
            k: how many items of each row.
            **options: of :func:`ksubset.entropy`.
        """
        return self._of_rows(functional.entropy, k, (), **options)

    def nested(self, flat: Tensor) -> Tensor:
        """A flat result (items,) as a jagged nested tensor (rows, *).

        Args:
            flat: (items,).
        """
        return torch.nested.nested_tensor_from_jagged(flat, self.offsets)

    def _flat(self, name: str, value: Tensor) -> Tensor:
        if isinstance(value, Tensor) and value.is_nested:
            value = value.values()
        if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[-1] != len(self.logits):
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{name} must have shape (..., items) with {len(self.logits)} items, got {shape}"
            )
        return value

    def _check(self, k: Any) -> None:
        """Raise for a k, or a least size, that a row has no items for."""
        least = k.low if isinstance(k, Between) else k
        if isinstance(least, Tensor):
            if least.dim() and least.shape != self._lengths.shape:
                raise ValueError(
                    f"k must be a number or have an entry for each of the {len(self._lengths)} "
                    f"rows, got shape {tuple(least.shape)}"
                )
            if not reads_values(least):
                return
        elif not isinstance(least, int):
            return
        bad = self._lengths < least
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"k must be at most the length of each row, got {k!r} with {int(bad.sum())} rows "
                f"that are shorter, the first of them row {row} with {int(self._lengths[row])}"
            )

    def _is_valid(self, k: Any) -> bool:
        """Whether rows of finite logits have subsets of these sizes, as far as can be seen at once;
        those of a k or of a least size beyond a row have been found by :meth:`_check`."""
        bounds = (k.low, 0 if k.high is None else k.high) if isinstance(k, Between) else (k,)
        for bound in bounds:
            if isinstance(bound, Tensor):
                whole = not (bound.is_floating_point() or bound.dtype == torch.bool)
                if not (whole and bound.numel() and reads_values(bound) and int(bound.min()) >= 0):
                    return False
            elif type(bound) is not int or bound < 0:
                return False
        if isinstance(k, Between) and isinstance(k.high, Tensor):
            return False
        if not reads_values(self.logits) or not plain_eager((self.logits,)):
            return False
        low, high = torch.aminmax(self.logits.detach())
        return math.isfinite(float(low)) and math.isfinite(float(high))

    def _parts(self, x: Tensor, fill: float) -> list[Tensor]:
        """Values of items (..., items) as rows (..., rows, width) of every group."""
        flat = _ToRows.apply(x, fill, self._layout)
        sizes = [len(group.rows) * group.width for group in self._groups]
        return [
            part.unflatten(-1, (len(group.rows), group.width))
            for part, group in zip(flat.split(sizes, -1), self._groups, strict=True)
        ]

    def _call(
        self, function: Callable[..., Tensor], k: Any, options: dict[str, Any]
    ) -> list[Tensor]:
        """A function of the rows of every group, padded with forbidden items."""
        self._check(k)
        if options.get("validate_args") is None and "value" not in options and self._is_valid(k):
            # All groups at once.
            options["validate_args"] = False
        rows = self._parts(self.logits, -torch.inf)
        own = {
            name: self._parts(options.pop(name), 0) for name in ("v", "value") if name in options
        }
        return [
            function(
                rows[i],
                _of_group(k, group),
                **options,
                **{name: parts[i] for name, parts in own.items()},
            )
            for i, group in enumerate(self._groups)
        ]

    def _of_items(
        self, function: Callable[..., Tensor], k: Any, shape: tuple[int, ...], **options: Any
    ) -> Tensor:
        if not self._groups:
            return self.logits.new_empty(*shape, 0)
        found = [part.flatten(-2) for part in self._call(function, k, options)]
        return _ToItems.apply(torch.cat(found, -1), self._layout)

    def _of_rows(
        self, function: Callable[..., Tensor], k: Any, shape: tuple[int, ...], **options: Any
    ) -> Tensor:
        if not self._groups:
            return self.logits.new_empty(*shape, 0)
        found = torch.cat(self._call(function, k, options), -1)
        return found[..., self._order]

    def __repr__(self) -> str:
        return f"Ragged({len(self.lengths)} rows, {len(self.logits)} items)"


class _Group(NamedTuple):
    """Rows of nearly the same length."""

    rows: Tensor
    width: int  # of the longest


class _Layout:
    """Where the items of rows are in the groups, each row padded to the width of its group."""

    def __init__(
        self, groups: list[_Group], lengths: Tensor, offsets: Tensor, device: torch.device
    ) -> None:
        rows = torch.cat([group.rows for group in groups])
        widths = torch.cat([torch.full_like(group.rows, group.width) for group in groups])
        self.starts, self.lengths = offsets[rows], lengths[rows]
        self.ends = torch.nn.functional.pad(widths.cumsum(0), (1, 0))
        self.room, self.items = int(self.ends[-1]), int(offsets[-1])
        self._device = device

    def kernels(self, x: Tensor) -> Any:
        """Those that copy whole rows of such values, or None."""
        plain = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        if not (plain and plain_eager((x,)) and are_compiled(x, "auto")):
            return None
        from ksubset.kernels.cpu import ragged

        return ragged

    @cached_property
    def place(self) -> Tensor:
        """The item of every place; where there is none, the one behind the last."""
        place = torch.full((self.room,), self.items)
        place[self._positions()] = self._items()
        return place.to(self._device)

    @cached_property
    def position(self) -> Tensor:
        """The place of every item."""
        position = torch.empty(self.items, dtype=torch.int64)
        position[self._items()] = self._positions()
        return position.to(self._device)

    def _items(self) -> Tensor:
        """Of the rows in the order of the groups."""
        return self._along(self.starts)

    def _positions(self) -> Tensor:
        return self._along(self.ends[:-1])

    def _along(self, first: Tensor) -> Tensor:
        """first, first + 1 ... of every row, for all its items."""
        before = self.lengths.cumsum(0) - self.lengths
        shift = (first - before).repeat_interleave(self.lengths)
        return shift + torch.arange(len(shift))


class _ToRows(torch.autograd.Function):
    """(..., items) -> (..., places): each place its item, or a value. A place has one item and an
    item one place, so that both directions only read: a sum over what shares an index is slow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, fill: float, layout: _Layout) -> Tensor:
        kernels = layout.kernels(x)
        if kernels is not None:
            rows = layout.starts, layout.lengths, layout.ends
            return kernels.spread(x, fill != 0, *rows, layout.room)
        return torch.nn.functional.pad(x, (0, 1), value=fill).index_select(-1, layout.place)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, ctx.layout = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ToItems.apply(grad, ctx.layout), None, None


class _ToItems(torch.autograd.Function):
    """(..., places) -> (..., items): the inverse, which leaves out what is no item."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, layout: _Layout) -> Tensor:
        kernels = layout.kernels(x)
        if kernels is not None:
            return kernels.collect(x, layout.starts, layout.lengths, layout.ends, layout.items)
        return x.index_select(-1, layout.position)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.layout = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ToRows.apply(grad, 0, ctx.layout), None


def _groups(lengths: Tensor) -> list[_Group]:
    if not len(lengths):
        return []
    ordered, rows = lengths.sort(stable=True)
    groups, first = [], 0
    while first < len(rows):
        longest = max(int(ordered[first] * _WASTE), _SHORT if int(ordered[first]) <= _SHORT else 0)
        last = int(torch.searchsorted(ordered, longest, right=True))
        groups.append(_Group(rows[first:last].sort().values, max(int(ordered[last - 1]), 1)))
        first = last
    return groups


def _of_group(k: Any, group: _Group) -> Any:
    """k, or sizes, of the rows of a group; sizes end where its rows end."""
    width = group.width
    if isinstance(k, Between):
        low, high = (_of_group(bound, group) for bound in (k.low, k.high))
        return Between(low, None if high is None else _at_most(high, width))
    if isinstance(k, Weighted):
        weights = k.log_weights
        if weights.dim() > 1:
            weights = weights[group.rows.to(weights.device)]
        if not k.given:
            weights = weights[..., : max(width - k.first + 1, 1)]
        return Weighted(k.first, weights, k.given, repr(k))
    return k[group.rows.to(k.device)] if isinstance(k, Tensor) and k.dim() else k


def _at_most(bound: Any, width: int) -> Any:
    return bound.clamp(max=width) if isinstance(bound, Tensor) else min(bound, width)


def _of_nested(nested: Tensor) -> tuple[Tensor, Tensor]:
    if nested.layout is not torch.jagged or nested.dim() != 2:
        raise TypeError(
            f"a nested tensor must have the jagged layout and the shape (rows, *), got "
            f"{nested.layout} with {nested.dim()} dimensions"
        )
    return nested.values(), cast("Any", nested).offsets()


def _of_batch(batch: Any, items: int, rows: int | None) -> Tensor:
    if not isinstance(batch, Tensor) or batch.is_floating_point() or batch.shape != (items,):
        shape = tuple(batch.shape) if isinstance(batch, Tensor) else type(batch).__name__
        raise ValueError(f"batch must have an integer for each of the {items} items, got {shape}")
    known = batch.cpu().long()
    if items and (bool((known.diff() < 0).any()) or int(known[0]) < 0):
        raise ValueError("batch must ascend from 0: items of a row stand together")
    last = int(known[-1]) + 1 if items else 0
    count = last if rows is None else operator.index(rows)
    if count < last:
        raise ValueError(f"rows must be at least {last}, the last row of batch, got {count}")
    return torch.nn.functional.pad(torch.bincount(known, minlength=count).cumsum(0), (1, 0))


def _checked(offsets: Any, items: int) -> Tensor:
    if not isinstance(offsets, Tensor) or offsets.is_floating_point() or offsets.dim() != 1:
        kind = tuple(offsets.shape) if isinstance(offsets, Tensor) else type(offsets).__name__
        raise TypeError(f"offsets must be integers (rows + 1,), got {kind}")
    ends = offsets.cpu().long()
    if not len(ends) or int(ends[0]) != 0 or int(ends[-1]) != items:
        raise ValueError(
            f"offsets must go from 0 to the number of items {items}, got "
            f"{[] if not len(ends) else [int(ends[0]), int(ends[-1])]}"
        )
    if bool((ends.diff() < 0).any()):
        row = int((ends.diff() < 0).nonzero()[0])
        raise ValueError(
            f"offsets must ascend, got {int(ends[row])} and then {int(ends[row + 1])} at row {row}"
        )
    return ends
