"""The study's pictures."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.synthetic.measure import Measured
from experiments.synthetic.methods import PAPER

BLUE, PURPLE, ORANGE, GREEN = "#08519c", "#6a51a3", "#d94801", "#5b8c5a"
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
    labels = [r.method.label for r in results]
    values = np.array([getattr(r, what) for r in results])
    places = np.arange(len(labels))[::-1]
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
    panel.set_yticks(places, labels, fontsize=9)
    panel.set_xlim(left=0)
    panel.set_title(title, fontsize=10.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    panel.set_axisbelow(True)


def metrics(results: Sequence[Measured], title: str) -> Figure:
    """Bias, variance and error, one panel each: the paper's figure 1."""
    height = 1.3 + 0.34 * len(results)
    figure, panels = plt.subplots(1, 3, figsize=(13, height), layout="constrained", sharey=True)
    headings = {
        "bias": "bias: 1 − cos(mean, exact)",
        "variance": "variance of cos(gradient, mean)",
        "error": "error: mean of 1 − cos(gradient, exact)",
    }
    for panel, (what, heading) in zip(panels, headings.items(), strict=True):
        _bars(panel, results, what, heading)
    figure.suptitle(title, fontsize=11)
    return figure


def bias_and_variance(results: Sequence[Measured], title: str) -> Figure:
    """A point for every method. Swap with k = 1 is ReinMax: their labels share a line."""
    figure, panel = plt.subplots(figsize=(9, 4.4), layout="constrained")
    labels: dict[tuple[float, float], list[str]] = {}
    for r in results:
        place = (round(float(np.mean(r.bias)), 3), round(float(np.mean(r.variance)), 3))
        labels.setdefault(place, []).append(r.method.label)
        panel.scatter(np.mean(r.bias), np.mean(r.variance), s=45, color=colour(r), zorder=3)
    for i, (place, names) in enumerate(labels.items()):
        panel.annotate(
            ", ".join(names), place, xytext=(7, -10 if i % 2 else 5),
            textcoords="offset points", fontsize=8.5,
        )  # fmt: skip
    panel.set(xlabel="bias: 1 − cos(mean, exact)", ylabel="variance of cos(gradient, mean)")
    panel.set_title(title, fontsize=10.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e8e8e8", linewidth=0.8)
    panel.margins(x=0.2, y=0.14)
    return figure
