"""A short tour: sample, compare with the exact marginals, and train through the choice.

    python examples/tour.py [--output outputs/tour.png]

Prints a table and writes a plot.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import ksubset

N, K, DRAWS = 12, 4, 100_000
FEATURES, RELEVANT, ROWS, STEPS = 40, 5, 512, 300


def frequencies(console: Console) -> tuple[Tensor, Tensor]:
    """Exact marginals beside the frequencies of exact samples."""
    logits = torch.linspace(2, -2, N)
    law = ksubset.KSubset(K, logits=logits)
    observed = law.sample((DRAWS,)).mean(0)
    table = Table(title=f"{K} of {N} items, {DRAWS:,} draws")
    for column in ("item", "logit", "marginal", "frequency", "deviations"):
        table.add_column(column, justify="right")
    deviation = (law.variance / DRAWS).sqrt()
    for i in range(N):
        off = float((observed[i] - law.mean[i]) / deviation[i])
        cells = (logits[i], law.mean[i], observed[i])
        table.add_row(str(i), *(f"{float(cell):.4f}" for cell in cells), f"{off:+.1f}")
    console.print(table)
    console.print(
        f"entropy {float(law.entropy()):.4f} nats of at most "
        f"{float(ksubset.KSubset(K, logits=torch.zeros(N)).entropy()):.4f}; "
        f"P(mode) {float(law.log_prob(law.mode).exp()):.4f}\n"
    )
    return law.mean, observed


def selection(console: Console) -> tuple[list[float], list[Tensor]]:
    """Which 5 of 40 features make y? Learn logits by regressing on sampled features."""
    x = torch.randn(ROWS, FEATURES)
    y = x[:, :RELEVANT] @ torch.tensor([2.0, -1.5, 1.0, 1.5, -2.0]) + 0.5 * torch.randn(ROWS)
    logits = torch.zeros(FEATURES, requires_grad=True)
    weights = torch.zeros(FEATURES, requires_grad=True)
    optimiser = torch.optim.Adam([logits, weights], lr=0.05)
    losses, history = [], []
    for _ in range(STEPS):
        z = ksubset.simple(logits, RELEVANT, sample_shape=(16,))
        loss = (y - (z * weights) @ x.T).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        history.append(ksubset.marginals(logits.detach(), RELEVANT))
    chosen = ksubset.mode(logits, RELEVANT).nonzero().flatten().tolist()
    console.print(f"features that made y: {list(range(RELEVANT))}; chosen: {chosen}")
    console.print(
        f"loss {losses[0]:.2f} -> {losses[-1]:.2f} (the noise alone is 0.25), "
        f"certainty {float(history[-1][:RELEVANT].mean()):.3f}"
    )
    return losses, history


def draw(
    path: Path, exact: Tensor, observed: Tensor, losses: list[float], history: list[Tensor]
) -> None:
    """Both parts side by side."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    left.bar(range(N), observed, color="#9ecae1", label=f"frequency, {DRAWS:,} draws")
    left.plot(range(N), exact, "o", color="#08519c", label="exact marginal")
    left.set(title=f"Choosing {K} of {N}", xlabel="item, by falling logit", ylabel="P(chosen)")
    left.legend(frameon=False)
    middle.plot(losses, color="#08519c")
    middle.axhline(0.25, color="grey", linestyle="--", label="noise")
    middle.set(title="Training through the choice", xlabel="step", ylabel="loss", yscale="log")
    middle.legend(frameon=False)
    image = right.imshow(torch.stack(history).T, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    right.set(title="Marginals while learning", xlabel="step", ylabel="feature (first 5 matter)")
    figure.colorbar(image, ax=right, label="P(chosen)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the tour."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/tour.png"))
    path = parser.parse_args().output
    torch.manual_seed(0)
    console = Console()
    exact, observed = frequencies(console)
    losses, history = selection(console)
    draw(path, exact, observed, losses, history)
    console.print(f"plot written to {path}")


if __name__ == "__main__":
    main()
