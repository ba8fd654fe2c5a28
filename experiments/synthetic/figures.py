"""The study's pictures."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.synthetic.contestants import PAPER
from experiments.synthetic.measure import Measured

OURS, RIVAL, BEYOND = "#08519c", "#d94801", "#5b8c5a"
plt.rcParams["svg.hashsalt"] = "ksubset"
plt.rcParams["svg.fonttype"] = "none"


def colour(label: str) -> str:
    """SIMPLE, the paper's rivals, the others."""
    if label == "SIMPLE":
        return OURS
    return RIVAL if label in PAPER or label.startswith("ST Gumbel-soft") else BEYOND


def _bars(panel: Axes, results: Sequence[Measured], what: str, title: str) -> None:
    labels = [r.contestant.label for r in results]
    values = np.array([getattr(r, what) for r in results])
    places = np.arange(len(labels))[::-1]
    colours = [colour(label) for label in labels]
    panel.barh(places, values.mean(1), color=colours, height=0.62)
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
    """Bias, variance and error of all, one panel each: the paper's figure 1."""
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
    """A point for every contestant."""
    figure, panel = plt.subplots(figsize=(9, 4.4), layout="constrained")
    for i, r in enumerate(results):
        bias, variance = np.mean(r.bias), np.mean(r.variance)
        panel.scatter(bias, variance, s=45, color=colour(r.contestant.label), zorder=3)
        panel.annotate(
            r.contestant.label, (bias, variance), xytext=(7, -10 if i % 2 else 5),
            textcoords="offset points", fontsize=8.5,
        )  # fmt: skip
    panel.set(xlabel="bias: 1 − cos(mean, exact)", ylabel="variance of cos(gradient, mean)")
    panel.set_title(title, fontsize=10.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e8e8e8", linewidth=0.8)
    panel.margins(x=0.2, y=0.14)
    return figure
