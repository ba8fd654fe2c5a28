"""Training an explainer: on labels, or on what a black box says."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from ksubset.explain.explainer import Criterion, KSubsetExplainer, losses


@dataclass
class FitHistory:
    """Mean losses of every epoch, and the epoch whose weights were kept.

    Attributes:
        training: with random choices, as it was trained; of an honest explainer with the
            predictor's lessons added. One number for every epoch.
        validation: with the most likely choices, on examples held out; NaN without any. One number
            for every epoch.
        best_epoch: counted from 1.

    Examples:
        >>> from ksubset.explain import FitHistory
        >>> history = FitHistory([3.0, 2.0, 1.0], [3.0, 2.0, 2.5], best_epoch=2)
        >>> history.validation[history.best_epoch - 1]  # the weights that were kept
        2.0
    """

    training: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    best_epoch: int = 0


def squared_error(prediction: Tensor, y: Tensor) -> Tensor:
    """(batch,), averaged over outputs."""
    if prediction.shape != y.shape:
        if prediction.shape != (*y.shape, 1):
            raise ValueError(
                f"predictions {tuple(prediction.shape)} and outcomes {tuple(y.shape)} must have "
                "the same shape"
            )
        prediction = prediction.squeeze(-1)
    losses = (prediction - y).square()
    return losses.reshape(len(losses), -1).mean(-1) if losses.dim() > 1 else losses


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """(batch,), of logits with classes or with probabilities of classes."""
    return F.cross_entropy(prediction, y, reduction="none")


CRITERIA: dict[str, Criterion] = {"mse": squared_error, "cross_entropy": cross_entropy}


def fit(
    explainer: KSubsetExplainer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    model: Callable[[Tensor], Any] | None = None,
    mask: Tensor | None = None,
    k: int | Tensor | None = None,
    loss: str | Criterion = "mse",
    epochs: int = 20,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    decay: bool = False,
    clip: float | None = None,
    validation: float = 0.1,
    seed: int = 0,
    on_epoch: Callable[[int, float, float], None] | None = None,
) -> FitHistory:
    """Train scorer and predictor end to end with Adam, and keep the weights of the epoch with the
    smallest validation loss. If it fails or diverges, the best weights so far are put back.

    Args:
        explainer: is trained in place.
        x: inputs (examples, ...).
        y: outcomes (examples, ...); or, instead, a model.
        model: what is to be explained: its outputs, a tensor or an array, are the outcomes. The
            inputs are given to it in batches; :func:`from_numpy` makes one of a function of arrays,
            such as scikit-learn's ``predict_proba``.
        mask: (examples, n), False for what must not be chosen.
        k: another one than the explainer's, or (examples,), of every example its own.
        loss: "mse"; "cross_entropy", for classes or for probabilities of them; or a function of
            predictions and outcomes that returns (batch,).
        epochs: how often every example is seen.
        batch_size: how many examples a step of Adam sees.
        learning_rate: Adam's.
        decay: let the learning rate fall to zero over all steps, along half a cosine.
        clip: the largest norm of a gradient.
        validation: the share of examples held out, drawn at random, at least one; 0 keeps the last
            epoch.
        seed: of the split, the order of examples and the samples; not of weights and dropout.
        on_epoch: is told epoch, training and validation loss.

    Returns:
        The losses of every epoch.

    Examples:
        >>> from ksubset.explain import KSubsetExplainer, MaskedInput, fit
        >>> x = torch.randn(200, 6)
        >>> net = torch.nn.Linear(6, 1)
        >>> explainer = KSubsetExplainer(torch.nn.Linear(6, 6), MaskedInput(net), k=2)
        >>> history = fit(explainer, x, x[:, 0] - x[:, 3], epochs=2)
        >>> len(history.validation)
        2
    """
    _check_numbers(epochs, batch_size, seed, validation, clip)
    criterion = _criterion(loss)
    outcomes = _outcomes(x, y, model, batch_size)
    counts = torch.full((len(x),), k, device=x.device) if type(k) is int else k
    for name, value, kind in (
        ("mask", mask, "a tensor"),
        ("k", counts, "an int or a tensor of them"),
    ):
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be {kind}, got {type(value).__name__}")
        if value.dim() == 0 or len(value) != len(x):
            raise ValueError(f"{name} must be of {len(x)} examples, got {tuple(value.shape)}")
    generator = torch.Generator(x.device).manual_seed(seed)
    order = torch.randperm(len(x), generator=generator, device=x.device)
    held_out = max(round(validation * len(x)), 1) if validation else 0
    kept, trained = order[:held_out], order[held_out:]
    if not len(trained):
        raise ValueError(f"no examples to learn from: {len(x)} examples, {held_out} held out")

    def part(rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return (
            x[rows], outcomes[rows], None if mask is None else mask[rows],
            counts[rows] if isinstance(counts, Tensor) else None,
        )  # fmt: skip

    optimizer = torch.optim.Adam(explainer.parameters(), lr=learning_rate)
    steps = epochs * math.ceil(len(trained) / batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if decay else None
    history, best = FitHistory(), math.inf
    weights = None
    try:
        for epoch in range(1, epochs + 1):
            explainer.train()
            total = 0.0
            mixed = trained[torch.randperm(len(trained), generator=generator, device=x.device)]
            for rows in mixed.split(batch_size):
                inputs, wanted, allowed, count = part(rows)
                optimizer.zero_grad(set_to_none=True)
                value = explainer.loss(
                    inputs, wanted, criterion, mask=allowed, k=count, generator=generator
                )
                if not math.isfinite(float(value.detach())):
                    raise FloatingPointError(
                        f"training diverged in epoch {epoch}: loss {float(value.detach())}"
                        + _nothing_allowed(mask)
                    )
                value.backward()
                if clip is not None:
                    torch.nn.utils.clip_grad_norm_(explainer.parameters(), clip)
                optimizer.step()
                if schedule is not None:
                    schedule.step()
                total += float(value.detach()) * len(rows)
            history.training.append(total / len(trained))
            found = _validate(explainer, kept, part, criterion, batch_size)
            history.validation.append(found)
            if on_epoch is not None:
                on_epoch(epoch, history.training[-1], found)
            if found < best or not held_out:
                best, history.best_epoch = found, epoch
                weights = copy.deepcopy(explainer.state_dict()) if held_out else None
        if held_out and weights is None:
            raise FloatingPointError(
                f"no epoch had a finite validation loss: {history.validation}"
                + _nothing_allowed(mask)
            )
    finally:
        if weights is not None:
            explainer.load_state_dict(weights)
        explainer.eval()
    return history


def from_numpy(function: Callable[[npt.NDArray[Any]], Any]) -> Callable[[Tensor], Tensor]:
    """A function of tensors, from one of NumPy arrays.

    Args:
        function: takes an array (batch, ...) and returns one, as ``predict_proba`` does.

    Returns:
        The same for tensors on any device. What it returns has their type if it is real, or
        PyTorch's for labels.

    Examples:
        >>> import numpy as np
        >>> from ksubset.explain import from_numpy
        >>> model = from_numpy(lambda x: 1 / (1 + np.exp(-x @ np.ones(3))))
        >>> model(torch.zeros(2, 3))
        tensor([0.5000, 0.5000])
    """

    def model(x: Tensor) -> Tensor:
        return _tensor(function(x.detach().cpu().numpy()), x)

    return model


def _tensor(found: Any, x: Tensor) -> Tensor:
    """On the device of x, and of its type if both are real."""
    found = torch.as_tensor(found, device=x.device)
    alike = found.is_floating_point() and x.is_floating_point()
    return found.to(x.dtype) if alike else found


def _nothing_allowed(mask: Tensor | None) -> str:
    """What may be the reason, for a message."""
    if mask is None:
        return ""
    empty = (~mask.any(-1)).nonzero()[:, 0].tolist()
    if not empty:
        return ""
    return (
        f"; mask allows nothing in {len(empty)} examples, the first is {empty[0]}: with nothing "
        "chosen, a mean over what is chosen is 0 / 0"
    )


def _check_numbers(
    epochs: int, batch_size: int, seed: int, validation: float, clip: float | None
) -> None:
    for name, value, least in (
        ("epochs", epochs, 1),
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be in [0, 1), got {validation!r}")
    if clip is not None and not 0 < clip < math.inf:
        raise ValueError(f"clip must be positive, or None, got {clip!r}")


@torch.no_grad()
def _validate(
    explainer: KSubsetExplainer,
    kept: Tensor,
    part: Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None, Tensor | None]],
    criterion: Criterion,
    batch_size: int,
) -> float:
    """NaN without examples."""
    if not len(kept):
        return math.nan
    explainer.eval()
    total = 0.0
    for rows in kept.split(batch_size):
        inputs, wanted, allowed, counts = part(rows)
        predictions = explainer(inputs, mask=allowed, k=counts)
        total += float(losses(criterion, predictions, wanted).sum())
    return total / len(kept)


def _criterion(loss: str | Criterion) -> Criterion:
    if not isinstance(loss, str):
        if not callable(loss):
            raise TypeError(f"loss must be a name or a function, got {loss!r}")
        return loss
    if loss not in CRITERIA:
        raise ValueError(f"loss must be one of {', '.join(CRITERIA)} or a function, got {loss!r}")
    return CRITERIA[loss]


@torch.no_grad()
def _outcomes(
    x: Tensor, y: Tensor | None, model: Callable[[Tensor], Any] | None, batch_size: int
) -> Tensor:
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise TypeError(f"x must be a tensor (examples, ...), got {type(x).__name__}")
    if (y is None) == (model is None):
        raise ValueError("either y or model must be given")
    if y is not None:
        if not isinstance(y, Tensor) or y.dim() == 0:
            raise TypeError(f"y must be a tensor (examples, ...), got {type(y).__name__}")
        if len(y) != len(x):
            raise ValueError(f"y must be of {len(x)} examples, got {len(y)}")
        return y
    if not callable(model):
        raise TypeError(f"model must be a function of inputs, got {model!r}")
    parts = []
    for part in x.split(batch_size):
        said = model(part)
        parts.append(said if isinstance(said, Tensor) else _tensor(said, x))
    found = torch.cat(parts)
    if len(found) != len(x):
        raise ValueError(
            f"model must return {len(x)} outcomes for as many inputs, got {len(found)}"
        )
    return found
