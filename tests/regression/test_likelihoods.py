"""Losses by their definitions, derivatives by differences, and searches by enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ksubset.regression import Cox, Logistic, Multinomial, Poisson, select
from ksubset.regression.likelihoods import Array, Likelihood
from ksubset.regression.local import Local
from ksubset.regression.newton import Design, fit


def losses(m: int = 12, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    weights = random.uniform(0.5, 2, m)
    event = random.random(m) < 0.7
    event[0] = True
    classes = np.r_[0, 1, 2, random.integers(0, 3, m - 3)]
    return {
        "logistic": Logistic(np.r_[0, 1, random.integers(0, 2, m - 2)].astype(float), weights),
        "multinomial": Multinomial(classes, weights, 3),
        "poisson": Poisson(random.poisson(2, m).astype(float) + np.eye(m)[0], weights),
        "cox": Cox(random.integers(0, 6, m).astype(float), event, weights),
    }


NAMES = sorted(losses())


def predictor(loss: Likelihood, m: int = 12) -> Array:
    return np.random.default_rng(1).standard_normal((loss.outputs, m))


def test_values_by_their_definitions() -> None:
    random = np.random.default_rng(2)
    v, eta = random.uniform(0.5, 2, 8), random.standard_normal((1, 8))
    y = random.integers(0, 2, 8).astype(float)
    chance = 1 / (1 + np.exp(-eta[0]))
    expected = -(v * np.log(np.where(y > 0, chance, 1 - chance))).sum()
    np.testing.assert_allclose(Logistic(y, v).value(eta), expected)
    counts = random.poisson(2, 8).astype(float)
    saturated = np.where(counts > 0, counts * np.log(np.maximum(counts, 1)) - counts, 0)
    expected = (v * (np.exp(eta[0]) - counts * eta[0] + saturated)).sum()
    np.testing.assert_allclose(Poisson(counts, v).value(eta), expected)
    loss = Multinomial(np.array([0, 1, 2, 3, 0, 1, 2, 3]), v, 4)
    coordinates = random.standard_normal((3, 8))
    scores = loss.scores(coordinates)
    np.testing.assert_allclose(scores.sum(0), 0, atol=1e-12)
    np.testing.assert_allclose(np.square(scores).sum(0), np.square(coordinates).sum(0))
    expected = (v * (np.log(np.exp(scores).sum(0)) - scores[loss.y, np.arange(8)])).sum()
    np.testing.assert_allclose(loss.value(coordinates), expected)
    time, event = np.array([3.0, 1, 2, 2, 2, 5, 4, 1]), np.array([1, 1, 0, 1, 1, 0, 1, 0]) > 0
    expected = 0.0
    for i in np.flatnonzero(event):
        at_risk = time >= time[i]
        expected -= v[i] * (eta[0, i] - np.log((v * np.exp(eta[0]))[at_risk].sum()))
    cox = Cox(time, event, v)
    np.testing.assert_allclose(cox.value(eta[:, cox.order]), expected)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_against_differences(name: str) -> None:
    loss = losses()[name]
    eta, step = predictor(loss), 1e-6
    differences = np.zeros_like(eta)
    second = np.zeros((*eta.shape, *eta.shape))
    for place in np.ndindex(eta.shape):
        move = np.zeros_like(eta)
        move[place] = step
        differences[place] = (loss.value(eta + move) - loss.value(eta - move)) / (2 * step)
        change = loss.gradient(eta + move) - loss.gradient(eta - move)
        second[place] = change / (2 * step)
    np.testing.assert_allclose(loss.gradient(eta), differences, atol=1e-7)
    random = np.random.default_rng(3)
    left, right = random.standard_normal((3, 12)), random.standard_normal((2, 12))
    expected = np.einsum("pm,ambn,qn->paqb", left, second, left)
    np.testing.assert_allclose(loss.hessian(left, eta), expected, atol=1e-6)
    across, own = loss.across(left, right, eta)
    np.testing.assert_allclose(own, np.einsum("paqb,pq->pab", expected, np.eye(3)), atol=1e-6)
    expected = np.einsum("pm,ambn,qn->paqb", left, second, right)
    np.testing.assert_allclose(across, expected, atol=1e-6)
    # Of a batch, each by itself.
    both = np.stack([eta, -eta])
    np.testing.assert_allclose(loss.value(both)[1], loss.value(-eta))
    np.testing.assert_allclose(loss.gradient(both)[1], loss.gradient(-eta))
    batch = loss.hessian(np.stack([left, 2 * left]), both)
    np.testing.assert_allclose(batch[1], loss.hessian(2 * left, -eta))


@pytest.mark.parametrize("name", NAMES)
def test_far_predictors_have_finite_losses(name: str) -> None:
    loss = losses()[name]
    sign = np.sign(loss.gradient(np.zeros((loss.outputs, 12))))
    for size in (1e2, 1e4):
        eta = (-size if name != "poisson" else -1e-2 * size) * sign
        assert np.isfinite(loss.value(eta))
        assert np.isfinite(loss.gradient(eta)).all()
        assert np.isfinite(loss.hessian(np.ones((1, 12)), eta)).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_quadratic_model(name: str) -> None:
    """Of a loss that is one: its gains are what removals, additions and swaps change."""
    m, k = 60, 3
    loss = losses(m)[name]
    design = Design.of(np.random.default_rng(4).standard_normal((m, 8)), loss, 1.0, True)
    support = np.arange(k)
    fits = fit(loss, design, support[None])
    eta = np.swapaxes(fits.coefficients, 1, 2)[0] @ design.chosen(support[None])[0]
    everything = np.vstack([design.features, np.ones((int(design.constant), m))])
    size, t = len(everything), loss.outputs
    hessian = loss.hessian(everything, eta).reshape(size * t, size * t)
    hessian += np.diag(np.repeat(np.r_[design.penalty, np.zeros(size - 8)], t))
    gradient = (everything @ loss.gradient(eta).T).ravel()
    start = np.zeros((size, t))
    start[support] = fits.coefficients[0][:k]
    gradient += (np.r_[design.penalty, np.zeros(size - 8)][:, None] * start).ravel()

    def least(chosen: list[int]) -> float:
        """Of the quadratic with all others zero, less that at the fit."""
        free = np.r_[chosen, np.arange(8, size)].astype(int)
        free = (free[:, None] * t + np.arange(t)).ravel()
        fixed = -start.ravel()
        fixed[free] = 0  # of the step: the others go to zero
        linear = (gradient + hessian @ fixed)[free]
        step = fixed.copy()
        step[free] = -np.linalg.solve(hessian[np.ix_(free, free)], linear)
        return float(gradient @ step + 0.5 * step @ hessian @ step)

    local = Local.of(loss, design, fits)
    for j in range(k, 8):
        np.testing.assert_allclose(local.additions()[j], -least([0, 1, 2, j]), rtol=1e-5)
        for i in range(k):
            chosen = [*(c for c in range(k) if c != i), j]
            np.testing.assert_allclose(local.swaps()[i, j], -least(chosen), rtol=1e-5, atol=1e-7)
    for i in range(k):
        expected = least([c for c in range(k) if c != i])
        np.testing.assert_allclose(local.removals()[i], expected, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_search_against_enumeration(name: str, seed: int) -> None:
    m, n, k = 40, 9, 3
    loss = losses(m, seed)[name]
    random = np.random.default_rng(seed)
    x = 0.7 * random.standard_normal((m, 1)) + random.standard_normal((m, n))
    design = Design.of(x, loss, 0.5, True)
    subsets = np.array(list(itertools.combinations(range(n), k)))
    values = fit(loss, design, subsets).values
    found = select(x, loss, k, alpha=0.5)
    assert found.loss == pytest.approx(values.min(), rel=1e-7)
    assert found.support.tolist() == subsets[values.argmin()].tolist()


def test_many_classes() -> None:
    """One curvature for all classes orders the swaps; the loss is exact."""
    random = np.random.default_rng(0)
    x = random.standard_normal((80, 9))
    y = np.digitize(x[:, [0, 4, 7]].sum(1) + 0.3 * random.standard_normal(80), [-2, -1, 0, 1, 2])
    loss = Multinomial(y, np.ones(80), 6)
    eta = predictor(loss, 80)
    across, own = loss.across(x.T, x.T[:2], eta)
    exact = np.einsum("paqa->pq", loss.hessian(x.T, eta))
    assert across.shape == (9, 1, 2, 1)
    np.testing.assert_allclose(own[:2, 0, 0], np.diagonal(across[:2, 0, :, 0]))
    np.testing.assert_allclose(across[:, 0, :, 0], exact[:, :2] / 5)
    subsets = np.array(list(itertools.combinations(range(9), 3)))
    values = fit(loss, Design.of(x, loss, 0.5, True), subsets).values
    found = select(x, loss, 3, alpha=0.5)
    assert found.support.tolist() == subsets[values.argmin()].tolist() == [0, 4, 7]
    assert found.loss == pytest.approx(values.min(), rel=1e-7)


def test_clear_errors() -> None:
    loss = losses()["logistic"]
    with pytest.raises(ValueError, match="k must be between 1 and 4, got 5"):
        select(np.zeros((12, 4)), loss, 5)
    with pytest.raises(ValueError, match=r"x must be \(m, n\) with m = 12, .* got \(11, 4\)"):
        select(np.zeros((11, 4)), loss, 2)
