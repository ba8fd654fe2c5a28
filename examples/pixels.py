"""Which pixels does one need to read a digit? A choice for all images, learned with the reader.

python examples/pixels.py [--output outputs/pixels.png]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from figures import save
from sklearn.datasets import load_digits
from torch import Tensor, nn

import ksubset

SIZES, STEPS = (4, 8, 12, 20), 500

torch.manual_seed(0)
data = load_digits()
images = torch.tensor(data.data, dtype=torch.float32) / 16
digits = torch.tensor(data.target)
order = torch.randperm(len(images))
training, test = order[:1200], order[1200:]


def learn(k: int) -> tuple[Tensor, float]:
    """Marginals of all pixels, and the accuracy with the k likeliest."""
    logits = nn.Parameter(torch.zeros(64))
    reader = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(
        [{"params": [logits], "lr": 0.05}, {"params": reader.parameters(), "lr": 0.005}]
    )
    for _ in range(STEPS):
        batch = training[torch.randint(len(training), (128,))]
        z = ksubset.simple(logits.expand(128, 64), k)
        loss = nn.functional.cross_entropy(reader(images[batch] * z), digits[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    chosen = ksubset.mode(logits, k)
    right = reader(images[test] * chosen).argmax(-1) == digits[test]
    return ksubset.marginals(logits, k).detach(), right.float().mean().item()


figure, axes = plt.subplots(1, len(SIZES) + 1, figsize=(12, 2.9), layout="constrained")
axes[0].imshow(images.mean(0).view(8, 8), cmap="Greys")
axes[0].set_title("mean image")
for axis, k in zip(axes[1:], SIZES, strict=True):
    marginals, accuracy = learn(k)
    shown = axis.imshow(marginals.view(8, 8), cmap="Blues", vmin=0, vmax=1)
    axis.set_title(f"k = {k}: {accuracy:.0%} right")
for axis in axes:
    axis.set(xticks=[], yticks=[])
figure.colorbar(shown, ax=axes, label="P(chosen)")
save(figure, "pixels")
