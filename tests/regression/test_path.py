"""Choosing k."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from ksubset.sklearn import k_path, plot_path


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
