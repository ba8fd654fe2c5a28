"""Ten million draws of every kind of sizes against enumeration, and wrong samplers the check finds.

    python benchmarks/sizes_by_chi_square.py --device cpu

Prints Pearson's p-value over all subsets of 8 items for every kind that the tests know
(``tests/sizes/sized_problems.py``) and two rows of logits, then for sizes of which the odd ones are
drawn as if they were a hundredth more likely.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

import ksubset
from ksubset.functional import _sized
from ksubset.oracle import SizedEnumeration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/sizes"))
from sized_problems import KINDS  # type: ignore[import-not-found]

N = 8
AT_ONCE = 500_000


def counts(logits: Tensor, sizes: ksubset.Sizes, draws: int, generator: torch.Generator) -> Tensor:
    """How often every subset was drawn, by the binary number of its items: (2^n,)."""
    place = 2 ** torch.arange(N, device=logits.device)
    total = torch.zeros(2**N, dtype=torch.int64, device=logits.device)
    for begin in range(0, draws, AT_ONCE):
        shape = (min(AT_ONCE, draws - begin),)
        z = ksubset.sample(logits, sizes, shape, generator=generator)
        total += torch.bincount(z.long() @ place, minlength=2**N)
    return total.cpu()


def p_value(found: Tensor, truth: SizedEnumeration) -> float:
    """Of Pearson's statistic; subsets that are expected fewer than 20 times are one cell."""
    observed = found[truth.support.long() @ 2 ** torch.arange(N)].double()
    expected = truth.probabilities * float(found.sum())
    if observed[expected == 0].any():
        return 0.0
    rare = expected < 20
    observed = torch.cat([observed[~rare], observed[rare].sum().unsqueeze(0)])
    expected = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    kept = expected >= 1
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = kept.sum().double() - 1
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


def slightly_wrong(chances: Tensor, first: int, seeds: Tensor) -> Tensor:
    """Odd sizes are a hundredth more likely."""
    odd = (first + torch.arange(chances.shape[-1], device=chances.device)) % 2
    return _DRAW_SIZES(chances * (1 + 0.01 * odd), first, seeds)


_DRAW_SIZES = _sized.draw_sizes


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    device = torch.device(settings.device)
    generator = torch.Generator(device).manual_seed(settings.seed)
    own = torch.Generator().manual_seed(settings.seed)
    for row in (torch.randn(N, generator=own), 2 * torch.randn(N, generator=own)):
        for kind, known in KINDS.items():
            sizes = known.make(N)
            if kind == "between, by row":
                sizes = ksubset.between(N // 3, N - 1)
            truth = known.oracle(row.double())
            given = (row.to(device), sizes, settings.draws, generator)
            right = p_value(counts(*given), truth)
            _sized.draw_sizes = slightly_wrong
            wrong = p_value(counts(*given), truth)
            _sized.draw_sizes = _DRAW_SIZES
            print(f"| {kind} | {right:.3f} | {wrong:.1e} |", flush=True)


if __name__ == "__main__":
    main()
