"""One check of arguments for the whole library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset import _checks
from ksubset._checks import Names, k_out_of_range
from ksubset.kernels import METHODS, counts


class Problem(NamedTuple):
    """A batch of k-subset distributions as the primitives take it."""

    logits: Tensor  # (rows, n), float32 or float64, masked items at -inf
    size: Tensor | int  # k: each row's, (rows,), int64, or the same for all
    batch_shape: torch.Size
    dtype: torch.dtype  # the user's, for vectors

    @property
    def k(self) -> Tensor:
        """Each row's."""
        return self.size if isinstance(self.size, Tensor) else counts(self.logits, self.size)

    @property
    def n(self) -> int:
        return self.logits.shape[-1]

    def vector(self, rows: Tensor) -> Tensor:
        """(..., rows, n) in the shape and type the user expects."""
        if len(self.batch_shape) != 1:  # a view would cost a node of the graph
            rows = rows.reshape(*rows.shape[:-2], *self.batch_shape, self.n)
        return rows.to(self.dtype)

    def scalar(self, rows: Tensor) -> Tensor:
        """(rows,) likewise; half precision gives float32."""
        if len(self.batch_shape) != 1:
            rows = rows.reshape(self.batch_shape)
        return rows.to(self.logits.dtype)

    def rows(self, name: str, value: Tensor) -> Tensor:
        """A tensor of the user's, broadcast to (rows, n)."""
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
        check_dense(name, value)
        check_device(name, value, self.logits)
        shape = (*self.batch_shape, self.n)
        try:
            value = value.to(self.logits.dtype).expand(shape)
        except RuntimeError:
            raise ValueError(
                f"{name} must broadcast to the shape {tuple(shape)} of the logits with k, "
                f"got shape {tuple(value.shape)}"
            ) from None
        return value.reshape(self.logits.shape)


_NAMES = Names()


def problem(
    logits: Tensor,
    k: int | Tensor,
    mask: Tensor | None = None,
    *,
    names: Names = _NAMES,
    more: Mapping[str, tuple[int, ...]] | None = None,
    validate_args: bool | None = None,
) -> Problem:
    """Check, broadcast and flatten.

    Args:
        more: further batch shapes to broadcast with, by argument.
        validate_args: whether to check values, which reads them. By default on eager CPU
            tensors only.
    """
    check_logits(names.logits, logits)
    n = logits.shape[-1]
    if _is_simple(logits, k, mask, more):
        return _simple_problem(logits, k, names, validate_args)
    sizes = _sizes(k, n, logits, names.k)
    shapes: dict[str, tuple[int, ...]] = {names.logits: logits.shape[:-1], names.k: ()}
    if isinstance(sizes, Tensor):
        shapes[names.k] = sizes.shape
    if mask is not None:
        _check_mask(mask, logits, names.mask)
        shapes[names.mask] = mask.shape[:-1]
    shapes |= more or {}
    try:
        batch_shape = torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"the batch shapes of the arguments must broadcast: {listed}") from None

    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    if mask is not None:
        wide = torch.where(mask, wide, -torch.inf)
    rows = math.prod(batch_shape)
    result = Problem(
        wide.expand(*batch_shape, n).reshape(rows, n),
        sizes.expand(batch_shape).reshape(rows) if isinstance(sizes, Tensor) else sizes,
        batch_shape,
        logits.dtype,
    )
    if reads_values(logits) if validate_args is None else validate_args:
        check_values(result, names)
    return result


def _is_simple(logits: Tensor, k: Any, mask: Any, more: Any) -> bool:
    return (
        type(k) is int
        and mask is None
        and not more
        and logits.dtype in (torch.float32, torch.float64)
        and values_can_be_read()
    )


def _simple_problem(logits: Tensor, k: Any, names: Names, validate_args: bool | None) -> Problem:
    """The same without broadcasting: on a GPU, every small operation saved counts."""
    n, batch_shape = logits.shape[-1], logits.shape[:-1]
    if not 0 <= k <= n:
        raise ValueError(k_out_of_range(names.k, n, k))
    rows = math.prod(batch_shape)
    flat = logits if logits.dim() == 2 else logits.reshape(rows, n)
    result = Problem(flat, k, batch_shape, logits.dtype)
    if reads_values(logits) if validate_args is None else validate_args:
        check_values(result, names)
    return result


# Not those of 8 bits: some have no infinity to forbid an item with, one has no zero.
FLOATING_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_logits(name: str, logits: Any) -> None:
    """Raise unless logits is a floating point tensor of shape (..., n)."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(logits).__name__}")
    check_dense(name, logits)
    if logits.dtype not in FLOATING_TYPES:
        raise TypeError(f"{name} must be float16, bfloat16, float32 or float64, got {logits.dtype}")
    if logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"{name} must have shape (..., n) with n >= 1, got shape {tuple(logits.shape)}"
        )


def check_dense(name: str, tensor: Tensor) -> None:
    """Raise for nested and sparse tensors."""
    if tensor.is_nested:
        raise TypeError(
            f"{name} must be a dense tensor, got a nested one: pad it, and mask the padding"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got one of layout {tensor.layout}")


def check_device(name: str, tensor: Tensor, logits: Tensor) -> None:
    """Kernels take addresses, and nobody else asks where they point to."""
    if tensor.device != logits.device:
        raise ValueError(
            f"{name} must be on the device of the logits, {logits.device}, got {tensor.device}"
        )


def _sizes(k: int | Tensor, n: int, logits: Tensor, name: str) -> Tensor | int:
    if isinstance(k, Tensor):
        check_dense(name, k)
        if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
            raise TypeError(
                f"{name} must be an int or an integer tensor, got a tensor of {k.dtype}"
            )
        return k.to(device=logits.device, dtype=torch.int64)
    try:
        k = integer(k)
    except TypeError:
        raise TypeError(f"{name} must be an int or an integer tensor, got {k!r}") from None
    if not 0 <= k <= n:
        raise ValueError(k_out_of_range(name, n, k))
    return k


def _check_mask(mask: Any, logits: Tensor, name: str) -> None:
    n = logits.shape[-1]
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(mask).__name__}")
    check_dense(name, mask)
    check_device(name, mask, logits)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} must be boolean (True: may be chosen), got {mask.dtype}")
    if mask.dim() == 0 or mask.shape[-1] not in (1, n):
        raise ValueError(
            f"{name} must have shape (..., n) with n = {n} items, got shape {tuple(mask.shape)}"
        )


def reads_values(tensor: Tensor) -> bool:
    """Whether values are checked without being asked for: where that costs no synchronisation."""
    return tensor.device.type == "cpu" and values_can_be_read()


def values_can_be_read() -> bool:
    """Not while compiling or tracing, in a torch.func transform or under a dispatch mode (fake
    tensors)."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
    )


def check_values(checked: Problem, names: Names = _NAMES) -> None:
    """Raise for NaN logits and for a k that no subset of the allowed items has."""
    logits, k = checked.logits.detach(), checked.k
    if logits.is_meta:
        return
    low, high = _extremes(logits)
    if math.isnan(low):
        bad = logits.isnan().any(-1)
        raise ValueError(f"{names.logits} must not be NaN, got NaN in {_where(bad, checked)}")
    if low == -math.inf or not _all_within(k, logits.shape[-1]):
        allowed = (logits > -torch.inf).sum(-1)
        bad = (k < 0) | (k > allowed)
        if bool(bad.any()):
            row = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"{names.k} must be between 0 and the number of allowed items, "
                f"{int(allowed[row])}, got {int(k[row])} in {_where(bad, checked)}"
            )
    if high == math.inf:
        forced = (logits == torch.inf).sum(-1)
        bad = k < forced
        if bool(bad.any()):
            row = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"{names.k} must be at least the number of items with a logit of +inf, "
                f"{int(forced[row])}, got {int(k[row])} in {_where(bad, checked)}"
            )


def _extremes(logits: Tensor) -> tuple[float, float]:
    """The smallest and the largest, NaN if there is any: most often all there is to look at."""
    if logits.numel() == 0:
        return 0.0, 0.0
    low, high = torch.aminmax(logits)
    return float(low), float(high)


def _all_within(k: Tensor, n: int) -> bool:
    if k.numel() == 0:
        return True
    low, high = torch.aminmax(k)
    return int(low) >= 0 and int(high) <= n


def _where(bad: Tensor, checked: Problem) -> str:
    if not checked.batch_shape:
        return "the only row"
    row = torch.unravel_index(bad.nonzero()[0, 0], checked.batch_shape)
    return f"row {tuple(int(i) for i in row)} ({int(bad.sum())} of {bad.numel()} rows)"


def check_support(value: Tensor, binary: Tensor, k: Tensor) -> None:
    """Raise unless every vector of ``value`` is k-hot; ``binary`` says which are 0/1."""
    if not bool(binary.all()):
        raise ValueError("value must be k-hot: its entries must be 0 or 1, got other entries")
    ones = (value != 0).sum(-1)
    bad = ones != k
    if bool(bad.any()):
        row = int(bad.flatten().nonzero()[0, 0])
        raise ValueError(
            f"value must be k-hot with k = {int(k.expand_as(bad).flatten()[row])} ones, "
            f"got {int(ones.expand_as(bad).flatten()[row])}"
        )


def check_indices(index: Tensor, n: int) -> None:
    """Raise unless every set of indices, in ascending order, is one of different items."""
    outside = (index < 0) | (index >= n)
    if bool(outside.any()):
        raise ValueError(
            f"indices must be between 0 and n - 1 = {n - 1}, got {int(index[outside][0])}"
        )
    twice = index[..., 1:] == index[..., :-1]
    if bool(twice.any()):
        raise ValueError(
            f"indices must be different in each set, got {int(index[..., 1:][twice][0])} twice"
        )


def check_sample_shape(sample_shape: Any) -> tuple[int, ...]:
    """The sizes as integers of Python's (or of the compiler's)."""
    return _checks.check_sample_shape(sample_shape, integer)


def integer(value: Any) -> int:
    """Raise a TypeError for what is not an integer of any type."""
    known: Any = value if isinstance(value, torch.SymInt) else _checks.integer(value)
    return known


def check_method(method: str) -> None:
    if not isinstance(method, str) or (method != "auto" and method not in METHODS):
        names = ", ".join(repr(name) for name in ("auto", *METHODS))
        raise ValueError(f"method must be one of {names}, got {method!r}")
