"""Bias and variance: many gradients of one small problem, estimator by estimator.

    python examples/gradients.py [--output outputs/gradients.png]

Every dot is one gradient, in the plane of two logits (some are outside of it); the cross is the
exact gradient, by enumeration; the ring is the estimator's mean. There are only twenty subsets,
hence so few dots where only the sample is random.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from figures import BLUE, ORANGE, save
from torch import Tensor

from ksubset import estimators

N, K, DRAWS = 6, 3, 2000
NAMES = {
    "simple": "SIMPLE", "reinmax": "ReinMax", "muprop": "MuProp", "score": "score function",
    "imle": "I-MLE", "st_gumbel": "ST Gumbel",
}  # fmt: skip

torch.manual_seed(1)
target, logits = torch.randn(N), torch.randn(N)


def loss(z: Tensor) -> Tensor:
    """Of a choice."""
    return (z - target).square().sum(-1)


def gradients(name: str, count: int) -> Tensor:
    """Independent ones, (count, N)."""
    rows = logits.repeat(count, 1).requires_grad_()
    surrogate = estimators.create(name).surrogate(loss, rows, K)
    return torch.autograd.grad(surrogate.sum(), rows)[0]


exact = gradients("exact", 1)[0]
figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained", sharex=True, sharey=True)
for axis, (name, label) in zip(axes.flat, NAMES.items(), strict=True):
    found = gradients(name, DRAWS)
    mean = found.mean(0)
    bias = (mean - exact).norm() / exact.norm()
    spread = (found - mean).norm(dim=1).square().mean().sqrt() / exact.norm()
    axis.plot(found[:, 0], found[:, 1], ".", color=BLUE, markersize=5, alpha=0.15)
    axis.plot(*mean[:2], "o", mfc="none", mec="black", markersize=11)
    axis.plot(*exact[:2], "+", color=ORANGE, markersize=16, markeredgewidth=2.5)
    axis.set_title(f"{label}: bias {bias:.2f}, spread {spread:.2f}", fontsize=10)
axes[0, 0].set(xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
figure.supxlabel("gradient of the first logit")
figure.supylabel("of the second")
save(figure, "gradients")
