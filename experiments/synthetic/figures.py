"""The study's pictures."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.synthetic import labels
from experiments.synthetic.measure import Measured
from experiments.synthetic.methods import PAPER

BLUE, PURPLE, ORANGE, GREEN = "#08519c", "#6a51a3", "#d94801", "#5b8c5a"
HIGHLIGHTED = ("SIMPLE", "swap")
plt.rcParams["svg.hashsalt"] = "ksubset"
plt.rcParams["svg.fonttype"] = "none"


def colour(result: Measured) -> str:
    """SIMPLE blue, the swap estimators purple, the paper's baselines orange, others green."""
    method = result.method
    if method.label == "SIMPLE":
        return BLUE
    if "swap" in method.estimator or method.estimator == "removal":
        return PURPLE
    return ORANGE if method.label in PAPER or method.label.startswith("ST Gumbel-soft") else GREEN


def _bars(panel: Axes, results: Sequence[Measured], what: str, title: str) -> None:
    names = [r.method.label for r in results]
    values = np.array([getattr(r, what) for r in results])
    places = np.arange(len(names))[::-1]
    panel.barh(places, values.mean(1), color=[colour(r) for r in results], height=0.62)
    if values.shape[1] > 1:
        panel.errorbar(
            values.mean(1), places, xerr=values.std(1), fmt="none", ecolor="#333333", elinewidth=1
        )
    for place, mean in zip(places, values.mean(1), strict=True):
        panel.text(
            1.02, place, f"{mean:.4f}", va="center", fontsize=8.5, color="#333333",
            transform=panel.get_yaxis_transform(),
        )  # fmt: skip
    panel.set_yticks(places, names, fontsize=9)
    panel.set_xlim(left=0)
    panel.set_title(title, fontsize=10.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    panel.set_axisbelow(True)


def metrics(results: Sequence[Measured], title: str) -> Figure:
    """Bias, variance and error, one panel each: the paper's figure 1."""
    height = 1.3 + 0.34 * len(results)
    figure, panels = plt.subplots(1, 3, figsize=(13, height), layout="constrained", sharey=True)
    panels[0].set_ylim(-0.6, len(results) - 0.4)
    headings = {
        "bias": "bias: 1 − cos(mean, exact)",
        "variance": "variance of cos(gradient, mean)",
        "error": "error: mean of 1 − cos(gradient, exact)",
    }
    for panel, (what, heading) in zip(panels, headings.items(), strict=True):
        _bars(panel, results, what, heading)
    figure.suptitle(title, fontsize=11)
    return figure


def bias_and_variance(
    results: Sequence[Measured], title: str, size: tuple[float, float] = (9, 4.6)
) -> Figure:
    """A point for every method; it is open for several samples. Both axes are square roots, so that
    points near the corner can be told apart."""
    figure, panel = plt.subplots(figsize=size, layout="constrained")
    points = {r.method.label: (float(np.mean(r.bias)), float(np.mean(r.variance))) for r in results}
    for r in results:
        strong = r.method.label in HIGHLIGHTED
        panel.plot(
            *points[r.method.label], "o", color=colour(r), markersize=9 if strong else 7,
            fillstyle="none" if r.method.samples > 1 else "full", zorder=4 if strong else 3,
        )  # fmt: skip
    panel.set_xscale("function", functions=(_root, _square))
    panel.set_yscale("function", functions=(_root, _square))
    right, top = np.max(list(points.values()), axis=0)
    panel.set(
        xlabel="bias: 1 − cos(mean gradient, exact gradient)",
        ylabel="variance of cos(gradient, mean)",
        xlim=(-0.001, 1.25 * right), ylim=(-0.001, 1.12 * top),
    )  # fmt: skip
    panel.set_xticks([t for t in (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4) if t < 1.25 * right])
    panel.set_yticks([t for t in (0, 0.002, 0.01, 0.03, 0.06, 0.1, 0.15) if t < 1.12 * top])
    panel.set_title(title, fontsize=10.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e8e8e8", linewidth=0.8)
    panel.set_axisbelow(True)
    labels.place(panel, points, HIGHLIGHTED)
    return figure


def _root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sign(x) * np.sqrt(np.abs(x))


def _square(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sign(x) * np.square(x)
