"""Bias, variance and error of an estimator from many gradient samples."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.synthetic.contestants import Contestant
from experiments.synthetic.problems import Problems
from ksubset.estimators import Estimator


@dataclass(frozen=True)
class Measured:
    """Metrics of one contestant, a value for every problem.

    The first three are those of the published code, in cosines; the others are Euclidean, relative
    to the squared length of the exact gradient. The squared bias has the noise of the mean over
    draws taken out, so that it is unbiased itself and may be negative; ``bias_deviations`` says how
    many standard deviations of that mean the largest entry of the bias is away from 0.
    """

    contestant: Contestant
    problem: str
    bias: list[float]
    variance: list[float]
    error: list[float]
    error_std: list[float]
    squared_bias: list[float]
    euclidean_variance: list[float]
    squared_error: list[float]
    bias_deviations: list[float]
    microseconds: float  # for one gradient of one row, in this batch


def gradients(
    contestant: Contestant, problems: Problems, draws: int, seed: int
) -> tuple[Tensor, float]:
    """Independent gradient samples (problems, draws, n), and seconds for all of them."""
    torch.manual_seed(seed)
    estimator = contestant.create()
    # Once at least: what is compiled or looked up on a first call is not timed.
    for _ in range(max(contestant.warm_up, 1)):
        _once(contestant, estimator, problems, 16)
    start = time.perf_counter()
    found = _once(contestant, estimator, problems, draws)
    return found, time.perf_counter() - start


def _once(contestant: Contestant, estimator: Estimator, problems: Problems, draws: int) -> Tensor:
    count, n = problems.logits.shape
    rows = problems.logits.unsqueeze(1).expand(count, draws, n).clone().requires_grad_()
    value = estimator.surrogate(
        problems.loss, rows, problems.k, contestant.samples, vectorized=True
    )
    return torch.autograd.grad(value, rows)[0]


def measure(
    contestant: Contestant, problems: Problems, exact: Tensor, draws: int, seed: int
) -> Measured:
    """Draw and compare."""
    drawn, seconds = gradients(contestant, problems, draws, seed)
    drawn = drawn.double()
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
        contestant=contestant,
        problem=problems.name,
        bias=(1 - torch.cosine_similarity(mean, exact, -1)).tolist(),
        variance=to_mean.var(1).tolist(),
        error=to_exact.mean(1).tolist(),
        error_std=to_exact.std(1).tolist(),
        squared_bias=((off.square() - noise).sum(-1) / size).tolist(),
        euclidean_variance=(spread.sum(-1) / size).tolist(),
        squared_error=((drawn - exact.unsqueeze(1)).square().sum(-1).mean(1) / size).tolist(),
        bias_deviations=(off.abs() / (noise.sqrt() + floor)).amax(-1).tolist(),
        microseconds=1e6 * seconds / (len(exact) * draws),
    )


def average(values: list[float]) -> float:
    """Over problems."""
    return sum(values) / len(values)
