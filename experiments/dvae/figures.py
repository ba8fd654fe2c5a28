"""The study's pictures: curves, and what a model has learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import ksubset
from experiments.datasets.images import Images
from experiments.dvae.methods import OWN
from experiments.dvae.model import DiscreteVAE
from experiments.dvae.results import Curve, Outcome, by_shape

_COLOURS = {
    "simple": "#08519c", "imle-sog": "#d94801", "imle-gumbel": "#fd8d3c",
    "imle-softmax-kl": "#a63603", "softsub": "#756bb1", "softsub-hard": "#bcbddc",
    "score": "#969696", "muprop": "#8c6d31", "reinmax": "#c51b8a", "swap": "#006d2c",
    "st-gumbel": "#d94801", "st-gumbel-rao": "#fd8d3c", "st-gumbel-independent": "#a63603",
    "st-gapped": "#111111", "st-decoupled": "#41b6c4", "double": "#dd3497",
}  # fmt: skip
plt.rcParams["svg.hashsalt"] = "ksubset"
plt.rcParams["svg.fonttype"] = "none"
_COLUMNS = 12


def curves(
    results: Sequence[Outcome], loss: Callable[[Outcome], Curve], title: str, label: str
) -> Figure:
    """Loss against epochs, a panel for every shape of the code: means over seeds, bands of a
    deviation. Several samples are dashed; the legend begins with the largest loss."""
    shapes = by_shape(results)
    figure, panels = plt.subplots(
        1, len(shapes), figsize=(5.4 * len(shapes), 6.0), layout="constrained", squeeze=False
    )
    for panel, (groups, items, k) in zip(panels[0], shapes, strict=True):
        lowest, highest = np.inf, -np.inf
        for outcome in sorted(shapes[groups, items, k], key=lambda r: -loss(r)[:, -1].mean()):
            values = loss(outcome)
            epochs, method = outcome.epochs, outcome.method
            mean, std = values.mean(0), values.std(0)
            name = method.name.removesuffix(OWN).removesuffix(f"-{method.samples}")
            colour = _COLOURS.get(name, "#333333")
            line = "--" if method.samples > 1 else "-"
            panel.plot(
                epochs, mean, color=colour, label=method.title,
                linewidth=2.2 if name in ("simple", "swap") else 1.4,
                linestyle=":" if method.name.endswith(OWN) else line,
            )  # fmt: skip
            panel.fill_between(epochs, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
            lowest = min(lowest, np.nanmin(mean))
            # The first epochs would flatten everything else.
            highest = max(highest, np.nanmax(mean[len(mean) // 20 :]))
        if np.isfinite(highest) and highest > lowest:
            # What fails altogether is not to hide how the others differ.
            highest = min(highest, 1.25 * lowest)
            margin = 0.05 * (highest - lowest)
            panel.set_ylim(lowest - margin, highest + margin)
        panel.set_title(f"{k} of {items}, {groups} groups", fontsize=10.5)
        panel.set(xlabel="epoch", ylabel=label)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#e8e8e8", linewidth=0.8)
        panel.legend(
            fontsize=8.5, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.13)
        )
    figure.suptitle(title, fontsize=11)
    return figure


def _tiles(rows: Sequence[tuple[str, Tensor]], data: Images, title: str) -> Figure:
    """Rows of images with a word beside each; changes of images have colours."""
    columns = max(len(images) for _, images in rows)
    figure, panels = plt.subplots(
        len(rows), columns, figsize=(1.5 + 0.72 * columns, 0.45 + 0.74 * len(rows)),
        squeeze=False,
    )  # fmt: skip
    figure.subplots_adjust(left=1.5 / (1.5 + 0.72 * columns), right=0.995, bottom=0.02, top=0.88)
    changes = [images for _, images in rows if images.min() < 0]
    largest = max((float(images.abs().max()) for images in changes), default=1.0)
    for line, (label, images) in zip(panels, rows, strict=True):
        signed = images.min() < 0
        for panel in line:
            panel.set_axis_off()
        for panel, image in zip(line, images, strict=False):
            panel.imshow(
                image.reshape(data.height, data.width).numpy(), interpolation="nearest",
                cmap="RdBu_r" if signed else "gray_r", vmin=-largest if signed else 0,
                vmax=largest if signed else 1,
            )  # fmt: skip
            panel.set_axis_on()
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_color("#dddddd")
        line[0].set_ylabel(label, fontsize=8.5, rotation=0, ha="right", va="center")
    figure.suptitle(title, fontsize=10.5)
    return figure


@torch.no_grad()
def reconstructions(vae: DiscreteVAE, data: Images, title: str) -> Figure:
    """Test images, what comes back from one code, and from many on average."""
    generator = torch.Generator().manual_seed(0)
    x = data.test[:: max(1, len(data.test) // _COLUMNS)][:_COLUMNS]
    law = vae.encode(x)
    once = vae.decode(ksubset.sample(law.logits, vae.k, generator=generator)).sigmoid()
    codes = ksubset.sample(law.logits, vae.k, (64,), generator=generator)
    often = vae.decode(codes).sigmoid().mean(0)
    rows = [("test image", x), ("one sample", once), ("mean of 64", often)]
    return _tiles([*rows, ("likeliest code", vae.decode(law.mode).sigmoid())], data, title)


@torch.no_grad()
def prior_samples(vae: DiscreteVAE, data: Images, title: str) -> Figure:
    """What the model dreams of."""
    drawn = vae.sample(3 * _COLUMNS, torch.Generator().manual_seed(1))
    return _tiles([("", drawn[i::3]) for i in range(3)], data, title)


@torch.no_grad()
def traversals(vae: DiscreteVAE, data: Images, title: str) -> Figure:
    """What changes, for the groups that matter most, when in the likeliest code of an image each
    item of the group is brought in, in place of the least likely one that is chosen."""
    x = data.test[:1]
    law = vae.encode(x)
    code, logits = law.mode[0], law.logits[0]
    base = vae.decode(code).sigmoid()
    changed = code.repeat(vae.groups, vae.items, 1, 1)  # group, item, then the code
    for group in range(vae.groups):
        weakest = torch.where(code[group] > 0, logits[group], torch.inf).argmin()
        for item in range(vae.items):
            if not code[group, item]:
                changed[group, item, group, weakest] = 0
                changed[group, item, group, item] = 1
    change = vae.decode(changed).sigmoid() - base
    order = change.abs().sum((-2, -1)).argsort(descending=True)[:5].tolist()
    rows = [(f"group {group + 1}", change[group]) for group in order]
    return _tiles([("the code itself", base.expand(1, -1)), *rows], data, title)
