"""No time is worth reporting of answers that are wrong: they are compared with the oracle first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from contest import Problem
from torch import Tensor

import ksubset
from ksubset import oracle

# Above, the oracle would take minutes: float64 and the plain torch method stand in.
_ORACLE_ITEMS = 20_000
# Frequencies of drawn subsets, where thousands of them cost little.
_DRAWN_ITEMS, _DRAWS = 1024, 4000
_DEVIATIONS = 7.0


class DisagreementError(AssertionError):
    """A result is not what the oracle says."""


@dataclass(frozen=True)
class Truth:
    """The first row's marginals and covariance product, float64 on the CPU."""

    marginals: Tensor
    product: Tensor
    source: str

    @classmethod
    def of(cls, problem: Problem, most_items: int = _ORACLE_ITEMS) -> Truth:
        """By the oracle, or by the plain spectral method in float64 for longer rows."""
        row, weights = (x[0].detach().double() for x in (problem.logits, problem.weights))
        k = problem.shape.k
        if problem.shape.n <= most_items:
            table = oracle.LogSpaceDP(row.cpu(), k)
            product = table.covariance_product(weights.cpu())
            return cls(table.marginals(), product, "oracle.LogSpaceDP")
        return cls(
            ksubset.marginals(row, k, method="spectral").cpu(),
            ksubset.covariance_product(row, k, weights, method="spectral").cpu(),
            "spectral, float64",
        )


def check(problem: Problem, truth: Truth, z: Tensor, gradient: Tensor) -> dict[str, float]:
    """The errors of ``simple``'s output and gradient, of ``swap``'s gradient and of the functions
    beside them, all on the timed rows; a :class:`DisagreementError` if one is too large."""
    shape, weights = problem.shape, problem.weights
    logits = problem.logits.detach()

    def demand(what: str, error: float, bound: float) -> float:
        if not error <= bound:  # NaN is no agreement
            raise DisagreementError(
                f"{shape} on {logits.device}: {what} off by {error:.1e}, more than {bound:.1e}"
            )
        return error

    def off(value: Tensor, right: Tensor) -> float:
        return float((value[0].detach().cpu().double() - right).abs().max())

    spread = float((weights[0] - weights[0].mean()).abs().max())
    bound = 2e-5 * float(truth.product.abs().max()) + 2e-6 * spread
    product = ksubset.covariance_product(logits, shape.k, weights)
    broken = int(((z != 0) & (z != 1)).any(-1).logical_or(z.sum(-1) != shape.k).sum())
    errors = {
        "rows that are not k-hot": demand("samples' rows", broken, 0),
        "marginals": demand(
            "marginals", off(ksubset.marginals(logits, shape.k), truth.marginals), 2e-6
        ),
        "covariance product": demand("covariance product", off(product, truth.product), bound),
        "gradient": demand("gradient of simple", off(gradient, truth.product), bound),
    }
    swapped, moved = _swap(problem)
    expected = product_plan(truth.marginals, swapped[0].cpu().double(), weights[0].cpu().double())
    bound = 2e-5 * float(expected.abs().max()) + 2e-6 * spread
    errors["gradient of swap"] = demand("gradient of swap", off(moved, expected), bound)
    if shape.n <= _DRAWN_ITEMS:
        scores = frequency_scores(logits[0], shape.k, truth.marginals)
        errors["frequencies"] = demand(
            "a frequency, in standard deviations", float(scores.abs().max()), _DEVIATIONS
        )
        # E z² = 1 for each; its variance is 2 and at most a tenth more where 25 are expected.
        excess = float((scores.square().mean() - 1).abs() / (2.1 / len(scores)) ** 0.5)
        errors["frequencies together"] = demand(
            "frequencies together, in standard deviations", excess, _DEVIATIONS
        )
    return errors


def _swap(problem: Problem) -> tuple[Tensor, Tensor]:
    """Samples of ``swap``, and its gradient."""
    logits = problem.logits.detach().requires_grad_()
    z = ksubset.swap(logits, problem.shape.k)
    return z.detach(), torch.autograd.grad(z, logits, problem.weights)[0]


def product_plan(marginals: Tensor, z: Tensor, g: Tensor) -> Tensor:
    """What the gradient of ``swap`` is by its definition (docs/swaps.md)."""
    flow = (z - marginals).abs()
    out, into = flow * z, flow * (1 - z)
    swapped_for = torch.where(z > 0, (into @ g) / into.sum(), (out @ g) / out.sum())
    return 0.5 * flow * (g - swapped_for)


def frequency_scores(row: Tensor, k: int, marginals: Tensor) -> Tensor:
    """How often each item was drawn, as z-scores, for items common enough to have one."""
    counts = ksubset.sample(row, k, (_DRAWS,)).sum(0).cpu().double()
    variance = _DRAWS * marginals * (1 - marginals)
    common = variance >= 25
    return ((counts - _DRAWS * marginals) / variance.sqrt())[common]


def must_catch() -> None:
    """The check fails for logits that are not those that were sampled from."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(20, generator=generator)
    wrong = oracle.LogSpaceDP(row * 1.5, 10).marginals()
    if float(frequency_scores(row, 10, wrong).abs().max()) <= _DEVIATIONS:
        raise DisagreementError("the check of frequencies does not see a wrong law")
