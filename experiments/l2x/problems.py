r"""The synthetic problems of Chen, Song, Wainwright and Jordan (*Learning to Explain*, ICML 2018).

Ten standard normal features; an outcome of 0 or 1 with log-odds that depend on a few of them:

- XOR: :math:`x_1 x_2`;
- orange skin: :math:`\sum_{i=1}^4 x_i^2 - 4`;
- nonlinear additive: :math:`100 \sin(0.2 x_1) - |x_2| - x_3 - e^{-x_4} + 2.4`;
- switch: the last feature is :math:`N(3, 1)` or :math:`N(-3, 1)`, half of the time each; in the
  first case orange skin of features 1 to 4, in the second nonlinear additive of features 5 to 8.
  Which features matter, the last one among them, differs from example to example.

The additive problem is that of the published code. In print it is
:math:`-100 \sin(2 x_1) + 2 |x_2| + x_3 + e^{-x_4}` (``additive-in-print``), where the first feature
leaves the others next to nothing to say: they decide one outcome in a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FEATURES = 10


@dataclass(frozen=True)
class Examples:
    """x (examples, 10), y (examples,) of 0 and 1, and which features matter (examples, 10)."""

    x: Tensor
    y: Tensor
    matter: Tensor


def orange_skin(x: Tensor) -> Tensor:
    """Of four features (examples, 4)."""
    return x.square().sum(-1) - 4


def additive(x: Tensor) -> Tensor:
    """Of four features (examples, 4)."""
    a, b, c, d = x.unbind(-1)
    return 100 * torch.sin(0.2 * a) - b.abs() - c - torch.exp(-d) + 2.4


def additive_in_print(x: Tensor) -> Tensor:
    """Of four features (examples, 4)."""
    a, b, c, d = x.unbind(-1)
    return -100 * torch.sin(2 * a) + 2 * b.abs() + c + torch.exp(-d)


def _first(
    count: int, log_odds: Callable[[Tensor], Tensor]
) -> Callable[..., tuple[Tensor, Tensor]]:
    def draw(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        matter = torch.zeros_like(x, dtype=torch.bool)
        matter[:, :count] = True
        return log_odds(x[:, :count]), matter

    return draw


def _switch(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    up = torch.rand(len(x), generator=generator) < 0.5
    x[:, -1] += torch.where(up, 3.0, -3.0)
    matter = torch.zeros_like(x, dtype=torch.bool)
    matter[:, :4], matter[:, 4:8], matter[:, -1] = up[:, None], ~up[:, None], True
    return torch.where(up, orange_skin(x[:, :4]), additive(x[:, 4:8])), matter


_DRAW = {
    "xor": _first(2, lambda x: x.prod(-1)),
    "orange-skin": _first(4, orange_skin),
    "additive": _first(4, additive),
    "switch": _switch,
    "additive-in-print": _first(4, additive_in_print),
}
PROBLEMS = ("xor", "orange-skin", "additive", "switch")
# How many features matter; their median rank if they come first.
K = {"xor": 2, "orange-skin": 4, "additive": 4, "switch": 5, "additive-in-print": 4}
BEST = {name: (k + 1) / 2 for name, k in K.items()}


def draw(problem: str, count: int, seed: int) -> Examples:
    """So many examples."""
    if problem not in _DRAW:
        raise ValueError(f"problem must be one of {', '.join(_DRAW)}, got {problem!r}")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    log_odds, matter = _DRAW[problem](x, generator)
    y = torch.rand(count, generator=generator) < log_odds.sigmoid()
    return Examples(x, y.long(), matter)


def median_rank(scores: Tensor, matter: Tensor) -> Tensor:
    """(examples,): the median, over the features that matter, of their ranks by score from the
    highest (1) on; equal scores share the mean of their ranks."""
    higher = (scores.unsqueeze(-2) > scores.unsqueeze(-1)).sum(-1)
    equal = (scores.unsqueeze(-2) == scores.unsqueeze(-1)).sum(-1)
    ranks = higher + (equal + 1) / 2
    return ranks.masked_fill(~matter, torch.nan).nanquantile(0.5, dim=-1)
