"""The study's picture: errors and precisions of all methods."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from experiments.beer.results import Entry, in_cell

_COLOURS = {
    "simple": "#08519c", "simple-authors": "#6baed6", "l2x": "#31a354", "softsub": "#756bb1",
    "imle": "#d94801", "reinmax": "#c51b8a", "score": "#969696", "simple-4": "#4292c6",
    "simple-16": "#08306b", "simple-marginals": "#41b6c4", "swap": "#e6ab02", "swap-4": "#a6761d",
}  # fmt: skip
_PANELS = (("test", "test MSE × 100 (lower is better)"), ("precision", "precision × 100 (higher)"))


def comparison(found: Sequence[Entry]) -> Figure:
    """A panel for MSE and one for precision: means over splits with a deviation."""
    cells = list(dict.fromkeys((entry.aspect, entry.k) for entry in found))
    methods = list(dict.fromkeys(entry.method for entry in found))
    labels = {entry.method: entry.label for entry in found}
    figure, panels = plt.subplots(1, 2, figsize=(12.5, 4.4), layout="constrained")
    width = 0.8 / max(len(methods), 1)
    for panel, (name, label) in zip(panels, _PANELS, strict=True):
        for number, method in enumerate(methods):
            for place, (aspect, k) in enumerate(cells):
                for entry in (e for e in in_cell(found, aspect, k) if e.method == method):
                    values = entry.values(name)
                    if not len(values):
                        continue
                    panel.errorbar(
                        place + (number - (len(methods) - 1) / 2) * width, values.mean(),
                        values.std(ddof=1) if len(values) > 1 else 0, fmt="o", capsize=3,
                        color=_COLOURS.get(method, "#333333"),
                        label=labels[method] if panel is panels[0] else None,
                    )  # fmt: skip
        panel.set_xticks(np.arange(len(cells)), [f"{aspect}\nk = {k}" for aspect, k in cells])
        panel.set_ylabel(label)
        panel.grid(axis="y", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure
