"""How much of an answer is in the choice itself?

    python benchmarks/leak.py --seeds 3

16 of the 64 pixels of scikit-learn's digits are chosen for every image, by a scorer that sees all
of them; a predictor that sees the chosen pixels, and which ones they are, says what digit it is.
Printed is the accuracy on new images, and with the values of all pixels set to zero: what is then
left was in the choice. Guessing is right in 10 %.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from ksubset.explain import KSubsetExplainer, MaskedInput, fit

K, TRAINED, EPOCHS = 16, 1400, 40


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, outputs)
    )


def accuracies(honest: bool, seed: int, x: Tensor, y: Tensor) -> tuple[float, float]:
    """On new images, and on the same with the pixels' values gone."""
    torch.manual_seed(seed)
    order = torch.randperm(len(x))
    trained, new = order[:TRAINED], order[TRAINED:]
    predictor = MaskedInput(network(128, 10), with_choice=True)
    explainer = KSubsetExplainer(network(64, 64), predictor, k=K, honest=honest)
    fit(
        explainer, x[trained], y[trained], loss="cross_entropy", epochs=EPOCHS, batch_size=100,
        learning_rate=1e-3, seed=seed,
    )  # fmt: skip
    explainer.eval()
    found = explainer.explain(x[new])
    with torch.no_grad():
        without = predictor(torch.zeros_like(x[new]), found.chosen.to(x.dtype))
    right = [(p.argmax(-1) == y[new]).float().mean() for p in (found.prediction, without)]
    return float(right[0]), float(right[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load_digits()
    pixels = torch.tensor(data.data / 16, dtype=torch.float32)
    digits = torch.tensor(data.target)
    for honest in (False, True):
        runs = [accuracies(honest, seed, pixels, digits) for seed in range(arguments.seeds)]
        for i, what in enumerate(("chosen pixels", "and their values zero")):
            text = ", ".join(f"{100 * shares[i]:.1f}" for shares in runs)
            print(f"{'honest' if honest else 'told'}, {what}: {text} % correct")
