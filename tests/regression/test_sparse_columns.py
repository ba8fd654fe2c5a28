"""Sparse X: what dense X gives, without being made dense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from ksubset.regression import CentredProblem, RowProblem, standardise
from ksubset.sklearn import KSubsetRegressor, KSubsetSelector, fitting, k_path
from ksubset.sklearn.sparse import standardise_sparse


def counts(m: int, n: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Mostly zeros; one column without an entry, one of ones, one with a large mean."""
    random = np.random.default_rng(seed)
    x = sparse.random(m, n, 0.05, format="lil", random_state=seed)
    x[:, 3] = 0
    x[:, 4] = 1
    x[:, 5] = 1e4 + random.standard_normal((m, 1))
    x = sparse.csr_matrix(x)
    dense = x[:, [5, 7, 11]].toarray()
    y = dense @ [1.0, 4.0, -5.0] + 0.1 * random.standard_normal(m)
    return x, y


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("method", ["gram", "rows"])
def test_the_problem_is_that_of_dense_columns(centre: bool, weighted: bool, method: str) -> None:
    x, y = counts(60, 20)
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(float) if weighted else None
    found = standardise_sparse(x, y, weights, centre, method)
    expected = standardise(
        torch.from_numpy(x.toarray()),
        torch.from_numpy(y),
        centre=centre,
        weights=None if weights is None else torch.from_numpy(weights),
        method=method,
    )
    assert found.rows == expected.rows
    torch.testing.assert_close(found.scale, expected.scale)
    one, other = found.problem, expected.problem
    torch.testing.assert_close(one.moments, other.moments, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(one.squares, other.squares)
    torch.testing.assert_close(one.totals, other.totals)
    support = torch.tensor([[7, 5, 2], [3, 4, 11]])
    for name in ("block", "products"):
        torch.testing.assert_close(
            getattr(one, name)(support), getattr(other, name)(support), atol=1e-9, rtol=1e-9
        )
    weights_of = torch.ones(2, 3, 1).double()
    torch.testing.assert_close(
        one.correlations(support, weights_of),
        other.correlations(support, weights_of),
        atol=1e-9,
        rtol=1e-9,
    )
    z = torch.rand(2, 20).double()
    for a, b in zip(one.fractional(z, 2.0), other.fractional(z, 2.0), strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array"])
@pytest.mark.parametrize("n", [40, 400])
def test_the_model_is_that_of_dense_columns(
    form: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_DENSE", 0)
    x, y = counts(150, n)
    given = getattr(sparse, form)(x)
    dense = KSubsetRegressor(3, random_state=0).fit(x.toarray(), y)
    model = KSubsetRegressor(3, random_state=0).fit(given, y)
    assert np.flatnonzero(model.support_).tolist() == [5, 7, 11]
    np.testing.assert_allclose(model.coef_, dense.coef_)
    np.testing.assert_allclose(model.marginals_, dense.marginals_, atol=1e-6)
    np.testing.assert_allclose(model.predict(given), dense.predict(x.toarray()))
    selector = KSubsetSelector(3, random_state=0).fit(given, y)
    assert selector.transform(given).shape == (150, 3)
    path, plain = (k_path(each, y, 4, cv=3, random_state=0) for each in (given, x.toarray()))
    np.testing.assert_allclose(path.ebic, plain.ebic)
    np.testing.assert_allclose(path.cv, plain.cv)


def test_nothing_is_made_dense() -> None:
    """A dense X would take 80 GB."""
    m = n = 100_000
    random = np.random.default_rng(0)
    shape = (m, n)
    places = random.integers(0, m, 1_000_000), random.integers(0, n, 1_000_000)
    x = sparse.csr_matrix((random.standard_normal(1_000_000), places), shape)
    x = sparse.hstack([sparse.random(m, 3, 0.1, random_state=0), x], format="csr")
    y = x[:, :3] @ np.array([1.0, -2.0, 3.0]) + 0.1 * random.standard_normal(m)
    model = KSubsetRegressor(3, random_state=0).fit(x, y)
    assert np.flatnonzero(model.support_).tolist() == [0, 1, 2]
    np.testing.assert_allclose(model.coef_[:3], [1, -2, 3], atol=0.05)


def test_large_dense_columns_are_not_copied() -> None:
    """The problem of centred columns is that of a copy."""
    x = torch.randn(30, 12).double() + 1000
    y = torch.randn(30, 2).double()
    y = y - y.mean(0)
    expected = standardise(x, y, method="rows").problem
    scale = torch.linalg.vector_norm(x - x.mean(0), dim=0)
    found = CentredProblem(x, y / torch.linalg.vector_norm(y), x.mean(0), scale)
    assert isinstance(expected, RowProblem)
    support = torch.tensor([[1, 4, 9]])
    torch.testing.assert_close(found.moments, expected.moments, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(found.products(support), expected.products(support))
    one, other = found.target(1), expected.target(1)
    torch.testing.assert_close(one.moments, other.moments, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(one.totals, other.totals)
