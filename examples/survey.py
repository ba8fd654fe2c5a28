"""A survey of fixed size: visit 20 of 200 farms, large ones more often, and estimate the harvest.

python examples/survey.py [--output outputs/survey.png]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from figures import BLUE, GREY, ORANGE, save

import ksubset

FARMS, VISITS, SURVEYS = 200, 20, 20_000

torch.manual_seed(0)
size = torch.distributions.LogNormal(0.0, 0.7).sample((FARMS,)).double()
harvest = 3 * size + 0.3 * torch.randn(FARMS, dtype=torch.float64)
design = ksubset.KSubset.from_marginals(VISITS * size / size.sum())
equal = ksubset.KSubset(VISITS, logits=torch.zeros(FARMS, dtype=torch.float64))
coins = torch.distributions.Bernoulli(design.mean)  # independent visits: their number varies

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
frequencies = design.sample((SURVEYS,)).mean(0)
left.plot(size, frequencies, ".", color=GREY, label=f"frequency in {SURVEYS:,} surveys")
left.plot(*torch.stack([size, design.mean]).sort().values, color=BLUE, label="wanted")
left.set(title="Exactly the probabilities asked for", xlabel="hectares", ylabel="P(visited)")
left.legend(frameon=False)
for label, law, colour in (
    ("20 farms, by size", design, BLUE),
    ("about 20, by size (independent)", coins, ORANGE),
    ("20 farms, equally likely", equal, GREY),
):
    estimates = law.sample((SURVEYS,)) @ (harvest / law.mean)
    name = f"{label}: ± {estimates.std():.0f}"
    right.hist(
        estimates.clamp(0, 1500), bins=150, range=(0, 1500), histtype="step", linewidth=1.5,
        color=colour, label=name,
    )  # fmt: skip
right.axvline(harvest.sum(), color="black", linewidth=0.8, linestyle=":", label="the truth")
right.set(title="Estimates of the whole harvest", xlabel="tonnes", yticks=[])
right.legend(frameon=False)
save(figure, "survey")
