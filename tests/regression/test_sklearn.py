"""scikit-learn's own checks, its tools around our estimators, and awkward data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksubset.sklearn import KSubsetRegressor, KSubsetSelector, k_path


@parametrize_with_checks(
    [
        KSubsetRegressor(max_iter=15),
        KSubsetRegressor(k=1, method="rows", max_iter=15),
        KSubsetSelector(max_iter=15),
    ]
)
def test_what_scikit_learn_asks_for(estimator: Any, check: Any) -> None:
    check(estimator)


def planted(
    m: int = 80, n: int = 12, targets: int = 0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((m, n)) * random.uniform(0.01, 100, n) + random.normal(size=n)
    chosen = sorted(random.choice(n, 3, replace=False).tolist())
    shape = (3, targets) if targets else (3,)
    weights = random.uniform(1, 2, shape)
    y = (x[:, chosen] / x[:, chosen].std(0)) @ weights + 3
    return x, y + 0.1 * random.standard_normal(y.shape), chosen


@pytest.mark.parametrize("method", ["gram", "rows"])
@pytest.mark.parametrize("targets", [0, 2])
@pytest.mark.parametrize("search", [True, False])
def test_true_features_and_their_coefficients(method: str, targets: int, search: bool) -> None:
    x, y, chosen = planted(targets=targets)
    model = KSubsetRegressor(3, method=method, search=search, n_restarts=2, random_state=0)
    model.fit(x, y)
    assert np.flatnonzero(model.support_).tolist() == chosen
    plain = LinearRegression().fit(x[:, chosen], y)
    np.testing.assert_allclose(model.coef_[..., chosen], plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=1e-9)
    assert np.count_nonzero(model.coef_) == 3 * max(targets, 1)
    np.testing.assert_allclose(model.predict(x), plain.predict(x[:, chosen]))
    assert model.marginals_.shape == (12,)
    np.testing.assert_allclose(model.marginals_.sum(), 3)
    assert model.marginals_[chosen].min() > 0.9
    assert set(model.history_) == {"loss", "noise", "gamma", "entropy"}
    assert all(len(values) == 60 for values in model.history_.values())
    assert model.score(x, y) > 0.99


def test_weights_ridge_and_no_intercept() -> None:
    x, y, chosen = planted()
    weights = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    for fit_intercept in (True, False):
        settings: dict[str, Any] = {"fit_intercept": fit_intercept, "alpha": 2.0}
        model = KSubsetRegressor(3, random_state=0, **settings).fit(x, y, weights)
        found = np.flatnonzero(model.support_)
        plain = Ridge(**settings).fit(x[:, found], y, weights)
        np.testing.assert_allclose(model.coef_[found], plain.coef_, rtol=1e-7)
        np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=1e-7)
        repeated = np.repeat(np.arange(len(x)), weights.astype(int))
        again = KSubsetRegressor(3, random_state=0, **settings).fit(x[repeated], y[repeated])
        np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-7)
    assert KSubsetRegressor(3, random_state=0).fit(x, y, weights).support_[chosen].all()


def test_the_same_seed_gives_the_same_model() -> None:
    x, y, _ = planted()
    first, second, other = (
        KSubsetRegressor(3, n_restarts=2, random_state=seed).fit(x, y) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first.marginals_, second.marginals_)
    assert not np.array_equal(first.history_["entropy"], other.history_["entropy"])


def test_tools_of_scikit_learn() -> None:
    x, y, chosen = planted()
    model = KSubsetRegressor(3, random_state=0)
    assert cross_val_score(model, x, y, cv=3).min() > 0.9
    assert clone(model).get_params() == model.get_params()
    grid = GridSearchCV(KSubsetRegressor(random_state=0), {"k": [1, 3]}, cv=3).fit(x, y)
    assert grid.best_params_ == {"k": 3}
    steps = make_pipeline(
        StandardScaler(), KSubsetSelector(3, random_state=0), LinearRegression()
    ).fit(x, y)
    assert steps.score(x, y) > 0.99
    assert steps[1].get_support(indices=True).tolist() == chosen
    names = [f"f{i}" for i in range(12)]
    assert steps[1].get_feature_names_out(names).tolist() == [names[i] for i in chosen]


def test_constant_and_repeated_features() -> None:
    x, y, chosen = planted()
    constant = np.full((len(x), 1), 1e6)
    wide = np.hstack([constant, x, x[:, chosen], constant])
    for method in ("gram", "rows"):
        model = KSubsetRegressor(3, method=method, random_state=0).fit(wide, y)
        found = np.flatnonzero(model.support_)
        # one of each pair
        assert sorted((chosen[i - 13] if i > 12 else i - 1) for i in found) == chosen
        assert model.score(wide, y) > 0.99
        assert not model.marginals_[[0, -1]].round(6).any()
        # all there is, constants too: their coefficients are zero
        model = KSubsetRegressor(17, method=method, random_state=0).fit(wide, y)
        assert not model.coef_[[0, -1]].any()
        np.testing.assert_allclose(model.predict(wide), LinearRegression().fit(x, y).predict(x))
    nothing = KSubsetRegressor(2, random_state=0).fit(x, np.ones(len(x)))
    assert not nothing.coef_.any()
    assert nothing.intercept_ == pytest.approx(1)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e8 + 0.1, -7.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_constants_whose_mean_is_rounded(value: float, weighted: bool) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1001, 3))
    x[:, 1] = value
    y = x[:, 0] + 5 + 0.1 * random.standard_normal(1001)
    weights = random.random(1001) if weighted else None
    model = KSubsetRegressor(3, random_state=0).fit(x, y, weights)
    assert model.coef_[1] == 0
    model = KSubsetRegressor(2, random_state=0).fit(x, y, weights)
    assert np.flatnonzero(model.support_).tolist() == [0, 2]


@pytest.mark.parametrize("scale", [1e-200, 1e-170, 1e-12, 1e12, 1e155, 1e200])
def test_scales_do_not_matter(scale: float) -> None:
    x, y, chosen = planted()
    for wide, target in ((x, y * scale), (x * scale, y)):
        model = KSubsetRegressor(3, random_state=0).fit(wide, target)
        assert np.flatnonzero(model.support_).tolist() == chosen


@pytest.mark.parametrize("offset", [1e4, 3e5, 1e6])
def test_a_large_constant_term_hides_nothing(offset: float) -> None:
    random = np.random.default_rng(0)
    x = np.c_[np.ones(60), random.standard_normal((60, 20))]
    y = offset + 3 * x[:, 1] + 0.3 * random.standard_normal(60)
    for seed in range(4):
        model = KSubsetRegressor(2, fit_intercept=False, random_state=seed).fit(x, y)
        assert np.flatnonzero(model.support_).tolist() == [0, 1]


def test_wrong_parameters() -> None:
    x, y, _ = planted()
    for name, value, kind in (
        ("alpha", np.inf, ValueError),
        ("alpha", np.nan, ValueError),
        ("alpha", "1", TypeError),
        ("gamma", 0.0, ValueError),
        ("n_restarts", 2.5, TypeError),
        ("max_iter", 0, ValueError),
    ):
        with pytest.raises(kind, match=f"{name} must be"):
            KSubsetRegressor(2, **{name: value}).fit(x, y)


def test_as_many_features_as_observations() -> None:
    x, y, _ = planted(m=5)
    model = KSubsetRegressor(8, random_state=0).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y)
    assert model.support_.sum() == 8


def test_clear_errors() -> None:
    x, y, _ = planted()
    for arguments, kind, message in (
        ({"k": 13}, ValueError, "k must be between 1 and n_features = 12, got 13"),
        ({"k": 0}, ValueError, "k must be between 1 and n_features = 12, got 0"),
        ({"k": 2.0}, TypeError, "k must be an int or None, got 2.0"),
        ({"alpha": -1}, ValueError, "alpha must be zero or positive, got -1"),
        ({"gamma": 0}, ValueError, "gamma must be positive or None, got 0"),
        ({"n_restarts": -1}, ValueError, "n_restarts must be at least 0, got -1"),
        ({"method": "qr"}, ValueError, "method must be one of 'auto', 'gram', 'rows', got 'qr'"),
    ):
        for estimator in (KSubsetRegressor, KSubsetSelector):
            with pytest.raises(kind, match=message):
                estimator(**arguments).fit(x, y)
    with pytest.raises(ValueError, match="contains NaN"):
        KSubsetRegressor(2).fit(np.where(x > 50, np.nan, x), y)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        KSubsetRegressor(2).fit(x[:1], y[:1])
    with pytest.raises(NotFittedError):
        KSubsetRegressor(2).predict(x)


def test_labels_are_no_numbers() -> None:
    """The message says what takes their place, and that works."""
    x, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    for fit in (KSubsetRegressor(2).fit, KSubsetSelector(2).fit, k_path):
        for y in (names, names.astype(object), names.tolist()):
            with pytest.raises(ValueError, match=r"such as 'setosa': sklearn\.preprocessing"):
                fit(x, y)
    chosen = KSubsetSelector(2).fit(x, LabelBinarizer().fit_transform(names)).get_support()
    assert chosen.sum() == 2
