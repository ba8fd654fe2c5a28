"""Equations from data, in PySINDy's hands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pysindy
import pytest
from scipy.integrate import solve_ivp
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from ksubset.pysindy import KSubsetOptimizer

TRUTH = {  # Lorenz: terms of every equation, degree 2 in x, y, z
    0: {"x0": -10.0, "x1": 10.0},
    1: {"x0": 28.0, "x1": -1.0, "x0 x2": -1.0},
    2: {"x2": -8 / 3, "x0 x1": 1.0},
}


def lorenz(_: float, u: np.ndarray) -> list[float]:
    x, y, z = u
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


@pytest.fixture(scope="module")
def attractor() -> tuple[np.ndarray, np.ndarray]:
    t = np.arange(0, 8, 0.005)
    found = solve_ivp(lorenz, (0, 8), [-8, 8, 27], t_eval=t, rtol=1e-10, atol=1e-10)
    return t, found.y.T


def fit(attractor: tuple[np.ndarray, np.ndarray], optimizer: Any) -> pysindy.SINDy:
    t, u = attractor
    model = pysindy.SINDy(optimizer=optimizer, feature_library=pysindy.PolynomialLibrary(degree=3))
    return model.fit(u, t=t)


@pytest.mark.parametrize("normalize_columns", [True, False])
def test_lorenz_with_a_k_for_every_equation(
    attractor: tuple[np.ndarray, np.ndarray], normalize_columns: bool
) -> None:
    optimizer = KSubsetOptimizer(k=[2, 3, 2], normalize_columns=normalize_columns, random_state=0)
    model = fit(attractor, optimizer)
    names = model.get_feature_names()
    for row, wanted in zip(model.coefficients(), TRUTH.values(), strict=True):
        found = {names[i]: row[i] for i in np.flatnonzero(row)}
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=0.02)
    assert model.optimizer.marginals_.shape == (3, 20)
    np.testing.assert_allclose(model.optimizer.marginals_.sum(1), [2, 3, 2])
    assert model.score(attractor[1], t=attractor[0]) > 0.999


def test_noisy_data_and_ridge(attractor: tuple[np.ndarray, np.ndarray]) -> None:
    t, u = attractor
    noisy = u + 0.02 * np.random.default_rng(0).standard_normal(u.shape)
    model = fit((t, noisy), KSubsetOptimizer(k=[2, 3, 2], alpha=1e-3, random_state=0, unbias=False))
    names = model.get_feature_names()
    for row, wanted in zip(model.coefficients(), TRUTH.values(), strict=True):
        assert {names[i] for i in np.flatnonzero(row)} == wanted.keys()


def test_a_partial_differential_equation() -> None:
    """Advection and diffusion: u_t = -u_x + 0.1 u_xx."""
    t, x = np.linspace(0, 2, 101), np.linspace(0, 2 * np.pi, 128, endpoint=False)
    u = sum(
        np.exp(-0.1 * q * q * t)[None] * np.cos(q * (x[:, None] - t[None]) + q) for q in (1, 2, 3)
    )
    library = pysindy.PDELibrary(
        function_library=pysindy.PolynomialLibrary(degree=2, include_bias=False),
        derivative_order=3,
        spatial_grid=x,
        diff_kwargs={"is_uniform": True, "periodic": True},
    )
    optimizer = KSubsetOptimizer(k=2, random_state=0)
    model = pysindy.SINDy(optimizer=optimizer, feature_library=library)
    model.fit(u[..., None], t=t)
    row = model.coefficients()[0]
    names = model.get_feature_names()
    assert {names[i] for i in np.flatnonzero(row)} == {"x0_1", "x0_11"}
    assert row[names.index("x0_1")] == pytest.approx(-1, rel=0.01)
    assert row[names.index("x0_11")] == pytest.approx(0.1, rel=0.01)


def test_what_pysindy_asks_of_optimizers() -> None:
    """Shapes and attributes, as its own tests check them for every optimiser."""
    random = np.random.default_rng(0)
    x = random.standard_normal((100, 5))
    optimizer = KSubsetOptimizer(k=2, random_state=0)
    for y in (x[:, 1] - x[:, 3], np.stack([x[:, 0] + x[:, 1], x[:, 2] - x[:, 4]], 1)):
        optimizer.fit(x, y)
        targets = 1 if y.ndim == 1 else y.shape[1]
        assert optimizer.coef_.shape == (targets, 5)
        assert optimizer.complexity == 2 * targets
        np.testing.assert_allclose(optimizer.predict(x).reshape(y.shape), y)
        assert len(optimizer.history_) == 2
        assert optimizer.ind_.sum() == 2 * targets
    weights = random.uniform(0, 2, 100)
    y = x[:, 0] + 0.5 * x[:, 2] + random.standard_normal(100)
    optimizer.fit(x, y, sample_weight=weights)
    plain = LinearRegression(fit_intercept=False).fit(x[:, optimizer.ind_[0]], y, weights)
    np.testing.assert_allclose(optimizer.coef_[optimizer.ind_], plain.coef_)
    copy = clone(optimizer)
    assert copy.get_params() == optimizer.get_params()
    ensemble = pysindy.EnsembleOptimizer(copy, bagging=True, n_models=3)
    ensemble.fit(x, x[:, [1]] - x[:, [3]])
    np.testing.assert_allclose(ensemble.coef_, [[0, 1, 0, -1, 0]], atol=1e-10)


def test_clear_errors() -> None:
    x = np.random.default_rng(0).standard_normal((20, 4))
    with pytest.raises(ValueError, match=r"k must be one number or one for each of the 2 targets"):
        KSubsetOptimizer(k=[1, 2, 3]).fit(x, x[:, :2])
    with pytest.raises(ValueError, match="k must be between 1 and n_features = 4, got 5"):
        KSubsetOptimizer(k=5).fit(x, x[:, :1])
    with pytest.raises(ValueError, match="max_iter must be positive"):
        KSubsetOptimizer(k=1, max_iter=0)
