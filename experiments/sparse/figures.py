"""The study's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from experiments.sparse.kuramoto import TRUTH, Field

Array = npt.NDArray[Any]
plt.rcParams["svg.hashsalt"] = "ksubset"
plt.rcParams["svg.fonttype"] = "none"


def field(data: Field, predicted: Array, v_t: Array) -> Figure:
    """The field, its v_t, and what the equation says."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
    extent = (data.t[0], data.t[-1], data.x[0], data.x[-1])
    size = np.abs(v_t).max()
    shown = ((data.v, "v", None), (v_t, "v_t, from the data", size),
             (predicted, "v_t, from the equation found", size))  # fmt: skip
    for panel, (values, title, limit) in zip(panels, shown, strict=True):
        image = panel.imshow(
            values[::4], aspect="auto", origin="lower", extent=extent, cmap="RdBu_r",
            vmin=None if limit is None else -limit, vmax=limit, rasterized=True,
        )  # fmt: skip
        figure.colorbar(image, ax=panel)
        panel.set(title=title, xlabel="t")
    panels[0].set_ylabel("x")
    return figure


def training(steps: Sequence[int], marginals: Array, names: Sequence[str]) -> Figure:
    """The marginals (steps, terms) over training."""
    figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for name, line in zip(names, marginals.T, strict=True):
        true = name in TRUTH
        panel.plot(
            steps, line, color=None if true else "0.7", linewidth=2 if true else 1,
            label=name if true else None,
        )  # fmt: skip
    panel.plot([], [], color="0.7", label="the other terms")
    panel.set(xlabel="step", ylabel="marginal", xscale="log", ylim=(-0.02, 1.02))
    panel.legend()
    return figure


def sweep(levels: Sequence[float], rates: dict[str, list[float]], title: str) -> Figure:
    """How often each found exactly the true terms."""
    figure, panel = plt.subplots(figsize=(8, 0.8 + 0.32 * len(rates)), layout="constrained")
    table = np.array(list(rates.values()))
    image = panel.imshow(table, aspect="auto", cmap="Greens", vmin=0, vmax=1)
    panel.set_xticks(range(len(levels)), [f"{100 * level:g} %" for level in levels])
    panel.set_yticks(range(len(rates)), list(rates))
    panel.set_title(title, fontsize=10.5)
    figure.colorbar(image, ax=panel)
    return figure
