"""Bias, variance and error of an estimator from many gradient samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.synthetic.methods import Method
from experiments.synthetic.problems import Problems
from ksubset.estimators import Estimator


@dataclass(frozen=True)
class Measured:
    """Metrics of one method, a value for every problem.

    The first three are those of the published code, in cosines; the others are Euclidean, relative
    to the squared length of the exact gradient. The squared bias has the noise of the mean over
    draws taken out, so that it is unbiased itself and may be negative; ``bias_deviations`` says how
    many standard deviations of that mean the largest entry of the bias is away from 0.
    """

    method: Method
    problem: str
    bias: list[float]
    variance: list[float]
    error: list[float]
    error_std: list[float]
    squared_bias: list[float]
    euclidean_variance: list[float]
    squared_error: list[float]
    bias_deviations: list[float]
    time: float = math.nan  # of one gradient, in units of SIMPLE's; see cost.timed


def gradients(method: Method, estimator: Estimator, problems: Problems, draws: int) -> Tensor:
    """Independent gradient samples (problems, draws, n)."""
    count, n = problems.logits.shape
    rows = problems.logits.unsqueeze(1).expand(count, draws, n).clone().requires_grad_()
    value = estimator.surrogate(problems.loss, rows, problems.k, method.samples, vectorized=True)
    return torch.autograd.grad(value, rows)[0]


def warm(method: Method, problems: Problems) -> Estimator:
    """A new estimator that was called: it has learned what it learns, and kernels are compiled."""
    estimator = method.create()
    for _ in range(max(method.warm_up, 1)):
        gradients(method, estimator, problems, 16)
    return estimator


def measure(method: Method, problems: Problems, exact: Tensor, draws: int, seed: int) -> Measured:
    """Draw and compare."""
    torch.manual_seed(seed)
    drawn = gradients(method, warm(method, problems), problems, draws).double()
    mean = drawn.mean(1)
    size = exact.square().sum(-1)
    # An estimate of exactly zero has no direction: its cosine counts as 0.
    to_mean = torch.cosine_similarity(drawn, mean.unsqueeze(1), -1)
    to_exact = 1 - torch.cosine_similarity(drawn, exact.unsqueeze(1), -1)
    spread = drawn.var(1)
    off = mean - exact
    noise = spread / draws
    floor = 1e-7 * exact.abs().amax(-1, keepdim=True)  # rounding, for those without any noise
    return Measured(
        method=method,
        problem=problems.name,
        bias=(1 - torch.cosine_similarity(mean, exact, -1)).tolist(),
        variance=to_mean.var(1).tolist(),
        error=to_exact.mean(1).tolist(),
        error_std=to_exact.std(1).tolist(),
        squared_bias=((off.square() - noise).sum(-1) / size).tolist(),
        euclidean_variance=(spread.sum(-1) / size).tolist(),
        squared_error=((drawn - exact.unsqueeze(1)).square().sum(-1).mean(1) / size).tolist(),
        bias_deviations=(off.abs() / (noise.sqrt() + floor)).amax(-1).tolist(),
    )


def average(values: list[float]) -> float:
    """Over problems."""
    return sum(values) / len(values)
