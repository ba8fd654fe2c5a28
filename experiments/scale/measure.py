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

_NUMBERS = 2**17  # of a batch, at most


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

    def metrics(self) -> tuple[Value, Value, Value, Value]:
        """Squared bias, variance, mean squared error and error in direction. The noise of the mean
        over draws, and of the truth, is taken out: a squared bias may be negative."""
        length, noise = self.truth.squared_length(), self.truth.squared_error
        draws = self.draws
        variance = ((self.squares - self.off.square() / draws) / (draws - 1)).sum(-1)
        bias = (self.off / draws).square().sum(-1) - variance / draws - noise
        error = self.squares.sum(-1) / draws - noise
        return (
            Value.over(bias / length),
            Value.over(variance / length),
            Value.over(error / length),
            Value.over(self.direction / draws),
        )


def measure(
    methods: Sequence[Method],
    problems: Problems,
    truth: Truth,
    rows: int,
    rounds: int,
    seed: int,
    advance: Callable[[], Any] = lambda: None,
) -> list[Result]:
    """All methods on the same problems, in turns and on one thread, in batches of so many rows (or
    fewer, where rows are long)."""
    count, n = problems.logits.shape
    draws = max(1, min(rows, _NUMBERS // n) // count)
    sums = {method.label: _Sums(truth) for method in methods}
    seconds: dict[str, list[float]] = {method.label: [] for method in methods}
    with one_thread():
        for turn in turns(methods, problems, draws, rounds, seed):
            sums[turn.method.label].add(turn.gradients)
            seconds[turn.method.label].append(turn.seconds)
            advance()
    times = relative(seconds)
    results = []
    for method in methods:
        bias, variance, error, direction = sums[method.label].metrics()
        losses, slopes = evaluations(method, problems)
        results.append(
            Result(
                method=method, loss=problems.name, n=n, k=problems.k,
                draws=sums[method.label].draws, squared_bias=bias, variance=variance,
                squared_error=error, direction=direction,
                microseconds=1e6 * median(seconds[method.label]) / (count * draws),
                time=times[method.label], losses=losses, gradients=slopes,
            )
        )  # fmt: skip
    return results


def evaluations(method: Method, problems: Problems) -> tuple[float, float]:
    """How often one gradient evaluates the loss, and its gradient."""
    counter = _Counter()

    def loss(z: Tensor) -> Tensor:
        return problems.loss(_Counting.apply(z, counter))

    counted = dataclasses.replace(problems, loss=loss)
    estimator = warm(dataclasses.replace(method, warm_up=1), counted)
    counter.losses = counter.gradients = 0
    gradients(method, estimator, counted, draws=1)
    rows = len(problems.logits)
    return counter.losses / rows, counter.gradients / rows


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
