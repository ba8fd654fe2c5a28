"""Choosing k."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance
from sklearn.model_selection import KFold, StratifiedKFold

from ksubset.sklearn import KSubsetCox, k_path, plot_path


def planted(targets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.standard_normal((120, 8))
    weights = np.array([2.0, 0, -1, 0, 0, 1, 0, 0])
    y = x @ weights if not targets else x @ np.stack([weights] * targets, 1)
    return x, y + 0.3 * random.standard_normal(y.shape)


@pytest.mark.parametrize("targets", [0, 2])
def test_criteria_against_their_definition(targets: int) -> None:
    x, y = planted(targets)
    path = k_path(x, y, 6, random_state=0)
    m, t = len(x), max(targets, 1)
    assert path.k.tolist() == [1, 2, 3, 4, 5, 6]
    for k, support, loss, bic, ebic in zip(
        path.k, path.supports, path.loss, path.bic, path.ebic, strict=True
    ):
        errors = {
            s: np.square(y - LinearRegression().fit(x[:, s], y).predict(x[:, s])).mean()
            for s in itertools.combinations(range(8), int(k))
        }
        best = min(errors, key=errors.__getitem__)
        assert tuple(support) == best
        assert loss == pytest.approx(errors[best])
        assert bic == pytest.approx(m * t * math.log(loss) + k * t * math.log(m))
        assert ebic == pytest.approx(bic + 2 * math.log(math.comb(8, k)))
    assert path.best("ebic") == path.best("bic") == 3
    assert path.supports[2].tolist() == [0, 2, 5]


def test_cross_validation() -> None:
    x, y = planted()
    path = k_path(x, y, 5, cv=KFold(4), random_state=0)
    assert path.cv is not None
    assert path.cv.shape == (5, 4)
    for fold, (fitted, tested) in enumerate(KFold(4).split(x)):
        model = LinearRegression().fit(x[fitted][:, [0, 2, 5]], y[fitted])
        error = np.square(model.predict(x[tested][:, [0, 2, 5]]) - y[tested]).mean()
        assert path.cv[2, fold] == pytest.approx(error)
    assert path.best("cv_1se") == 3
    assert path.best("cv") == 1 + int(path.cv.mean(1).argmin())
    assert path.best("cv") >= 3


def test_a_fit_without_rest_and_errors() -> None:
    x, _ = planted()
    path = k_path(x, x[:, 0] - x[:, 1], 4, random_state=0)
    assert path.best("bic") == path.best() == 2
    assert np.isfinite(path.ebic).all()
    assert k_path(x, x[:, 0], random_state=0).k.tolist() == list(range(1, 9))
    with pytest.raises(ValueError, match="criterion must be one of 'bic', 'ebic', 'cv', 'cv_1se'"):
        path.best("aic")
    with pytest.raises(ValueError, match="criterion 'cv' needs a path with cv"):
        path.best("cv")
    with pytest.raises(ValueError, match="k must be between 1 and n_features = 8, got 9"):
        k_path(x, x[:, 0], 9)


def test_the_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    x, y = planted()
    path = k_path(x, y, 4, cv=3, random_state=0)
    ax = plot_path(path)
    assert "k = 3 (ebic)" in [text.get_text() for text in ax.get_legend().get_texts()]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), path.loss)
    assert plot_path(path, "cv_1se", ax) is ax
    matplotlib.pyplot.close("all")


def scored() -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    random = np.random.default_rng(0)
    x = random.standard_normal((150, 7))
    return x, x @ [2.0, 0, -1.5, 0, 0, 1.5, 0], random


@pytest.mark.parametrize("classes", [2, 3])
def test_criteria_of_classes(classes: int) -> None:
    x, score, random = scored()
    y = np.digitize(score + random.logistic(size=150), [0] if classes == 2 else [-1, 1])
    path = k_path(x, np.array(["a", "b", "c"])[y], 5, loss="logistic", cv=3)
    for k, support, loss, bic in zip(path.k, path.supports, path.loss, path.bic, strict=True):
        plain = LogisticRegression(C=np.inf, tol=1e-8).fit(x[:, support], y)
        expected = log_loss(y, plain.predict_proba(x[:, support]))
        assert loss == pytest.approx(expected, rel=1e-5)
        assert bic == pytest.approx(300 * expected + k * (classes - 1) * math.log(150), rel=1e-5)
    assert path.best("ebic") == path.best("cv_1se") == 3
    assert path.supports[2].tolist() == [0, 2, 5]
    assert path.cv is not None
    assert path.cv.shape == (5, 3)
    fitted, tested = next(StratifiedKFold(3).split(x, y))
    plain = LogisticRegression(C=np.inf, tol=1e-8).fit(x[fitted][:, [0, 2, 5]], y[fitted])
    expected = log_loss(y[tested], plain.predict_proba(x[tested][:, [0, 2, 5]]))
    assert path.cv[2, 0] == pytest.approx(expected, rel=1e-4)


def test_criteria_of_counts_and_times() -> None:
    x, score, random = scored()
    y = random.poisson(np.exp(score / 2))
    path = k_path(x, y, 5, loss="poisson", cv=3)
    plain = PoissonRegressor(alpha=0, tol=1e-9).fit(x[:, [0, 2, 5]], y)
    expected = mean_poisson_deviance(y, plain.predict(x[:, [0, 2, 5]])) / 2
    assert path.loss[2] == pytest.approx(expected, rel=1e-6)
    assert path.best("ebic") == path.best("cv_1se") == 3
    time, end = random.exponential(np.exp(-score)), random.uniform(0, 4, 150)
    y = np.column_stack([np.minimum(time, end), time <= end])
    path = k_path(x, y, 5, loss="cox", cv=3)
    model = KSubsetCox(3).fit(x, y)
    assert path.supports[2].tolist() == np.flatnonzero(model.support_).tolist() == [0, 2, 5]
    hazard, expected = np.exp(model.predict(x)), 0.0
    for i in np.flatnonzero(y[:, 1]):
        expected -= math.log(hazard[i] / hazard[y[:, 0] >= y[i, 0]].sum())
    events = y[:, 1].sum()
    assert path.loss[2] == pytest.approx(expected / events)
    assert path.bic[2] == pytest.approx(2 * expected + 3 * math.log(events))
    assert path.best("ebic") == path.best("cv_1se") == 3


def test_losses_and_folds_that_cannot_be() -> None:
    x, score, _ = scored()
    with pytest.raises(ValueError, match="loss must be one of 'squares', 'logistic', 'poisson', "):
        k_path(x, score, loss="huber")
    y = np.arange(150) // 50
    with pytest.raises(ValueError, match="y must have all classes in what is fitted, got none of"):
        k_path(x, y, 2, loss="logistic", cv=KFold(3))
