"""Error and time of all methods on one set of problems, from the same batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.scale.problems import Truth
from experiments.synthetic.cost import one_thread, relative, turns
from experiments.synthetic.measure import gradients, warm
from experiments.synthetic.methods import Method
from experiments.synthetic.problems import Problems

_NUMBERS, _MOST_ROWS = 2**17, 4096  # of a batch


class Value(NamedTuple):
    """A mean over problems with its standard error."""

    mean: float
    error: float

    @classmethod
    def over(cls, problems: Tensor) -> Value:
        """Of a value for every problem."""
        values = problems.tolist()
        return cls(mean(values), stdev(values) / math.sqrt(len(values)))


@dataclasses.dataclass(frozen=True)
class Result:
    """One method on one loss at one size; errors are relative to |gradient|²."""

    method: Method
    loss: str
    n: int
    k: int
    draws: int  # gradients for every problem
    squared_bias: Value
    variance: Value
    squared_error: Value
    direction: Value  # mean of 1 − cos(gradient, exact)
    microseconds: float  # median, for one gradient with the evaluation of the loss
    time: float  # in units of SIMPLE's, median of the ratios within a round
    losses: float  # evaluations for one gradient
    gradients: float  # of the loss, likewise


class _Sums:
    """Running sums over draws of what is off the truth."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.draws = 0
        self.off = torch.zeros_like(truth.gradient)
        self.squares = torch.zeros_like(truth.gradient)
        self.direction = torch.zeros_like(truth.squared_error)

    def add(self, drawn: Tensor) -> None:
        """Gradients (problems, draws, n)."""
        exact = self.truth.gradient.unsqueeze(1)
        off = drawn.double() - exact
        self.draws += off.shape[1]
        self.off += off.sum(1)
        self.squares += off.square().sum(1)
        self.direction += (1 - torch.cosine_similarity(drawn.double(), exact, -1)).sum(1)

    def metrics(self) -> dict[str, Value]:
        """The noise of the mean over draws, and of the truth, is taken out: a squared bias may be
        negative."""
        length, noise = self.truth.squared_length(), self.truth.squared_error
        draws = self.draws
        variance = ((self.squares - self.off.square() / draws) / (draws - 1)).sum(-1)
        bias = (self.off / draws).square().sum(-1) - variance / draws - noise
        error = self.squares.sum(-1) / draws - noise
        return {
            "squared_bias": Value.over(bias / length),
            "variance": Value.over(variance / length),
            "squared_error": Value.over(error / length),
            "direction": Value.over(self.direction / draws),
        }


def measure(
    methods: Sequence[Method],
    problems: Problems,
    truth: Truth,
    rounds: int,
    seed: int,
    advance: Callable[[], Any] = lambda: None,
) -> list[Result]:
    """All methods on the same problems, in turns and on one thread."""
    count, n = problems.logits.shape
    draws = max(1, min(_MOST_ROWS, _NUMBERS // n) // count)
    sums = {method.label: _Sums(truth) for method in methods}
    seconds: dict[str, list[float]] = {method.label: [] for method in methods}
    with one_thread():
        for turn in turns(methods, problems, draws, rounds, seed):
            sums[turn.method.label].add(turn.gradients)
            seconds[turn.method.label].append(turn.seconds)
            advance()
    times = relative(seconds)
    return [
        Result(
            method, problems.name, n, problems.k, sums[method.label].draws,
            **sums[method.label].metrics(),
            microseconds=1e6 * median(seconds[method.label]) / (count * draws),
            time=times[method.label],
            **evaluations(method, problems),
        )
        for method in methods
    ]  # fmt: skip


def evaluations(method: Method, problems: Problems) -> dict[str, float]:
    """How often one gradient evaluates the loss, and its gradient."""
    counter = _Counter()

    def loss(z: Tensor) -> Tensor:
        return problems.loss(_Counting.apply(z, counter))

    counted = dataclasses.replace(problems, loss=loss)
    estimator = warm(dataclasses.replace(method, warm_up=1), counted)
    counter.losses = counter.gradients = 0
    gradients(method, estimator, counted, draws=1)
    rows = len(problems.logits)
    return {"losses": counter.losses / rows, "gradients": counter.gradients / rows}


@dataclasses.dataclass
class _Counter:
    losses: int = 0
    gradients: int = 0


class _Counting(torch.autograd.Function):
    """The identity, which counts the rows that pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, counter: _Counter) -> Tensor:
        ctx.counter = counter
        counter.losses += z[..., 0].numel()
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.counter.gradients += grad[..., 0].numel()
        return grad, None
