"""Gumbel top-k is another law: its frequencies beside exact marginals, and beside exact samples.

python examples/laws.py [--output outputs/laws.png]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from figures import BLUE, GREY, ORANGE, save

import ksubset

LOGITS, K, DRAWS = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0, 0.0, -1.0, -2.0]), 3, 400_000

torch.manual_seed(0)
exact = ksubset.marginals(LOGITS, K)
samples = ksubset.sample(LOGITS, K, (DRAWS,)).mean(0)
noise = -torch.empty(DRAWS, len(LOGITS)).exponential_().log()
winners = (LOGITS + noise).topk(K).indices
gumbel = torch.bincount(winners.flatten(), minlength=len(LOGITS)) / DRAWS
softmax = K * LOGITS.softmax(0)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
items = torch.arange(len(LOGITS))
left.bar(items, exact, color=BLUE, label="exact marginal")
left.plot(items, gumbel, "D", color=ORANGE, label="Gumbel top-k")
left.plot(items, softmax, "_", color="black", markersize=18, label="k · softmax")
left.axhline(1, color=GREY, linewidth=0.8)
left.set(title=f"Choosing {K} of {len(LOGITS)}", xlabel="item", ylabel="P(chosen)")
left.legend(frameon=False)
error = (exact * (1 - exact) / DRAWS).sqrt()
right.axhspan(-3, 3, color=BLUE, alpha=0.15, label="three standard errors")
right.plot(items, (samples - exact) / error, "o", color=BLUE, label="exact samples")
right.plot(items, (gumbel - exact) / error, "D", color=ORANGE, label="Gumbel top-k")
right.set(
    title=f"How far off, after {DRAWS:,} draws", xlabel="item", ylabel="standard errors",
    yscale="symlog",
)  # fmt: skip
right.legend(frameon=False)
save(figure, "laws")
