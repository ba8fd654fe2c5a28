"""scikit-learn's own checks of the estimators of likelihoods, scikit-learn's models on the same
columns, and awkward data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksubset.sklearn import KSubsetClassifier, KSubsetCox, KSubsetPoissonRegressor

CHOSEN = [2, 5, 9]


@parametrize_with_checks([KSubsetClassifier(), KSubsetPoissonRegressor(), KSubsetCox()])
def test_what_scikit_learn_asks_for(estimator: Any, check: Any) -> None:
    check(estimator)


def features(m: int = 150, n: int = 12) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """X with columns of all sizes, and a score of three of them."""
    random = np.random.default_rng(0)
    x = random.standard_normal((m, n))
    score = x[:, CHOSEN] @ [1.5, -1.0, 1.0]
    return x * random.uniform(0.01, 100, n) + random.normal(size=n), score, random


def classes(count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x, score, random = features()
    noisy = score + random.logistic(size=len(x))
    labels = np.array(["b", "a", "c"])[:count]
    return x, labels[np.searchsorted(np.quantile(noisy, np.arange(1, count) / count), noisy)]


def counts() -> tuple[np.ndarray, np.ndarray]:
    x, score, random = features()
    return x, random.poisson(np.exp(score / 2))


def times() -> tuple[np.ndarray, np.ndarray]:
    x, score, random = features()
    time, end = random.exponential(np.exp(-score)), random.uniform(0, 4, len(x))
    return x, np.column_stack([np.minimum(time, end), time <= end])


PROBLEMS: dict[str, tuple[Any, Any]] = {
    "two classes": (KSubsetClassifier, classes),
    "three classes": (KSubsetClassifier, lambda: classes(3)),
    "counts": (KSubsetPoissonRegressor, counts),
    "times": (KSubsetCox, times),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_true_features_are_found(name: str) -> None:
    make, data = PROBLEMS[name]
    x, y = data()
    for search in (True, False):
        model = make(3, search=search).fit(x, y)
        assert np.flatnonzero(model.support_).tolist() == CHOSEN
        assert not np.delete(model.coef_, CHOSEN, axis=-1).any()
    assert model.score(x, y) > (0.4 if name == "counts" else 0.6)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        make(3).predict(x)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_classes_against_scikit_learn(count: int, fit_intercept: bool) -> None:
    x, y = classes(count)
    x /= x.std(0)
    weights = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    model = KSubsetClassifier(3, fit_intercept=fit_intercept, alpha=2.0).fit(x, y, weights)
    found = np.flatnonzero(model.support_)
    plain = LogisticRegression(C=0.5, fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000)
    plain.fit(x[:, found], y, weights)
    assert model.classes_.tolist() == plain.classes_.tolist()
    np.testing.assert_allclose(model.coef_[:, found], plain.coef_, atol=1e-5)
    if fit_intercept or count == 2:
        np.testing.assert_allclose(
            model.intercept_ - model.intercept_.mean(),
            plain.intercept_ - plain.intercept_.mean(), atol=1e-4,
        )  # fmt: skip
    np.testing.assert_allclose(model.predict_proba(x), plain.predict_proba(x[:, found]), atol=1e-5)
    assert (model.predict(x) == plain.predict(x[:, found])).all()
    assert model.decision_function(x).shape == ((len(x),) if count == 2 else (len(x), 3))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_counts_against_scikit_learn(fit_intercept: bool) -> None:
    x, y = counts()
    x /= x.std(0)
    weights = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    model = KSubsetPoissonRegressor(3, fit_intercept=fit_intercept, alpha=2.0).fit(x, y, weights)
    found = np.flatnonzero(model.support_)
    plain = PoissonRegressor(
        alpha=2 / weights.sum(), fit_intercept=fit_intercept, tol=1e-10, max_iter=1000
    ).fit(x[:, found], y, weights)
    np.testing.assert_allclose(model.coef_[found], plain.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=1e-5)
    score = plain.score(x[:, found], y, weights)
    np.testing.assert_allclose(model.score(x, y, weights), score, atol=1e-8)


@pytest.mark.parametrize("name", PROBLEMS)
def test_weights_count_observations(name: str) -> None:
    make, data = PROBLEMS[name]
    x, y = data()
    weights = np.random.default_rng(1).integers(0, 3, len(x))
    model, again = make(3).fit(x, y, weights), make(3)
    repeated = np.repeat(np.arange(len(x)), weights)
    again.fit(x[repeated], y[repeated])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_constant_and_repeated_features_and_scales(name: str) -> None:
    make, data = PROBLEMS[name]
    x, y = data()
    wide = np.hstack([np.full((len(x), 1), 1e6 + 0.1), x, x[:, CHOSEN]])
    model = make(3).fit(wide, y)
    found = np.flatnonzero(model.support_)
    assert sorted((CHOSEN[i - 13] if i > 12 else i - 1) for i in found) == CHOSEN
    everything = make(wide.shape[1]).fit(wide, y)
    assert everything.support_.all()
    assert not everything.coef_[..., 0].any()
    assert np.isfinite(everything.predict(wide)).all() if name in ("counts", "times") else True
    for scale in (1e-200, 1e-12, 1e12, 1e200):
        assert np.flatnonzero(make(3).fit(x * scale, y).support_).tolist() == CHOSEN


def test_separated_classes_have_bounded_coefficients() -> None:
    x, score, _ = features()
    for y in (score > 0.2, np.digitize(score, [-1, 1])):
        model = KSubsetClassifier(3).fit(x, y)
        assert np.flatnonzero(model.support_).tolist() == CHOSEN
        assert model.score(x, y) == 1
        assert np.abs(model.coef_ * x.std(0)).max() < 1e5
        assert model.predict_proba(x).max(1).min() > 0.99
    # A feature that is there only where nothing is counted, or only at the first event.
    alone = np.zeros((len(x), 1))
    alone[0] = 1
    y = np.ones(len(x))
    y[0] = 0
    poisson = KSubsetPoissonRegressor(1).fit(np.hstack([x, alone]), y)
    assert poisson.support_[-1]
    assert -60 < poisson.coef_[-1] < -10
    cox = KSubsetCox(1).fit(alone, np.arange(len(x)) + 1.0)
    assert 10 < cox.coef_[0] < 60


@pytest.mark.parametrize("seed", range(2))
def test_heavy_tails_and_more_features_than_observations(seed: int) -> None:
    """Finite, and without a warning, whatever the columns are."""
    random = np.random.default_rng(seed)
    x = random.standard_cauchy((20, 25)) if seed % 2 else np.exp(5 * random.normal(size=(20, 25)))
    x[:, 3] = x[:, 0]
    counts = 1e6 * random.poisson(np.exp(4 * random.normal(size=20)))
    classes = np.r_[0, 1, 2, random.integers(0, 3, 17)]
    time = np.column_stack([random.exponential(size=20).round(1), np.r_[1, np.arange(19) % 2]])
    for model, y in (
        (KSubsetPoissonRegressor(14), counts),
        (KSubsetClassifier(14), classes),
        (KSubsetCox(14), time),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(x, y)
        assert model.support_.sum() == 14
        assert np.isfinite(model.coef_).all()


def test_times_in_all_forms() -> None:
    x, y = times()
    named = np.zeros(len(x), dtype=[("dead", bool), ("days", float)])
    named["dead"], named["days"] = y[:, 1] > 0, y[:, 0]
    first, second = KSubsetCox(3).fit(x, y), KSubsetCox(3).fit(x, named)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.score(x, y) == second.score(x, named)
    events = y.copy()
    events[:, 1] = 1
    np.testing.assert_array_equal(
        KSubsetCox(3).fit(x, y[:, 0]).coef_, KSubsetCox(3).fit(x, events).coef_
    )


def test_concordance_by_its_definition() -> None:
    _, y = times()
    y[:, 0] = y[:, 0].round(1)
    x = np.random.default_rng(3).integers(0, 5, (len(y), 1)) - y[:, :1].round()
    model = KSubsetCox(1).fit(x, y)
    agreed, known, hazard = 0.0, 0, model.predict(x)
    for (i, (t, event)), (j, (u, other)) in ((a, b) for a in enumerate(y) for b in enumerate(y)):
        if event and (t < u or (t == u and not other)):
            known += 1
            agreed += float(hazard[i] > hazard[j]) + 0.5 * float(hazard[i] == hazard[j])
    assert model.score(x, y) == pytest.approx(agreed / known)


def test_tools_of_scikit_learn() -> None:
    x, y = classes(3)
    grid = GridSearchCV(KSubsetClassifier(), {"k": [1, 3]}, cv=3, scoring="neg_log_loss").fit(x, y)
    assert grid.best_params_ == {"k": 3}
    x, y = times()
    assert cross_val_score(KSubsetCox(3), x, y, cv=3).min() > 0.7


def test_clear_errors() -> None:
    for make, data in PROBLEMS.values():
        x, y = data()
        for arguments, kind, message in (
            ({"k": 13}, ValueError, "k must be between 1 and n_features = 12, got 13"),
            ({"k": 2.0}, TypeError, "k must be an int or None, got 2.0"),
            ({"alpha": -1}, ValueError, "alpha must be zero or positive, got -1"),
            ({"alpha": "1"}, TypeError, "alpha must be a number, got '1'"),
        ):
            with pytest.raises(kind, match=message):
                make(**arguments).fit(x, y)
        with pytest.raises(ValueError, match=r"(?i)sample.weights? must"):
            make(2).fit(x, y, np.zeros(len(x)))
    x, y = counts()
    with pytest.raises(ValueError, match=r"y must be counts, zero or positive, got -1\.0"):
        KSubsetPoissonRegressor(2).fit(x, y - 1)
    with pytest.raises(
        ValueError, match="y must have a positive count in what is fitted, got only zeros"
    ):
        KSubsetPoissonRegressor(2).fit(x, y * 0)
    with pytest.raises(ValueError, match="y must have at least two classes, got one class: "):
        KSubsetClassifier(2).fit(x, y * 0)
    x, y = times()
    for wrong, message in (
        (y * [1, 2], r"y must have events of 0 or 1 in its second column, got 2\.0"),
        (y * [1, 0], "y must have an event in every part, got only censored times"),
        (np.hstack([y, y]), r"y must have two columns, time and event, got shape \(150, 4\)"),
        (np.zeros(150, [("a", float), ("b", float)]), "y must have two fields, one boolean"),
    ):
        with pytest.raises(ValueError, match=message):
            KSubsetCox(2).fit(x, wrong)
