"""Equations from data, in PySINDy's hands."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pysindy
import pytest
from pysindy.optimizers import WrappedOptimizer
from pysindy.utils import supports_multiple_targets
from scipy.integrate import solve_ivp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

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


def test_shapes_weights_and_copies() -> None:
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


class TestWhatPysindyAsksOfEveryOptimizer:
    """PySINDy installs no estimator checks; these are the properties that its own test suite asks
    of all its optimisers, one by one, on an exponential and on random data."""

    x = np.linspace(1, 2, 10)[:, None]
    derivative = 2 * np.linspace(1, 2, 10)

    @pytest.mark.parametrize("derivative", [derivative, derivative[:, None]])
    @pytest.mark.parametrize("normalize_columns", [True, False])
    def test_one_feature(self, derivative: np.ndarray, normalize_columns: bool) -> None:
        optimizer = KSubsetOptimizer(k=1, normalize_columns=normalize_columns)
        for one in (optimizer, WrappedOptimizer(clone(optimizer), unbias=False)):
            one.fit(self.x, derivative)
            check_is_fitted(one)
            assert one.complexity >= 0
            np.testing.assert_allclose(one.coef_, [[2]])

    def test_several_targets_are_supported(self) -> None:
        assert supports_multiple_targets(KSubsetOptimizer())

    def test_nothing_before_the_fit(self) -> None:
        optimizer = KSubsetOptimizer(k=1)
        with pytest.raises(NotFittedError):
            optimizer.predict(np.ones((1, 3)))
        with pytest.raises(NotFittedError):
            _ = optimizer.complexity
        optimizer.fit(self.x, self.derivative)
        assert optimizer.complexity > 0

    @pytest.mark.parametrize("options", [{"normalize_columns": True}, {"copy_X": False}])
    def test_weights(self, options: dict[str, bool]) -> None:
        """Also where half of them are zero: those rows do not count."""
        x, derivative = self.x.copy(), self.derivative.copy()
        derivative[::2] = 7
        weights = np.arange(10.0)
        weights[::2] = 0
        optimizer = KSubsetOptimizer(k=1, **options)
        optimizer.fit(x, derivative, sample_weight=weights)
        np.testing.assert_allclose(optimizer.coef_, [[2]])

    def test_complexity_grows_with_k(self) -> None:
        random = np.random.default_rng(1)
        x = random.standard_normal((200, 8))
        y = x @ random.standard_normal((8, 1)) + random.standard_normal((200, 1))
        fitted = [KSubsetOptimizer(k=k, random_state=0).fit(x, y) for k in range(1, 9)]
        assert [one.complexity for one in fitted] == list(range(1, 9))
        errors = [np.square(y - one.predict(x)).sum() for one in fitted]
        assert errors == sorted(errors, reverse=True)

    def test_unbias(self) -> None:
        options = {"k": 1, "alpha": 10.0, "random_state": 0}
        biased = KSubsetOptimizer(**options, unbias=False).fit(self.x, self.derivative)
        unbiased = KSubsetOptimizer(**options, unbias=True).fit(self.x, self.derivative)
        assert biased.coef_.item() < 1.9
        np.testing.assert_allclose(unbiased.coef_, [[2]])

    @pytest.mark.parametrize("ensemble", [{"bagging": True}, {"library_ensemble": True}])
    def test_ensembles(
        self, attractor: tuple[np.ndarray, np.ndarray], ensemble: dict[str, bool]
    ) -> None:
        optimizer = pysindy.EnsembleOptimizer(
            KSubsetOptimizer(k=2, random_state=0), n_models=2, **ensemble
        )
        model = pysindy.SINDy(
            optimizer=optimizer, feature_library=pysindy.PolynomialLibrary(degree=2)
        )
        model.fit(attractor[1][::4], t=attractor[0][::4])
        assert np.shape(optimizer.coef_list) == (2, 3, 10)
        assert optimizer.coef_.shape == (3, 10)

    def test_a_wrong_guess(self) -> None:
        with pytest.raises(ValueError, match="initial_guess"):
            KSubsetOptimizer(k=1, initial_guess=np.zeros(3)).fit(self.x, self.derivative)

    def test_pickles(self, attractor: tuple[np.ndarray, np.ndarray]) -> None:
        model = fit(attractor, KSubsetOptimizer(k=[2, 3, 2], random_state=0))
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.coefficients(), model.coefficients())


def test_clear_errors() -> None:
    x = np.random.default_rng(0).standard_normal((20, 4))
    with pytest.raises(ValueError, match=r"k must be one number or one for each of the 2 targets"):
        KSubsetOptimizer(k=[1, 2, 3]).fit(x, x[:, :2])
    with pytest.raises(ValueError, match="k must be between 1 and n_features = 4, got 5"):
        KSubsetOptimizer(k=5).fit(x, x[:, :1])
    with pytest.raises(ValueError, match="max_iter must be positive"):
        KSubsetOptimizer(k=1, max_iter=0)
