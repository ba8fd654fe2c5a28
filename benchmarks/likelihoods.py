"""Planted supports of classes, counts and times that ksubset and abess find, on abess's own data.

python benchmarks/likelihoods.py [--seeds 100] [--families binomial cox]

Needs abess, which is no dependency: pip install abess. Everything runs on one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from machine import processor, set_threads

from ksubset.regression import Cox, Likelihood, Logistic, Multinomial, Poisson, select

Array = npt.NDArray[Any]

FAMILIES = {
    "binomial": "LogisticRegression",
    "poisson": "PoissonRegression",
    "cox": "CoxPHSurvivalAnalysis",
    "multinomial": "MultinomialRegression",
}
# Weaker coefficients than abess's, of which a part of the features cannot be found.
WEAK = {"binomial": 1.0, "poisson": 3.0, "cox": 1.5, "multinomial": 1.0}
# abess with every setting raised that bounds its search.
THOROUGH: dict[str, Any] = {
    "exchange_num": 10, "max_iter": 100, "important_search": 0, "primary_model_fit_max_iter": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Of a generator: observations, features, those that count, and the correlation."""

    m: int = 500
    n: int = 1000
    k: int = 10
    correlation: float = 0.0
    kind: str = "const"
    weak: bool = False

    def __str__(self) -> str:
        name = f"{self.m} x {self.n}, {self.kind} {self.correlation}"
        return name + (", weak" if self.weak else "")


SETTINGS = (
    Setting(),
    Setting(correlation=0.5),
    Setting(correlation=0.9, kind="exp"),
    Setting(correlation=0.5, weak=True),
    Setting(m=200, n=500, correlation=0.5),
)


def generate(family: str, setting: Setting, seed: int) -> tuple[Array, Array, Array]:
    """X, y and the true features."""
    datasets = importlib.import_module("abess.datasets")

    several = family == "multinomial"
    coefficients = None
    if setting.weak:
        random = np.random.default_rng(seed)
        chosen = random.choice(setting.n, setting.k, replace=False)
        shape = (setting.k, 3) if several else (setting.k,)
        coefficients = np.zeros((setting.n, *shape[1:]))
        sizes = random.uniform(0.5, 1.5, shape) * random.choice([-1, 1], shape)
        coefficients[chosen] = WEAK[family] * sizes
    np.random.seed(seed)  # the generator's only source
    options: dict[str, Any] = {"M": 3} if several else {}
    make = datasets.make_multivariate_glm_data if several else datasets.make_glm_data
    with contextlib.redirect_stdout(io.StringIO()):
        data = make(
            n=setting.m, p=setting.n, k=setting.k, family=family, rho=setting.correlation,
            corr_type=setting.kind, coef_=coefficients, **options,
        )  # fmt: skip
    return np.asarray(data.x, dtype=np.float64), np.asarray(data.y), support(data.coef_)


def support(coefficients: Any) -> Array:
    """Rows that are not zero."""
    rows = np.asarray(coefficients)
    return np.flatnonzero(np.abs(rows).reshape(len(rows), -1).sum(1))


def likelihood(family: str, y: Array) -> Likelihood:
    """Of abess's outcomes."""
    weights = np.ones(len(y))
    if family == "cox":
        return Cox(y[:, 0], y[:, 1] > 0, weights)
    if family == "multinomial":
        return Multinomial(y.argmax(1), weights, y.shape[1])
    counts = y.astype(np.float64)
    return Logistic(counts, weights) if family == "binomial" else Poisson(counts, weights)


def run_abess(family: str, x: Array, y: Array, k: int, **options: Any) -> Array:
    """The support of size k that abess finds."""
    abess = importlib.import_module("abess")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(abess, FAMILIES[family])(support_size=k, **options).fit(x, y)
    return support(model.coef_)


def compare(family: str, setting: Setting, seeds: int) -> None:
    """Print a row for every method."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(seeds):
        x, y, truth = generate(family, setting, seed)
        loss = likelihood(family, y)
        found, times = {}, {}
        for name, options in (("abess", {}), ("abess, thorough", THOROUGH)):
            start = time.perf_counter()
            found[name] = run_abess(family, x, y, setting.k, **options)
            times[name] = time.perf_counter() - start
        start = time.perf_counter()
        found["ksubset"] = select(x, loss, setting.k).support
        times["ksubset"] = time.perf_counter() - start
        losses = {name: select(x[:, s], loss, len(s)).loss for name, s in found.items()}
        least = min(losses.values())
        for name, chosen in found.items():
            true = np.isin(chosen, truth).sum()
            lowest = losses[name] <= least * (1 + 1e-6)
            rows.setdefault(name, []).append((true, true == len(truth), lowest, times[name]))
    for name, results in rows.items():
        true, exact, lowest, seconds = np.array(results, dtype=np.float64).T
        error = true.std(ddof=1) / np.sqrt(seeds)
        shares = f"{100 * exact.mean():.0f} % | {100 * lowest.mean():.0f} %"
        row = f"{name} | {true.mean():.2f} ± {error:.2f} | {shares} | {np.median(seconds):.3f}"
        print(f"| {family} | {setting} | {row} |", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    options = parser.parse_args()
    set_threads(1)
    print(f"{processor()}, one thread, {options.seeds} seeds, k = 10\n")
    print("| family | data | method | true of 10 | all found | lowest loss | seconds |")
    print("|---|---|---|---|---|---|---|")
    for family in options.families:
        for setting in SETTINGS:
            compare(family, setting, options.seeds)


if __name__ == "__main__":
    main()
