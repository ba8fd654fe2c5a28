"""Planted sparse regression: true features found, the loss of exhaustive search, and a large one.

python benchmarks/sparse_regression.py [--seeds 10] [--only recovery exhaustive large]

Equicorrelated Gaussian features (0.9), coefficients ±U(0.5, 1.5), variance of the signal five times
that of the noise.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from machine import processor, set_threads
from sklearn.linear_model import OrthogonalMatchingPursuit, lars_path

from ksubset.sklearn import KSubsetRegressor, KSubsetSelector

Array = npt.NDArray[Any]


def planted(
    seed: int, rows: int, n: int, k: int, correlation: float = 0.9, dtype: type = np.float64
) -> tuple[Array, Array, Array]:
    """X, y and the true features."""
    random = np.random.default_rng(seed)
    x: Array = np.empty((rows, n), dtype)
    shared = random.standard_normal((rows, 1)).astype(dtype) * dtype(correlation**0.5)
    for start in range(0, n, 1000):
        part = random.standard_normal((rows, min(1000, n - start)), dtype=dtype)
        x[:, start : start + 1000] = shared + part * dtype((1 - correlation) ** 0.5)
    chosen = np.sort(random.choice(n, k, replace=False))
    weights = random.uniform(0.5, 1.5, k) * random.choice([-1, 1], k)
    signal = x[:, chosen].astype(np.float64) @ weights
    variance = (1 - correlation) * weights @ weights + correlation * weights.sum() ** 2
    noise = random.standard_normal(rows) * np.sqrt(variance / 5)
    return x, signal + noise, chosen


def _standardised(x: Array, y: Array) -> tuple[Array, Array]:
    x, y = x - x.mean(0), y - y.mean()
    return x / np.linalg.norm(x, axis=0), y


def pursuit(x: Array, y: Array, truth: Array) -> Array:
    """Orthogonal matching pursuit."""
    k = len(truth)
    return np.flatnonzero(OrthogonalMatchingPursuit(n_nonzero_coefs=k).fit(x, y).coef_)


def _largest(weights: Array, k: int) -> Array:
    order = np.argsort(-abs(weights), kind="stable")[:k]
    return order[weights[order] != 0]


PENALTIES = np.geomspace(1, 0.005, 100)  # relative to the least that leaves no feature


def _lasso_path(x: Array, y: Array, k: int) -> Array:
    """Coefficients (penalties, n), which are linear between the breaks of the path."""
    breaks, _, path = lars_path(*_standardised(x, y), method="lasso", max_iter=30 * k)
    active = np.flatnonzero(path.any(1))
    found = np.zeros((len(PENALTIES), len(path)))
    for i in active:
        found[:, i] = np.interp(PENALTIES, breaks[::-1] / breaks[0], path[i, ::-1])
    return found


def _most_true(choices: Iterable[Array], truth: Array) -> Array:
    return max(choices, key=lambda chosen: np.isin(chosen, truth).sum())


def lasso(x: Array, y: Array, truth: Array) -> Array:
    """Of its models with at most k features, the one with most true ones."""
    path = [np.flatnonzero(weights) for weights in _lasso_path(x, y, len(truth))]
    return _most_true((chosen for chosen in path if len(chosen) <= len(truth)), truth)


def lasso_thresholded(x: Array, y: Array, truth: Array) -> Array:
    """The k largest coefficients, at the penalty where most of them are true."""
    path = _lasso_path(x, y, len(truth))
    return _most_true((_largest(weights, len(truth)) for weights in path), truth)


def ours(search: bool) -> Callable[[Array, Array, Array], Array]:
    """The selector, by its marginals or after the swap search."""

    def choose(x: Array, y: Array, truth: Array) -> Array:
        selector = KSubsetSelector(len(truth), search=search, random_state=0).fit(x, y)
        return selector.get_support(indices=True)

    return choose


CONTESTANTS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "ksubset, largest marginals": ours(False),
    "ksubset, swap search": ours(True),
    "orthogonal matching pursuit": pursuit,
    "lasso, best penalty in hindsight": lasso,
    "lasso, its k largest at the best penalty in hindsight": lasso_thresholded,
}


def recovery(seeds: int) -> None:
    """1000 features, 500 rows, k = 10."""
    ours(False)(*planted(0, 50, 20, 2))  # kernels are compiled before anything is timed
    print("| | true features found of 10, mean | least | seconds |\n|---|---|---|---|")
    for name, choose in CONTESTANTS.items():
        found, start = [], time.perf_counter()
        for seed in range(seeds):
            x, y, truth = planted(seed, 500, 1000, 10)
            found.append(np.isin(choose(x, y, truth), truth).sum())
        seconds = (time.perf_counter() - start) / seeds
        print(f"| {name} | {np.mean(found):.2f} | {min(found)} | {seconds:.2f} |", flush=True)
    shares = []
    for seed in range(seeds):
        x, y, truth = planted(seed, 500, 1000, 10)
        choices = (_largest(weights, 10) for weights in _lasso_path(x, y, 10))
        shares.append([np.isin(chosen, truth).sum() for chosen in choices])
    best = int(np.mean(shares, 0).argmax())
    name = f"lasso, its k largest at one penalty for all seeds ({PENALTIES[best]:.2f}, the best)"
    print(f"| {name} | {np.mean(shares, 0)[best]:.2f} | {min(s[best] for s in shares)} | |")


def _losses(x: Array, y: Array, supports: Array) -> Array:
    """Residual sums of squares of supports (b, k), of centred data."""
    gram, moments = x.T @ x, x.T @ y
    blocks = gram[supports[:, :, None], supports[:, None, :]]
    weights = np.linalg.solve(blocks, moments[supports][..., None])[..., 0]
    return y @ y - (moments[supports] * weights).sum(-1)


def exhaustive(seeds: int) -> None:
    """30 features, k = 5, 100 rows: all 142,506 subsets."""
    table = np.array(list(itertools.combinations(range(30), 5)))
    same = alone = 0
    for seed in range(seeds):
        x, y, _ = planted(seed, 100, 30, 5)
        x, y = _standardised(x, y)
        best = min(_losses(x, y, part).min() for part in np.array_split(table, 10))
        for search in (True, False):
            model = KSubsetRegressor(5, search=search, random_state=0).fit(x, y)
            loss = _losses(x, y, np.flatnonzero(model.support_)[None])[0]
            equal = abs(loss - best) <= 1e-9 * best
            same, alone = same + (equal and search), alone + (equal and not search)
    print(f"the loss of exhaustive search: {same} of {seeds}; without the swap search: {alone}")


def large(seed: int) -> None:
    """100,000 features, 2,000 rows, k = 20, in float32."""
    x, y, truth = planted(seed, 2000, 100_000, 20, dtype=np.float32)
    ours(False)(*planted(0, 50, 20, 2))
    start = time.perf_counter()
    model = KSubsetRegressor(20, random_state=0).fit(x, y)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = int(np.isin(np.flatnonzero(model.support_), truth).sum())
    by_marginals = int(np.isin(np.argsort(-model.marginals_)[:20], truth).sum())
    print(
        f"seed {seed}: {seconds:.1f} s, peak {peak:.2f} GiB, {found} of 20 true features "
        f"({by_marginals} by marginals), {model.n_swaps_} swaps",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=["recovery", "exhaustive", "large"])
    parser.add_argument("--large-seed", type=int)
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    if arguments.large_seed is not None:
        large(arguments.large_seed)
        sys.exit()
    print(f"{processor()}, {arguments.threads} threads")
    if "recovery" in arguments.only:
        recovery(arguments.seeds)
    if "exhaustive" in arguments.only:
        exhaustive(arguments.seeds)
    if "large" in arguments.only:
        for seed in range(min(3, arguments.seeds)):  # a process each: its peak is of this alone
            command = [sys.executable, __file__, "--large-seed", str(seed)]
            subprocess.run([*command, "--threads", str(arguments.threads)], check=True)
