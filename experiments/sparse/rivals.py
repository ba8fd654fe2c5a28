"""Who looks for the terms, each given k: by PySINDy, by scikit-learn, by all subsets, by us.

Rivals with a threshold or a penalty get the best one for their own good: of a grid, the setting
whose model has k terms and the smallest residual.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pysindy
from sklearn.linear_model import OrthogonalMatchingPursuit, lars_path

from ksubset.pysindy import KSubsetOptimizer

Array = npt.NDArray[Any]
Finder = Callable[[Array, Array, int, int], tuple[int, ...]]  # terms, target, k, seed


def residual(x: Array, y: Array, support: Iterable[int]) -> float:
    """Root mean square of what least squares on the support leaves."""
    columns = x[:, list(support)]
    return float(
        np.sqrt(np.square(y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]).mean())
    )


def _normed(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=0)


def _best(candidates: Iterable[Array], x: Array, y: Array, k: int) -> tuple[int, ...]:
    """Of supports with k terms that with the smallest residual; () if there is none."""
    supports = {tuple(np.flatnonzero(row).tolist()) for row in candidates}
    fitting = [support for support in supports if len(support) == k]
    return min(fitting, key=lambda support: residual(x, y, support), default=())


def _optimised(optimizer: Any, x: Array, y: Array) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a threshold that leaves nothing, or no convergence
        return optimizer.fit(_normed(x), y[:, None])


def ours(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """The smallest loss that the search finds."""
    found = KSubsetOptimizer(k=k, random_state=seed).fit(x, y[:, None])
    return tuple(np.flatnonzero(found.coef_[0]).tolist())


def ours_marginals(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """The most likely terms under the posterior over subsets."""
    found = KSubsetOptimizer(k=k, search=False, random_state=seed).fit(x, y[:, None])
    return tuple(np.flatnonzero(found.coef_[0]).tolist())


def stlsq(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Sequentially thresholded least squares, over thresholds."""
    size = np.abs(np.linalg.lstsq(_normed(x), y, rcond=None)[0]).max()
    found = (
        _optimised(pysindy.STLSQ(threshold=size * share, alpha=alpha, max_iter=50), x, y).coef_[0]
        for share in np.geomspace(1e-3, 1, 30)
        for alpha in (0, 1e-3)
    )
    return _best(found, x, y, k)


def sr3(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Sparse relaxed regularised regression, over weights."""
    size = np.abs(np.linalg.lstsq(_normed(x), y, rcond=None)[0]).max()
    found = (
        _optimised(
            pysindy.SR3(
                reg_weight_lam=(size * share) ** 2 / 2, regularizer="L0", relax_coeff_nu=1.0,
                max_iter=2000,
            ), x, y,
        ).coef_[0]
        for share in np.geomspace(1e-3, 1, 15)
    )  # fmt: skip
    return _best(found, x, y, k)


def _of_history(optimizer: Any, x: Array, y: Array, k: int) -> tuple[int, ...]:
    found = _optimised(optimizer, x, y)
    return _best([np.abs(row[0]) > 1e-14 for row in found.history_], x, y, k)


def ssr(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Stepwise sparse regression: terms leave one by one."""
    return _of_history(pysindy.SSR(max_iter=100, kappa=1e-16), x, y, k)


def frols(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Forward orthogonal least squares."""
    return _of_history(pysindy.FROLS(max_iter=k, kappa=1e-16), x, y, k)


def miosr(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Mixed-integer optimisation, which is exact up to its ridge penalties."""
    found = (
        _optimised(pysindy.MIOSR(target_sparsity=k, alpha=alpha), x, y).coef_[0]
        for alpha in (0.0, 1e-6, 1e-3)
    )
    return _best(found, x, y, k)


def pursuit(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Orthogonal matching pursuit."""
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False)
    return tuple(np.flatnonzero(model.fit(_normed(x), y).coef_).tolist())


def lasso(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """Along its path."""
    return _best(lars_path(_normed(x), y, method="lasso")[2].T, x, y, k)


def exhaustive(x: Array, y: Array, k: int, seed: int) -> tuple[int, ...]:
    """All subsets, from the Gram matrix."""
    columns = _normed(x)
    gram, moments = columns.T @ columns, columns.T @ y
    table = np.array(list(itertools.combinations(range(x.shape[1]), k)))
    blocks = gram[table[:, :, None], table[:, None, :]]
    explained = (moments[table] * np.linalg.solve(blocks, moments[table][..., None])[..., 0]).sum(
        -1
    )
    return tuple(table[explained.argmax()].tolist())


FINDERS: dict[str, Finder] = {
    "ksubset": ours,
    "ksubset, marginals": ours_marginals,
    "STLSQ": stlsq,
    "SR3": sr3,
    "SSR": ssr,
    "FROLS": frols,
    "OMP": pursuit,
    "lasso": lasso,
    "all subsets": exhaustive,
}
# It needs a solver of its own, free for problems of this size: pip install gurobipy.
if find_spec("gurobipy") is not None:
    FINDERS["MIOSR"] = miosr
