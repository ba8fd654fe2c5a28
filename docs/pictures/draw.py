"""The pictures of the home page, from what was measured: one for each file that is given.

python benchmarks/growth.py --device cuda     # writes outputs/growth-cuda.json
python -m experiments.synthetic               # writes outputs/synthetic/results.json
python docs/pictures/draw.py outputs/growth-cuda.json outputs/synthetic/results.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

sys.path.append(str(Path(__file__).parents[2]))
from experiments.synthetic import figures
from experiments.synthetic.measure import Measured
from experiments.synthetic.methods import Method

FOLDER = Path(__file__).parent
SIZE = (7.6, 3.8)
BLUE, GREEN, GREY = "#08519c", "#238b45", "#777777"
STYLES = {
    "marginals": ("o-", BLUE),
    "covariance product": ("s-", GREEN),
    "sample": ("^-", "#6a51a3"),
    "log-space DP, autodiff": ("D--", GREY),
}


def cost(measured: dict[str, Any]) -> None:
    """Time per item against k, and time per row against n."""
    figure, panels = plt.subplots(1, 2, figsize=SIZE, layout="constrained")
    for along, panel in zip("kn", panels, strict=True):
        for what, (style, colour) in STYLES.items():
            points = [p for p in measured["points"] if (p["along"], p["what"]) == (along, what)]
            sizes = [p["shape"][along] for p in points]
            per = [p["shape"]["rows"] * (p["shape"]["n"] if along == "k" else 1) for p in points]
            scale = 1e6 if along == "k" else 1e3  # ns, µs
            times = [scale * p["ms"] / count for p, count in zip(points, per, strict=True)]
            label = "published algorithm (log-space DP)" if "DP" in what else what
            panel.loglog(sizes, times, style, color=colour, markersize=5, label=label)
        _plain(panel)
    panels[0].set(xlabel="k, at n = 16,384", ylabel="ns per item", ylim=(None, 1e7))
    panels[1].set(xlabel="n, at k = 100", ylabel="µs per row")
    panels[0].legend(frameon=False, fontsize=8.5, loc="upper left")
    figure.suptitle(f"Cost does not grow with k ({measured['machine']['device']})", fontsize=11)
    figure.savefig(FOLDER / "cost.svg", metadata={"Date": None})


def bias_and_variance(measured: dict[str, Any]) -> None:
    """The study's own picture of the paper's loss."""
    results = [
        Measured(**{**one, "method": Method(**one["method"])})
        for one in measured["results"]["quadratic"]
    ]
    figure = figures.bias_and_variance(results, "Nearer to the corner is better", SIZE)
    figure.savefig(FOLDER / "bias-variance.svg", metadata={"Date": None})


def _plain(panel: Axes) -> None:
    panel.grid(color="#e5e5e5", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "ksubset"  # the same picture for the same numbers
    for name in sys.argv[1:]:
        results = json.loads(Path(name).read_text())
        (cost if "points" in results else bias_and_variance)(results)
