"""How many features? The path over k, with an information criterion and cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_X_y

from ksubset.sklearn.fitting import KINDS, Array, check_k, check_settings, check_targets
from ksubset.sklearn.outcomes import read_outcomes, read_times
from ksubset.sklearn.path_losses import Likelihoods, PathLoss, Squares

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class KPath:
    r"""Best subsets of every size k = 1 ... K.

    Attributes:
        k: the sizes, (K,).
        supports: the chosen features of every size, K ascending arrays of 1 ... K indices.
        loss: residual sums of squares, averaged over observations and targets; for other losses
            the negative log-likelihood (half the deviance for counts) for every observation, or
            for every event for "cox"; (K,).
        bic: :math:`m t \log \mathrm{loss} + k t \log m`; t targets, m observations; for other
            losses :math:`2 m\, \mathrm{loss} + k t \log m`, with t one less than there are
            classes, else 1, and events in place of observations for "cox"; (K,).
        ebic: :math:`\mathrm{bic} + 2 \log \binom{n}{k}`: also pays for having had n features to
            choose from; (K,).
        cv: the loss on the folds, (K, folds); subsets are chosen anew in each. None without
            cross-validation.
        measure: what the loss is, in words.

    Examples:
        >>> import numpy as np
        >>> from ksubset.sklearn import KPath
        >>> supports = [np.array([1]), np.array([1, 4]), np.array([1, 2, 4])]
        >>> bic, ebic = np.array([90.0, 40.0, 39.0]), np.array([94.0, 47.0, 49.0])
        >>> path = KPath(np.arange(1, 4), supports, np.array([2.0, 1.0, 0.9]), bic, ebic)
        >>> path.best("bic"), path.best("ebic")
        (3, 2)
    """

    k: Array
    supports: list[Array]
    loss: Array
    bic: Array
    ebic: Array
    cv: Array | None = None
    measure: str = "mean squared error"

    def best(self, criterion: str = "ebic") -> int:
        """The k to take.

        Args:
            criterion: the k with the smallest "bic", "ebic" or "cv" (mean of the folds), or the
                smallest k within one standard error of that, "cv_1se".
        """
        if criterion in ("bic", "ebic"):
            return int(self.k[np.argmin(getattr(self, criterion))])
        if criterion not in ("cv", "cv_1se"):
            raise ValueError(
                f"criterion must be one of 'bic', 'ebic', 'cv', 'cv_1se', got {criterion!r}"
            )
        if self.cv is None:
            raise ValueError(f"criterion {criterion!r} needs a path with cv")
        mean = self.cv.mean(1)
        lowest = int(np.argmin(mean))
        if criterion == "cv":
            return int(self.k[lowest])
        if self.cv.shape[1] < 2:
            raise ValueError("criterion 'cv_1se' needs at least two folds, the path has one")
        error = self.cv[lowest].std(ddof=1) / np.sqrt(self.cv.shape[1])
        return int(self.k[np.flatnonzero(mean <= mean[lowest] + error)[0]])


def k_path(
    X: Any,  # noqa: N803
    y: Any,
    k_max: int | None = None,
    *,
    loss: str = "squares",
    cv: Any = None,
    fit_intercept: bool = True,
    alpha: float = 0.0,
    search: bool = True,
    gamma: float | None = None,
    n_restarts: int = 0,
    max_iter: int = 60,
    method: str = "auto",
    random_state: Any = None,
) -> KPath:
    r"""Best subsets of the sizes 1 ... k_max: for every k
    :math:`\min_w \sum_j (y_j - x_j^\top w - b)^2 + \alpha \|w\|^2` with at most k of the
    coefficients other than zero, from one Gram matrix; or the same for the loss of another
    estimator.

    Args:
        X: (m, n), an array, or for least squares also sparse.
        y: (m,) or (m, t); for other losses as their estimators take it.
        k_max: None takes the smaller of n and 10.
        loss: "squares" as in :class:`KSubsetRegressor`, "logistic" as in
            :class:`KSubsetClassifier`, "poisson" as in :class:`KSubsetPoissonRegressor`, or "cox"
            as in :class:`KSubsetCox`.
        cv: folds as scikit-learn takes them (a number, a splitter); None for none. A number gives
            every fold the same shares of the classes, or of the events.
        fit_intercept: with a constant b.
        alpha: the ridge penalty of the loss's estimator.
        search: finish with the search of the loss's estimator; False takes the features with the
            largest marginals, or for other losses those of forward selection.
        gamma: the prior variance of a coefficient on a column of norm 1, in units of the noise's,
            for the training; None estimates it with the noise level. This and the parameters after
            it are for least squares: the other searches are deterministic.
        n_restarts: distributions to train, whose most likely subsets give the search more starts;
            it rarely needs them, and takes many times as long with them.
        max_iter: steps of training.
        method: "gram", "rows", or "auto", by the number of features.
        random_state: of the samples.

    Returns:
        Supports, losses and criteria of every size.

    Examples:
        >>> from ksubset.sklearn import k_path
        >>> x = torch.randn(300, 15).double().numpy()
        >>> y = x[:, 1] + x[:, 4] - x[:, 9] + 0.3 * torch.randn(300).numpy()
        >>> path = k_path(x, y, k_max=6, cv=5, random_state=0)
        >>> path.best("ebic"), path.best("cv_1se"), path.supports[2].tolist()
        (3, 3, [1, 4, 9])
        >>> k_path(x, y > 1, k_max=6, loss="logistic").best("ebic")
        3
    """
    settings = check_settings(alpha=alpha, gamma=gamma, n_restarts=n_restarts, max_iter=max_iter)
    data: PathLoss
    if loss == "squares":
        check_targets(y)
        x, targets = check_X_y(
            X, y, multi_output=True, y_numeric=True, dtype=KINDS, ensure_min_samples=2,
            accept_sparse="csr",
        )  # fmt: skip
        data = Squares(
            x, targets.reshape(len(targets), -1), fit_intercept, alpha, search, method, settings,
            check_random_state(random_state),
        )  # fmt: skip
    elif loss in ("logistic", "poisson", "cox"):
        y = read_times(y) if loss == "cox" else y
        numeric = loss != "logistic"
        x, y = check_X_y(
            X, y, multi_output=loss == "cox", y_numeric=numeric, dtype=KINDS, ensure_min_samples=2
        )
        data = Likelihoods(x, read_outcomes(loss, y), fit_intercept, alpha, search)
    else:
        raise ValueError(
            f"loss must be one of 'squares', 'logistic', 'poisson', 'cox', got {loss!r}"
        )
    return _path(data, check_k(min(10, x.shape[1]) if k_max is None else k_max, x.shape[1]), cv)


def _path(data: PathLoss, largest: int, cv: Any) -> KPath:
    """Of all sizes up to the largest."""
    sizes, everything = np.arange(1, largest + 1), np.arange(data.x.shape[0])
    found = data.models(everything, sizes)
    losses = np.array([data.loss(model, everything) for model in found])
    folds = None
    if cv is not None:
        strata = data.strata
        splitter = check_cv(cv, strata, classifier=strata is not None)
        errors = [
            [data.loss(model, tested) for model in data.models(fitted, sizes)]
            for fitted, tested in splitter.split(data.x, strata)
        ]
        if not errors:
            raise ValueError(f"cv must have at least one fold, got {cv!r}")
        folds = np.array(errors).T
    bic = data.bic(losses, sizes)
    n = data.x.shape[1]
    ways = gammaln(n + 1) - gammaln(sizes + 1) - gammaln(n - sizes + 1)
    supports = [model.support for model in found]
    return KPath(sizes, supports, losses, bic, bic + 2 * ways, folds, data.measure)


def plot_path(path: KPath, criterion: str = "ebic", ax: Axes | None = None) -> Axes:
    """The loss, the criterion and the errors of cross-validation over k; needs
    matplotlib.

    Args:
        path: from :func:`k_path`.
        criterion: "bic", "ebic", "cv" or "cv_1se", as in :meth:`KPath.best`: the k it takes is
            marked; one of the first two is drawn too, on an axis of its own.
        ax: where to draw; None makes a figure.

    Returns:
        The axes.

    Examples:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> from ksubset.sklearn import k_path, plot_path
        >>> x = np.eye(50)[:, :4]
        >>> y = x @ [3.0, 0.0, 2.0, 0.0] + np.sin(np.arange(50)) / 10
        >>> path = k_path(x, y, random_state=0)
        >>> ax = plot_path(path, "bic", ax=Figure().subplots())
        >>> [line.get_label() for line in ax.lines]
        ['training', 'k = 2 (bic)']
    """
    chosen = path.best(criterion)
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("plot_path needs matplotlib: pip install matplotlib") from None

        ax = pyplot.subplots(figsize=(6, 3.5), layout="constrained")[1]
    ax.plot(path.k, path.loss, "o-", color="C0", label="training")
    if path.cv is not None:
        folds = path.cv.shape[1]
        spread = path.cv.std(1, ddof=1) / np.sqrt(folds) if folds > 1 else None
        ax.errorbar(path.k, path.cv.mean(1), spread, fmt="s-", color="C1", label="validation")
    ax.axvline(chosen, color="0.6", linestyle="--", label=f"k = {chosen} ({criterion})")
    ax.set(xlabel="k", ylabel=path.measure)
    ax.set_yscale("log")
    if criterion in ("bic", "ebic"):
        right = ax.twinx()
        right.plot(path.k, getattr(path, criterion), ".:", color="C2")
        right.set_ylabel(criterion.upper(), color="C2")
    ax.legend()
    return ax
