"""The pictures of the site: that of how it works, and for each file that is given one of what was
measured.

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
import torch
from matplotlib.axes import Axes

import ksubset

sys.path.append(str(Path(__file__).parents[2]))
from experiments.synthetic import figures
from experiments.synthetic.measure import Measured
from experiments.synthetic.methods import Method

FOLDER = Path(__file__).parent
SIZE = (7.6, 3.8)
BLUE, GREEN, GREY, ORANGE = "#08519c", "#238b45", "#777777", "#d94801"
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


def how_it_works() -> None:
    """Eight items of which three are chosen: logits, coins, their heads, and items given three."""
    logits = torch.tensor([2.0, -0.5, 1.0, 3.0, -1.0, 0.5, 1.5, 0.0])
    k, items = 3, range(1, 9)
    # Bisection for the shift after which k heads are expected
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if torch.sigmoid(logits + middle).sum() > k else (middle, high)
    coins = torch.sigmoid(logits + low)
    heads = torch.ones(1)
    for p in coins:
        heads = torch.nn.functional.pad(heads, (0, 1)) * (1 - p) + p * torch.nn.functional.pad(
            heads, (1, 0)
        )
    marginals = ksubset.marginals(logits, k)
    z = ksubset.sample(logits, k, generator=torch.Generator().manual_seed(1))

    figure, panels = plt.subplots(1, 4, figsize=(9.6, 2.7), layout="constrained")
    for panel, heights, title in (
        (panels[0], logits, "1. Logits"),
        (panels[1], coins, f"2. Independent coins,\n{k} heads expected"),
        (panels[3], marginals, f"4. Given {k} heads: P(chosen),\nand one sample"),
    ):
        panel.bar(items, heights, color=BLUE, width=0.7)
        panel.set(title=title, xlabel="item", xticks=items)
        _plain(panel)
    panels[0].axhline(0, color=GREY, linewidth=0.8)
    panels[1].set(ylim=(0, 1.12), ylabel="P(heads)")
    panels[3].set(ylim=(0, 1.12))
    chosen = [item for item, one in zip(items, z.tolist(), strict=True) if one]
    panels[3].plot(chosen, [1.06] * k, "o", color=ORANGE, markersize=6)
    colours = [ORANGE if count == k else GREY for count in range(9)]
    panels[2].bar(range(9), heads, color=colours, width=0.7)
    panels[2].set(title="3. Number of heads S", xlabel="heads", xticks=range(9), ylabel="P(S)")
    _plain(panels[2])
    for panel in panels:
        panel.title.set_fontsize(10)
        panel.tick_params(labelsize=8)
    figure.savefig(FOLDER / "how-it-works.svg", metadata={"Date": None})


def _plain(panel: Axes) -> None:
    panel.grid(color="#e5e5e5", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "ksubset"  # the same picture for the same numbers
    how_it_works()
    for name in sys.argv[1:]:
        results = json.loads(Path(name).read_text())
        (cost if "points" in results else bias_and_variance)(results)
