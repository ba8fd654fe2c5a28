"""The frontier: error against time."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.scale.measure import Result

plt.rcParams["svg.hashsalt"] = "ksubset"
_MOST_SAMPLES = 1000
# Marker and colour of each estimator; settings of the same one differ in their filling.
_STYLES = {
    "simple": ("s", "#08519c"),
    "swap": ("o", "#d94801"),
    "sparse_swap": ("v", "#e69f00"),
    "corrected_swap": ("p", "#a63603"),
    "removal": ("h", "#8c2d04"),
    "reinmax": ("^", "#238b45"),
    "muprop": ("D", "#6a51a3"),
    "score": ("X", "#333333"),
    "st_gumbel": ("P", "#cc4c93"),
    "softsub": ("<", "#41b6c4"),
    "marginals": ("*", "#1f78b4"),
}
_OTHERS = ("d", "#9a9a9a")


def frontier(results: Sequence[Result]) -> Figure:
    """A panel for every loss and size."""
    losses = list(dict.fromkeys(r.loss for r in results))
    sizes = list(dict.fromkeys((r.n, r.k) for r in results))
    figure, panels = plt.subplots(
        len(losses), len(sizes), figsize=(1.5 + 3.6 * len(sizes), 1.6 + 3 * len(losses)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for row, loss in zip(panels, losses, strict=True):
        for panel, (n, k) in zip(row, sizes, strict=True):
            here = [r for r in results if (r.loss, r.n, r.k) == (loss, n, k)]
            _draw(panel, here)
            panel.set_title(f"{loss}, n = {n:,}, k = {k}", fontsize=10)
        row[0].set_ylabel("mean squared error / |gradient|²")
    for panel in panels[-1]:
        panel.set_xlabel("time, in gradients by SIMPLE")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(6, 2 * len(sizes)), fontsize=8.5,
        frameon=False,
    )  # fmt: skip
    return figure


def _draw(panel: Axes, results: Sequence[Result]) -> None:
    """A marker for one gradient; the line, for the mean of up to 1,000 of them."""
    seen: set[str] = set()
    counts = np.geomspace(1, _MOST_SAMPLES, 60)
    for r in results:
        marker, colour = _STYLES.get(r.method.estimator, _OTHERS)
        again = r.method.estimator in seen
        seen.add(r.method.estimator)
        bias, variance = max(r.squared_bias.mean, 0.0), r.variance.mean
        if r.squared_bias.mean < 2 * r.squared_bias.error:
            bias = 0.0  # none is measured
        strong = r.method.label in ("SIMPLE", "swap")
        if r.method.estimator in _STYLES:
            panel.plot(
                r.time * counts, bias + variance / counts, "-", color=colour,
                linewidth=2 if strong else 0.9, alpha=1 if strong else 0.5, zorder=3 if strong else 1,
            )  # fmt: skip
        panel.plot(
            r.time, r.squared_error.mean, marker, color=colour, label=r.method.label,
            markersize=9 if strong else 6, markerfacecolor="white" if again else colour,
            zorder=4, linestyle="none",
        )  # fmt: skip
    panel.set(xscale="log", yscale="log", xlim=(0.2, 2000), ylim=(1e-3, 3e4))
    panel.axhline(1, color="#bbbbbb", linewidth=0.9, zorder=0)
    panel.grid(color="#ececec", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
