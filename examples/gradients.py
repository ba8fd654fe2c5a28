"""Bias and variance: many gradients of one small problem, for each of twelve methods.

    python examples/gradients.py [--output outputs/gradients.png]

Each dot is one gradient, projected on two of its six entries (some dots lie outside the panel). The
cross is the exact gradient, by enumeration; the ring is the mean of the dots. There are only twenty
subsets, so where only the sample is random there are few dots.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import torch
from figures import BLUE, ORANGE, save
from torch import Tensor

from ksubset import estimators

N, K, DRAWS = 6, 3, 2000
# Title, name, options, samples for each gradient.
METHODS: list[tuple[str, str, dict[str, Any], int]] = [
    ("SIMPLE", "simple", {}, 1),
    ("swap", "swap", {}, 1),
    ("ReinMax", "reinmax", {}, 1),
    ("at the marginals", "marginals", {}, 1),
    ("score function", "score", {}, 1),
    ("score function, 4 samples", "score", {"baseline": "leave_one_out"}, 4),
    ("MuProp", "muprop", {}, 1),
    ("MuProp, 4 samples", "muprop", {"scale": "leave_one_out"}, 4),
    ("I-MLE", "imle", {}, 1),
    ("SoftSub", "softsub", {"temperature": 2.0}, 1),
    ("ST Gumbel", "st_gumbel", {}, 1),
    ("straight-through", "ste", {}, 1),
]

torch.manual_seed(1)
target, logits = torch.randn(N), torch.randn(N)


def loss(z: Tensor) -> Tensor:
    """The squared distance from a target."""
    return (z - target).square().sum(-1)


def gradients(name: str, options: dict[str, Any], samples: int, count: int) -> Tensor:
    """Independent gradient estimates, (count, N)."""
    rows = logits.repeat(count, 1).requires_grad_()
    surrogate = estimators.create(name, **options).surrogate(loss, rows, K, samples)
    return torch.autograd.grad(surrogate.sum(), rows)[0]


exact = gradients("exact", {}, 1, 1)[0]
figure, axes = plt.subplots(3, 4, figsize=(11, 8.4), layout="constrained", sharex=True, sharey=True)
for axis, (title, name, options, samples) in zip(axes.flat, METHODS, strict=True):
    found = gradients(name, options, samples, DRAWS)
    mean = found.mean(0)
    variance = found.var(0).sum()
    # Without the noise of the mean over draws.
    bias = ((mean - exact).square().sum() - variance / DRAWS).clamp(min=0).sqrt() / exact.norm()
    spread = variance.sqrt() / exact.norm()
    axis.plot(found[:, 0], found[:, 1], ".", color=BLUE, markersize=5, alpha=0.15)
    axis.plot(*mean[:2], "o", mfc="none", mec="black", markersize=11)
    axis.plot(*exact[:2], "+", color=ORANGE, markersize=16, markeredgewidth=2.5)
    axis.set_title(f"{title}\nbias {bias:.2f}, spread {spread:.2f}", fontsize=10)
axes[0, 0].set(xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
figure.supxlabel("first entry of the gradient")
figure.supylabel("second entry")
save(figure, "gradients")
