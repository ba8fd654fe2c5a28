"""Best subsets of planted problems: true features, loss, time and calibration of marginals.

python benchmarks/best_subset.py [--seeds 20] [--plot docs/pictures/calibration.svg]

Beside abess where that is installed (pip install abess), at its defaults and at other settings.
Both are given k, on one thread; times are interleaved, the best of three fits.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from machine import processor, set_threads
from planted import planted

from ksubset.sklearn import KSubsetRegressor

Array = npt.NDArray[Any]

SIZES = ((200, 1000, 10), (500, 5000, 20))  # observations, features, k
CELLS = tuple(itertools.product(SIZES, ("equal", "chain"), (1, 5)))
BINS = (0.01, 0.2, 0.4, 0.6, 0.8)


def ours(x: Array, y: Array, k: int) -> tuple[Array, Array]:
    """The support and the marginals."""
    model = KSubsetRegressor(k, random_state=0).fit(x, y)
    return np.flatnonzero(model.support_), model.marginals_


def abess_settings(k: int) -> dict[str, dict[str, Any]]:
    """From its defaults to the longest search that its parameters allow for."""
    path = {"support_size": range(k + 1), "ic_type": "loss"}  # warm starts up to k
    wide = {"important_search": 0, "exchange_num": k, "max_iter": 100}
    return {
        "default": {"support_size": k},
        "all columns": {"support_size": k, "important_search": 0},
        "wide": {"support_size": k, **wide},
        "path": path,
        "path, all columns": {**path, "important_search": 0},
        "path, wide": {**path, **wide},
    }


def abess() -> Callable[..., Array] | None:
    """A support of abess, or None where it is not installed."""
    try:
        from abess import LinearRegression  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None

    def fit(x: Array, y: Array, settings: dict[str, Any]) -> Array:
        return np.flatnonzero(LinearRegression(thread=1, **settings).fit(x, y).coef_)

    return fit


def loss(x: Array, y: Array, support: Array) -> float:
    """The share of the variance that least squares leaves."""
    columns = np.column_stack([np.ones(len(y)), x[:, support]])
    left = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(left @ left / np.square(y - y.mean()).sum())


def seconds(fit: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    fit()
    return time.perf_counter() - start


def run(seeds: int, picture: Path | None) -> None:
    """All cells, a line for each, and then the marginals of all."""
    other = abess()
    ours(*planted(0, 50, 300, 2, "equal", 5)[:2], 2)  # kernels are compiled before they are timed
    said, true, of = [], [], []
    for cell, ((m, n, k), design, snr) in enumerate(CELLS):
        shares: dict[str, list[float]] = {}
        losses: dict[str, list[float]] = {}
        times: list[Array] = []
        for seed in range(seeds):
            x, y, truth = planted(seed, m, n, k, design, snr)
            support, marginals = ours(x, y, k)
            likely = np.argsort(-marginals, kind="stable")[:k]
            found = {"ksubset": support, "ksubset, largest marginals": likely}
            if other is not None:
                for name, settings in abess_settings(k).items():
                    found[name] = other(x, y, settings)
            for name, chosen in found.items():
                shares.setdefault(name, []).append(np.isin(chosen, truth).sum() / k)
                losses.setdefault(name, []).append(loss(x, y, chosen))
            fits: list[Callable[[], Any]] = [partial(ours, x, y, k)]
            if other is not None:
                fits.append(partial(other, x, y, abess_settings(k)["default"]))
            times.append(np.min([[seconds(fit) for fit in fits] for _ in range(3)], 0))
            said.append(marginals)
            true.append(np.isin(np.arange(n), truth))
            of.append(np.full(n, cell))
        report((m, n, k, design, snr), shares, losses, np.array(times))
    everything = np.concatenate(said), np.concatenate(true), np.concatenate(of)
    calibration(*everything)
    if picture is not None:
        plot(*everything, picture)


def report(
    cell: tuple[Any, ...], shares: dict[str, list[float]], losses: dict[str, list[float]], t: Array
) -> None:
    """One cell: ours, abess at its defaults, and at its best setting."""
    print(f"\n{cell}")
    for name, share in shares.items():
        print(f"  {name}: true features {np.mean(share):.3f}, loss {np.mean(losses[name]):.4f}")
    milliseconds = np.round(1e3 * np.median(t, 0), 1)
    print(f"  milliseconds, ksubset and abess's default: {milliseconds}", end="")
    print(f", median ratio {np.median(t[:, 0] / t[:, -1]):.2f}")
    names = [name for name in shares if not name.startswith("ksubset")]
    if names:
        best = max(names, key=lambda name: float(np.mean(shares[name])))
        for name in sorted(set(shares).difference(names)):
            difference = np.subtract(shares[name], shares[best])
            error = difference.std(ddof=1) / len(difference) ** 0.5
            print(f"  {name} less {best}: {difference.mean():+.3f} (standard error {error:.3f})")


def calibration(said: Array, true: Array, of: Array) -> None:
    """What marginals say and how many features are true, by bins; the highest bin by cells too."""
    print("\n| marginals | features | mean | true |\n|---|---|---|---|")
    for low, high in zip(BINS, (*BINS[1:], 1.01), strict=True):
        inside = (said >= low) & (said < high)
        print(
            f"| {low} to {min(high, 1)} | {inside.sum()} | {said[inside].mean():.3f} "
            f"| {true[inside].mean():.3f} |"
        )
    for cell, name in enumerate(CELLS):
        inside = (said >= 0.8) & (of == cell)
        mean, share = said[inside].mean(), true[inside].mean()
        print(f"{name}: of {inside.sum()} from 0.8, mean {mean:.3f}, {share:.3f} are true")


def plot(said: Array, true: Array, of: Array, picture: Path) -> None:
    """The share of true features against what marginals say, in ten bins: of all cells, with 95 %
    intervals, and of each cell where a bin has 20 features or more."""
    plt.rcParams["svg.hashsalt"] = "ksubset"
    figure, axes = plt.subplots(figsize=(5, 4.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="calibrated")
    edges = np.append(0.01, np.linspace(0.1, 1, 10))
    for cell in (*range(len(CELLS)), None):
        rows = np.ones(len(of), bool) if cell is None else of == cell
        inside = [rows & (said >= a) & (said <= b) for a, b in itertools.pairwise(edges)]
        inside = [one for one in inside if one.sum() >= 20]
        means, shares = ([float(x[one].mean()) for one in inside] for x in (said, true))
        if cell is None:
            counts = np.array([one.sum() for one in inside])
            error = 1.96 * np.sqrt(np.multiply(shares, np.subtract(1, shares)) / counts)
            axes.errorbar(means, shares, error, fmt="o-", color="#08519c", capsize=3, label="all")
        else:
            label = "each of the eight kinds" if cell == 0 else None
            axes.plot(means, shares, ".", color="#fdae6b", label=label, zorder=0)
    axes.set(xlabel="marginal", ylabel="share of true features", xlim=(0, 1.01), ylim=(0, 1.03))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the calibration")
    arguments = parser.parse_args()
    set_threads(1)
    print(f"{processor()}, one thread")
    run(arguments.seeds, arguments.plot)
