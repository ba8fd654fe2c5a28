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
    noise: float  # of the mean squared bias, from draws: a standard error
    variance: Value
    squared_error: Value
    direction: Value  # mean of 1 − cos(gradient, exact)
    microseconds: float  # median, for one gradient with the evaluation of the loss
    time: float  # in units of SIMPLE's, median of the ratios within a round
    losses: float  # evaluations for one gradient
    gradients: float  # of the loss, likewise


class _Sums:
    """Sums over draws of what is off the truth: of each round, or running."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.draws = 0
        self.off: list[Tensor] = []  # means of the rounds, (problems, n)
        self.squares = torch.zeros_like(truth.gradient)
        self.direction = torch.zeros_like(truth.squared_error)

    def add(self, drawn: Tensor) -> None:
        """Gradients (problems, draws, n) of a round."""
        exact = self.truth.gradient.unsqueeze(1)
        off = drawn.double() - exact
        self.draws += off.shape[1]
        self.off.append(off.mean(1))
        self.squares += off.square().sum(1)
        self.direction += (1 - torch.cosine_similarity(drawn.double(), exact, -1)).sum(1)

    def squared_bias(self) -> tuple[Tensor, float]:
        """For every problem, the mean inner product of different rounds' means, which has no noise
        of its own on average and may be negative; and the standard error of its mean over problems,
        by the jackknife over rounds."""
        rounds = torch.stack(self.off)
        count, length = len(rounds), self.truth.squared_length()

        def products(whole: Tensor, squares: Tensor, count: int) -> Tensor:
            found = (whole.square().sum(-1) - squares) / (count * (count - 1))
            return (found - self.truth.squared_error) / length

        whole, squares = rounds.sum(0), rounds.square().sum(-1)
        without = products(whole - rounds, squares.sum(0) - squares, count - 1).mean(-1)
        noise = ((count - 1) * without.var(correction=0)).sqrt().item()
        return products(whole, squares.sum(0), count), noise

    def metrics(self) -> dict[str, Tensor]:
        """For every problem; the noise of the truth is taken out."""
        length = self.truth.squared_length()
        mean = torch.stack(self.off).mean(0)
        spread = (self.squares - self.draws * mean.square()) / (self.draws - 1)
        return {
            "variance": spread.sum(-1) / length,
            "error": (self.squares.sum(-1) / self.draws - self.truth.squared_error) / length,
            "direction": self.direction / self.draws,
        }


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
        metrics = sums[method.label].metrics()
        bias, noise = sums[method.label].squared_bias()
        losses, slopes = evaluations(method, problems)
        results.append(
            Result(
                method=method, loss=problems.name, n=n, k=problems.k,
                draws=sums[method.label].draws, squared_bias=Value.over(bias), noise=noise,
                variance=Value.over(metrics["variance"]),
                squared_error=Value.over(metrics["error"]),
                direction=Value.over(metrics["direction"]),
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
