"""The frontier: error against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.scale.measure import Result

plt.rcParams["svg.hashsalt"] = "ksubset"
_TIMES = (0.3, 3000.0)  # in gradients by SIMPLE
# Marker and colour of each estimator; further settings of the same one are open, then half filled.
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
    "ste": (">", "#74c476"),
    "double_control": ("d", "#9e9ac8"),
    "st_gapped": ("H", "#7a0177"),
    "st_decoupled": ("P", "#fa9fb5"),
}
_FILLS: tuple[Any, ...] = ("full", "none", "left")
_OTHERS = "8x|_1"  # markers in grey, for estimators without a style of their own


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
    """A marker for one gradient; a line for the mean of several, of SIMPLE, of swap and of every
    method that has the least error at some time, from one gradient by SIMPLE on."""
    times = np.geomspace(*_TIMES, 300)
    errors = {r.method.label: _error_after(r, times) for r in results}
    later = np.stack([*errors.values()])[:, times >= 1]
    best = {results[i].method.label for i in np.argmin(later, axis=0)}
    seen: list[str] = []
    others = iter(_OTHERS)
    for r in results:
        label, estimator = r.method.label, r.method.estimator
        marker, colour = _STYLES.get(estimator) or (next(others, "d"), "#8a8a8a")
        fill = _FILLS[seen.count(estimator) % len(_FILLS)]
        seen.append(estimator)
        strong = label in ("SIMPLE", "swap")
        if strong or label in best:
            panel.plot(
                times, errors[label], "--" if fill == "none" else "-", color=colour,
                linewidth=2 if strong else 1.2, zorder=3,
            )  # fmt: skip
        panel.plot(
            r.time, r.squared_error.mean, marker, color=colour, label=label, fillstyle=fill,
            markersize=9 if strong else 6, zorder=4, linestyle="none",
        )  # fmt: skip
    panel.set(xscale="log", yscale="log", xlim=_TIMES, ylim=(1e-3, 2e6))
    panel.axhline(1, color="#bbbbbb", linewidth=0.9, zorder=0)
    panel.grid(color="#ececec", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _error_after(r: Result, times: Any) -> Any:
    """Of the mean of as many gradients as these times allow; infinite before the first."""
    known = r.squared_bias.mean > 3 * r.noise  # otherwise it is noise around zero
    bias = r.squared_bias.mean if known else 0.0
    return np.where(times >= r.time, bias + r.variance.mean * r.time / times, np.inf)
