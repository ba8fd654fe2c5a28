"""What all estimators have in common: the interface, and how a loss is evaluated on samples."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ksubset._arguments import check_sample_shape, problem

Loss = Callable[[Tensor], Tensor]


class Estimator(nn.Module, abc.ABC):
    r"""An estimate of :math:`\nabla_\theta \mathrm{E}_{z \sim p_\theta} f(z)`.

    Estimators are modules so that those which learn something on the way (a step size, an average)
    keep it in buffers; most have none. A setting such as a temperature is a number, or a tensor
    that broadcasts over the rows (..., 1): every model of a stack can have its own.

    Logits are (..., n), and k and the mask broadcast with them: one k-subset for every row.

    Attributes:
        pathwise: whether samples carry a gradient: whether it is a :class:`Pathwise`.

    Examples:
        >>> cost = torch.tensor([3.0, 1.0, 1.0, 0.0])
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> estimator = estimators.create("simple")  # or "score", or "exact", or ...
        >>> loss = estimator.surrogate(lambda z: z @ cost, logits, 2, num_samples=8)
        >>> loss.backward()
        >>> logits.grad  # exact here: the loss is linear
        tensor([ 0.5833, -0.0833, -0.0833, -0.4167])
    """

    pathwise = False

    def _positive(self, name: str, value: float | Tensor) -> None:
        """Keep a setting above zero: a number, or a tensor that broadcasts over the rows."""
        values = value if isinstance(value, Tensor) else torch.tensor(float(value))
        if not bool((values > 0).all()) or not bool(values.isfinite().all()):
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
        if isinstance(value, Tensor):
            self.register_buffer(name, value)
        else:
            setattr(self, name, float(value))

    def extra_repr(self) -> str:
        """The settings, as they are given."""
        kept = vars(self) | self._buffers
        names = inspect.signature(type(self)).parameters
        return ", ".join(f"{name}={kept[name]!r}" for name in names if name in kept)

    @abc.abstractmethod
    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 1,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        """A scalar to call ``backward`` on: the loss summed over examples, averaged over samples.

        Its gradient with respect to the logits is the estimate; with respect to anything else
        inside ``loss_fn``, a decoder's parameters for instance, the usual Monte Carlo gradient.

        Args:
            loss_fn: takes z (*batch, n) and returns one loss per example. The shape of what it
                returns is a prefix of the batch shape: several rows may share a loss. It is called
                once for every sample.
            logits: (..., n); with k and mask they broadcast to the batch shape.
            k: an int, or integers broadcast over the batch.
            num_samples: how many samples are averaged over.
            mask: boolean, broadcast to the logits; False forbids an item.
            generator: the source of randomness; the same seed gives the same samples.
            vectorized: call ``loss_fn`` once, with z (num_samples, *batch, n); it returns a loss
                for every sample and example.

        Returns:
            A scalar.
        """


class Pathwise(Estimator):
    """An estimator whose samples carry a gradient, so that they can be used inside a network.

    Logits (..., n) become samples (*sample_shape, ..., n); ``surrogate`` is the loss of such
    samples.

    Examples:
        >>> logits = torch.zeros(3, 6, requires_grad=True)
        >>> decoder = torch.nn.Linear(6, 1)
        >>> z = estimators.create("reinmax").sample(logits, 2, (5,))
        >>> decoder(z).square().sum().backward()
        >>> z.shape, logits.grad.shape
        (torch.Size([5, 3, 6]), torch.Size([3, 6]))
    """

    pathwise = True

    @abc.abstractmethod
    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Samples with a gradient.

        Args:
            logits: (..., n); with k and mask they broadcast to the batch shape.
            k: an int, or integers broadcast over the batch.
            sample_shape: the leading shape of several samples per row.
            mask: boolean, broadcast to the logits; False forbids an item.
            generator: the source of randomness; the same seed gives the same samples.

        Returns:
            (*sample_shape, *batch, n): k-hot, but for relaxed estimators.
        """

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 1,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        check_samples(num_samples)
        z = self.sample(logits, k, (num_samples,), mask=mask, generator=generator)
        return evaluate(loss_fn, z, vectorized).sum() / num_samples


class RowWise(Pathwise):
    """A pathwise estimator that treats every sample as a row of its own."""

    @abc.abstractmethod
    def draw(
        self, rows: Tensor, k: int | Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """A sample of every row (..., n), masked items at -inf, with a gradient."""

    def sample(
        self,
        logits: Tensor,
        k: int | Tensor,
        sample_shape: Sequence[int] = (),
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        rows = batch_logits(logits, k, mask)
        if isinstance(k, int) and k > 0:
            return self.draw(
                rows.expand(*check_sample_shape(sample_shape), *rows.shape), k, generator
            )
        # Where nothing is allowed, nothing is drawn, and there is nothing to normalise.
        empty = (rows == -torch.inf).all(-1, keepdim=True)
        rows = rows.masked_fill(empty, 0)
        shape = (*check_sample_shape(sample_shape), *rows.shape)
        drawn = self.draw(rows.expand(shape), k, generator)
        return drawn.masked_fill(empty, 0)


def check_samples(num_samples: int, least: int = 1) -> None:
    """Raise for too few."""
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < least:
        raise ValueError(f"num_samples must be an int of at least {least}, got {num_samples!r}")


def evaluate(loss_fn: Loss, z: Tensor, vectorized: bool) -> Tensor:
    """The losses (samples, *examples) of samples z (samples, *batch, n): booleans and integers as
    numbers of z's type."""
    losses = loss_fn(z) if vectorized else torch.stack([_checked(loss_fn(x)) for x in z.unbind()])
    _checked(losses)
    shape, batch = tuple(losses.shape), tuple(z.shape[:-1])
    if shape != batch[: len(shape)] or not shape:
        wanted = batch if vectorized else batch[1:]
        raise ValueError(
            f"loss_fn must return losses whose shape is a prefix of {wanted}, "
            f"got shape {shape if vectorized else shape[1:]}"
        )
    return losses if losses.is_floating_point() else losses.to(z.dtype)


def _checked(losses: Tensor) -> Tensor:
    if not isinstance(losses, Tensor):
        raise TypeError(f"loss_fn must return a tensor, got {type(losses).__name__}")
    return losses


def with_gradient(loss_fn: Loss, z: Tensor, vectorized: bool) -> tuple[Tensor, Tensor]:
    """The losses and their gradient in z; zeros for a loss that does not depend on z."""
    at = z.detach().requires_grad_()
    with torch.enable_grad():
        losses = evaluate(loss_fn, at, vectorized)
    if not losses.requires_grad:
        return losses, torch.zeros_like(z)
    (gradient,) = torch.autograd.grad(
        losses.sum(), at, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return losses, gradient


def over_groups(values: Tensor, losses: Tensor) -> Tensor:
    """Values of rows (samples, *batch) added up over those that share a loss."""
    if values.shape == losses.shape:
        return values
    return values.reshape(*losses.shape, -1).sum(-1)


def like(setting: float | Tensor, rows: Tensor) -> float | Tensor:
    """A setting in the type and on the device of the rows (..., n); raises unless it broadcasts
    over them: one value for all items of a row, and no more rows than there are."""
    if not isinstance(setting, Tensor):
        return setting
    shape = tuple(setting.shape)
    sizes = zip(reversed(shape), reversed(rows.shape), strict=False)
    fits = len(shape) <= rows.dim() and all(size in (1, row) for size, row in sizes)
    if not fits or (shape and shape[-1] != 1):
        raise ValueError(
            f"a setting that is a tensor must broadcast over rows, as (..., 1) does: "
            f"the rows have the shape {tuple(rows.shape)}, it has {shape}"
        )
    return setting.to(rows)


def only_gradient(x: Tensor) -> Tensor:
    """Zero, with the gradient of x."""
    return x - x.detach()


def batch_logits(logits: Tensor, k: int | Tensor, mask: Tensor | None) -> Tensor:
    """The logits in the batch shape, with -inf where the mask forbids."""
    given = problem(logits, k, mask)
    if mask is not None:
        logits = torch.where(mask, logits, -torch.inf)
    return logits.expand(*given.batch_shape, given.n)
