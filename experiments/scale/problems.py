"""Losses of long rows, with gradients that are exact or come from long runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import ksubset
from experiments.synthetic.problems import Problems, network
from ksubset.estimators import create

_ENUMERATED = 10  # items, up to which subsets are enumerated
_SAMPLES = 64  # for one of the estimates that a long run averages


@dataclass(frozen=True)
class Truth:
    """The gradients of the expected loss (problems, n), float64, and the expected squared distance
    (problems,) of each from the exact one: zero unless it comes from a long run."""

    gradient: Tensor
    squared_error: Tensor

    def squared_length(self) -> Tensor:
        """Of the exact gradients, without the noise of the run."""
        return self.gradient.square().sum(-1) - self.squared_error


def quadratic(n: int, k: int, count: int, seed: int) -> tuple[Problems, Truth]:
    """‖Az − b‖² with a square A; Az and b have entries of about unit size."""
    generator = torch.Generator().manual_seed(seed)
    logits, target = torch.randn(2, count, n, generator=generator)
    matrix = torch.randn(count, n, n, generator=generator) / k**0.5

    def loss(z: Tensor) -> Tensor:
        # One product for all samples of a problem: broadcasting would copy the matrices.
        return (
            (torch.einsum("...pdn,pmn->...pdm", z, matrix) - target.unsqueeze(1)).square().sum(-1)
        )

    gradients = [
        _of_quadratic(*each, k)
        for each in zip(logits.double(), matrix.double(), target.double(), strict=True)
    ]
    truth = Truth(torch.stack(gradients), torch.zeros(count, dtype=torch.float64))
    return Problems("quadratic", logits, k, loss), truth


def _of_quadratic(logits: Tensor, matrix: Tensor, target: Tensor, k: int) -> Tensor:
    """E‖Az − b‖² = tr(A Cov(z) Aᵀ) + ‖Aμ − b‖², differentiated: pairwise marginals are all that an
    expected quadratic depends on."""
    rows = logits.clone().requires_grad_()
    spread = ksubset.covariance_product(rows.expand(len(matrix), -1), k, matrix)
    at_marginals = matrix @ ksubset.marginals(rows, k) - target
    expected = (matrix * spread).sum() + at_marginals.square().sum()
    return torch.autograd.grad(expected, rows)[0]


def networks(n: int, k: int, count: int, seed: int, samples: int) -> tuple[Problems, Truth]:
    """Random networks with one hidden layer of tanh."""
    problems = network(n, k, count, seed)
    if n <= _ENUMERATED:
        return problems, Truth(problems.exact(), torch.zeros(count, dtype=torch.float64))
    torch.manual_seed(seed)
    return problems, _long_run(problems, samples)


def _long_run(problems: Problems, samples: int) -> Truth:
    """The mean of independent unbiased estimates by MuProp with a fitted scale, which of all our
    unbiased estimators has the least variance for its time here."""
    estimator = create("muprop", scale="leave_one_out")
    count, n = problems.logits.shape
    total, squares = torch.zeros(2, count, n, dtype=torch.float64)
    estimates = 0
    while estimates * _SAMPLES < samples or estimates < 2:
        rows = problems.logits.unsqueeze(1).clone().requires_grad_()
        value = estimator.surrogate(problems.loss, rows, problems.k, _SAMPLES, vectorized=True)
        (found,) = torch.autograd.grad(value, rows)
        one = found.squeeze(1).double()
        total, squares, estimates = total + one, squares + one.square(), estimates + 1
    mean = total / estimates
    variance = (squares - estimates * mean.square()) / (estimates - 1)
    return Truth(mean, variance.sum(-1) / estimates)
