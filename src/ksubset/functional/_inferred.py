"""One pass of inference over the rows, and the quantities that are read from it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset._arguments import Problem, check_dense, check_device, check_indices, check_support
from ksubset.functional import _primitives
from ksubset.functional._attach import attach
from ksubset.kernels.coins import can_synchronise, log_outcome, wide_sum

__all__ = ["Inferred", "Kept", "infer"]


class Inferred(NamedTuple):
    """The results for all rows of a problem."""

    given: Problem
    method: str
    total: Tensor  # (rows,): the log-partition over the finite logits
    mu: Tensor  # (rows, n): the marginals
    tilted: Tensor  # (rows, n)
    log_mass: Tensor  # (rows,): log P(S = k) of the tilted coins
    shift: Tensor  # (rows,): the tilt's

    def marginals(self) -> Tensor:
        """(..., n), in the type of the logits."""
        return self.given.vector(self.mu)

    def log_partition(self) -> Tensor:
        """(...), +inf where an item is forced."""
        forced = (self.given.logits == torch.inf).any(-1) & ~self.total.isnan()
        value = torch.where(forced, torch.inf, self.total)
        return self.given.scalar(attach(value, self.total))

    def log_prob(self, value: Tensor, validate: bool) -> Tensor:
        """Of k-hot vectors (..., n): (...)."""
        given = self.given
        _check_batch("value", value, "n", given.n, given)
        z = value.detach().to(self.tilted.dtype)
        if validate:
            check_support(value, ((z == 0) | (z == 1)).all(-1), given.k.reshape(given.batch_shape))
        known: list[Any] = [self.tilted, self.mu, self.log_mass, given.size]
        shape = z.shape[:-1]
        if shape != given.batch_shape:
            shape = torch.broadcast_shapes(shape, given.batch_shape)
        samples = shape[: len(shape) - len(given.batch_shape)]
        if shape != (*samples, *given.batch_shape):  # rows have several values side by side
            samples = torch.Size()
            known = [_repeated(x, given.batch_shape, shape) for x in known]
        z = z.expand(*shape, given.n).reshape(math.prod(samples), *known[0].shape)
        return _primitives.log_outcome(*known, z, self.method).reshape(shape)

    def log_prob_indices(self, k: int, indices: Tensor, validate: bool) -> Tensor:
        """Of sets of k indices (..., k), in any order: (...).

        The sum over n items is taken once per row, for its most likely subset; what a set has in
        place of that subset's items is a sum over k. (All tails, plus what the chosen items change:
        that sum over k would be shorter, but a difference of large numbers.)
        """
        given, n = self.given, self.given.n
        _check_batch("indices", indices, "k", k, given)
        if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
            raise TypeError(f"indices must be an integer tensor, got {indices.dtype}")
        check_device("indices", indices, given.logits)
        index = indices.detach().to(torch.int64).sort(-1).values
        if validate:
            check_indices(index, n)
        outside = ((index < 0) | (index >= n)).any(-1)
        outside = outside | (index[..., 1:] == index[..., :-1]).any(-1)
        rows = torch.arange(given.logits.shape[0], device=index.device)
        place = index.clamp(0, n - 1) + n * rows.reshape(*given.batch_shape, 1)

        def chosen(x: Tensor) -> Tensor:  # of (rows, n): a gradient of no more than that size
            return x.reshape(-1).index_select(0, place.reshape(-1)).reshape(place.shape)

        t = self.tilted.detach()
        theta = torch.where(given.logits.isfinite(), given.logits, 0)
        top = t.topk(k).indices
        rank = torch.arange(k, device=top.device).expand_as(top)
        rank = torch.full_like(t, k, dtype=torch.int64).scatter(1, top, rank)
        exact = log_outcome(t, rank < k) - self.log_mass

        held = chosen(rank)  # k: not of the most likely subset
        missing = torch.ones((*place.shape[:-1], k + 1), dtype=torch.bool, device=place.device)
        missing = missing.scatter(-1, held, torch.zeros_like(held, dtype=torch.bool))[..., :k]
        gained = torch.where(held == k, chosen(t), 0)
        lost = t.gather(1, top).reshape(*given.batch_shape, k)
        lost = torch.where(missing, lost, 0)
        exact = exact.reshape(given.batch_shape) + wide_sum(gained) - wide_sum(lost)
        exact = torch.where(outside & ~exact.isnan(), -torch.inf, exact)
        surrogate = chosen(theta).sum(-1) - given.scalar(self.total)
        return attach(exact.to(surrogate.dtype), surrogate)


def _repeated(rows: Tensor | int, batch_shape: torch.Size, shape: torch.Size) -> Any:
    """Rows (rows, ...) of a batch, as those of a larger one that it broadcasts to."""
    if isinstance(rows, int):
        return rows
    own = rows.shape[1:]
    return rows.reshape(*batch_shape, *own).expand(*shape, *own).reshape(-1, *own)


def _check_batch(name: str, value: Any, last: str, size: int, given: Problem) -> None:
    """Raise unless ``value`` is a tensor (..., size) whose batch broadcasts with the rows'."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    check_dense(name, value)
    if value.dim() == 0 or value.shape[-1] != size:
        raise ValueError(
            f"{name} must have shape (..., {last}) with {last} = {size}, got {tuple(value.shape)}"
        )
    if value.shape[:-1] == given.batch_shape:  # which takes less time to see
        return
    try:
        torch.broadcast_shapes(value.shape[:-1], given.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"the batch shape of {name}, {tuple(value.shape[:-1])}, must broadcast with that of "
            f"the logits and k, {tuple(given.batch_shape)}"
        ) from None


def infer(given: Problem, method: str) -> Inferred:
    """Infer from the rows."""
    return Inferred(given, method, *_primitives.infer(given.logits, given.size, method))


class _Record(NamedTuple):
    tensors: tuple[Tensor, ...]
    state: tuple[Any, ...]
    known: _primitives.Known


class Kept:
    """The numbers of one pass of inference, kept for an object for as long as its tensors are the
    same and nobody has written to them.

    Numbers only: every call has a node of its own in the graph, with copies of them, so that a
    backward pass frees nothing that another needs, and no result can be written to through another.
    A copy of the object, or one from a pickle, starts anew.
    """

    def __init__(self) -> None:
        self._record: _Record | None = None

    def __reduce__(self) -> Any:
        return Kept, ()

    def infer(self, given: Problem, method: str, *tensors: Tensor) -> Inferred:
        """:func:`infer`, for what is given by these tensors."""
        if not all(map(_may_be_kept, tensors)):
            return infer(given, method)
        theta = given.logits
        record, state = self._record, (method, *map(_state, tensors))
        if (
            record is None
            or record.state != state
            or any(a is not b for a, b in zip(record.tensors, tensors, strict=True))
        ):
            known = _primitives.know(theta, given.size, method)
            self._record = record = _Record(tensors, state, known)
        known = _primitives.infer_known(theta, given.size, method, record.known)
        return Inferred(given, method, *known)


def _may_be_kept(tensor: Tensor) -> bool:
    """Not what a compiler or a transform is looking at, nor what tells nothing of being written to:
    a graph's memory (capturing), a tensor of inference mode, and parameters, which a fused
    optimiser changes uncounted."""
    if not _primitives.plain_eager((tensor,)) or tensor.is_inference():
        return False
    base = tensor if tensor._base is None else tensor._base
    return not (base.requires_grad and base.is_leaf) and can_synchronise(tensor)


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """Differs after a write, and where another stream may not have seen the results yet."""
    stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
    return tensor._version, tensor.data_ptr(), stream
