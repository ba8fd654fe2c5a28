"""Who takes part, with what settings, and on which grids the settings are tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from ksubset.estimators import Estimator, create

RATES = (1e-3, 5e-4)
# The paper's, "for all methods".
TEMPERATURES = (0.1, 0.5, 1.0, 2.0)
# The authors' learning rates, and their clipping.
AUTHORS: Mapping[tuple[str, int], tuple[float, float | None]] = {
    ("appearance", 10): (5e-3, None),
    ("aroma", 5): (1e-3, None),
    ("aroma", 10): (5e-4, None),
    ("aroma", 15): (1e-4, 1.0),
    ("palate", 10): (1e-3, None),
    ("taste", 10): (5e-4, None),
}


@dataclass(frozen=True)
class Method:
    """A way to train: an estimator, its settings, a learning rate."""

    name: str
    label: str
    estimator: str
    options: tuple[tuple[str, object], ...] = ()  # what kind of it
    settings: tuple[tuple[str, float], ...] = ()  # numbers, which may differ within a stack
    grid: tuple[tuple[str, tuple[float, ...]], ...] = field(default=(), compare=False)
    samples: int = 1
    rate: float = 1e-3
    clip: float | None = None

    def variants(self) -> list[Method]:
        """All settings of the grid, at its own learning rate."""
        names, values = [name for name, _ in self.grid], [v for _, v in self.grid]
        return [
            replace(self, settings=tuple(zip(names, chosen, strict=True)))
            for chosen in product(*values)
        ]

    def at(self, aspect: str, k: int) -> Method:
        """With the settings that were best there: see :data:`TUNED`."""
        name = "simple" if self in LESS_NOISE else self.name
        found = TUNED.get((aspect, k, name))
        return self if found is None else replace(self, settings=found[0], rate=found[1])

    def setting(self) -> str:
        """For a table."""
        symbols = {"strength": "λ", "temperature": "τ" if self.estimator == "imle" else "t"}
        parts = [f"{symbols[name]} = {value:g}" for name, value in self.settings]
        if self.samples > 1:
            parts.append(f"{self.samples} samples")
        parts.append(f"lr {self.rate:g}")
        if self.clip is not None:
            parts.append(f"clipped at {self.clip:g}")
        return ", ".join(parts)


_TEMPERATURE = (("temperature", TEMPERATURES),)
METHODS: tuple[Method, ...] = (
    Method("simple", "SIMPLE", "simple"),
    Method("swap", "swap", "swap"),
    Method(
        "swap-4", "swap, leave-one-out", "swap", (("baseline", "leave_one_out"),), samples=4
    ),
    Method("l2x", "L2X", "l2x", settings=(("temperature", 0.1),), grid=_TEMPERATURE),
    Method("softsub", "SoftSub", "softsub", settings=(("temperature", 0.5),), grid=_TEMPERATURE),
    Method(
        "imle", "I-MLE, sum of gamma", "imle", (("noise", "sum_of_gamma"),),
        (("strength", 1000.0), ("temperature", 30.0)),
        (("strength", (10.0, 100.0, 1000.0, 10_000.0)), ("temperature", (*TEMPERATURES, 30.0))),
    ),
    Method("reinmax", "ReinMax for k-subsets", "reinmax"),
    Method(
        "score", "score function, leave-one-out", "score", (("baseline", "leave_one_out"),),
        samples=4,
    ),
)  # fmt: skip


# Only by name: SIMPLE's gradient, and less and less noise in what the predictor sees. With the
# settings of SIMPLE itself.
LESS_NOISE: tuple[Method, ...] = (
    Method("simple-4", "SIMPLE, means of 4 samples", "simple", (("average", 4),)),
    Method("simple-16", "SIMPLE, means of 16 samples", "simple", (("average", 16),)),
    Method("simple-marginals", "SIMPLE, marginals in place of samples", "marginals"),
)


def _imle(temperature: float) -> tuple[tuple[str, float], ...]:
    return (("strength", 1000.0), ("temperature", temperature))


# The winners of the grids (one split, ten epochs): settings and learning rate.
TUNED: Mapping[tuple[str, int, str], tuple[tuple[tuple[str, float], ...], float]] = {
    ("aroma", 5, "simple"): ((), 5e-4),
    ("aroma", 5, "l2x"): ((("temperature", 1.0),), 1e-3),
    ("aroma", 5, "softsub"): ((("temperature", 2.0),), 1e-3),
    ("aroma", 5, "imle"): (_imle(0.5), 5e-4),
    ("aroma", 5, "reinmax"): ((), 5e-4),
    ("aroma", 5, "score"): ((), 5e-4),
    ("aroma", 10, "simple"): ((), 5e-4),
    ("aroma", 10, "l2x"): ((("temperature", 0.5),), 5e-4),
    ("aroma", 10, "softsub"): ((("temperature", 2.0),), 1e-3),
    ("aroma", 10, "imle"): (_imle(1.0), 1e-3),
    ("aroma", 10, "reinmax"): ((), 5e-4),
    ("aroma", 10, "score"): ((), 5e-4),
    ("aroma", 15, "simple"): ((), 1e-3),
    ("aroma", 15, "l2x"): ((("temperature", 0.5),), 5e-4),
    ("aroma", 15, "softsub"): ((("temperature", 2.0),), 1e-3),
    ("aroma", 15, "imle"): (_imle(0.5), 5e-4),
    ("aroma", 15, "reinmax"): ((), 5e-4),
    ("aroma", 15, "score"): ((), 5e-4),
    ("palate", 10, "simple"): ((), 1e-3),
    ("palate", 10, "l2x"): ((("temperature", 0.5),), 1e-3),
    ("palate", 10, "softsub"): ((("temperature", 0.5),), 5e-4),
    ("palate", 10, "imle"): (_imle(2.0), 5e-4),
    ("palate", 10, "reinmax"): ((), 5e-4),
    ("palate", 10, "score"): ((), 5e-4),
    ("taste", 10, "simple"): ((), 5e-4),
    ("taste", 10, "l2x"): ((("temperature", 0.5),), 1e-3),
    ("taste", 10, "softsub"): ((("temperature", 2.0),), 1e-3),
    ("taste", 10, "imle"): (_imle(1.0), 5e-4),
    ("taste", 10, "reinmax"): ((), 5e-4),
    ("taste", 10, "score"): ((), 5e-4),
}


def named(words: str) -> list[Method]:
    """Those asked for by names separated by commas, or all that compete."""
    known = {method.name: method for method in (*METHODS, *LESS_NOISE)}
    if words == "all":
        return list(METHODS)
    for word in words.split(","):
        if word not in known:
            raise ValueError(f"methods must be among all, {', '.join(known)}, got {word!r}")
    return [method for name, method in known.items() if name in words.split(",")]


def estimator(
    name: str,
    options: Mapping[str, object],
    settings: Sequence[Mapping[str, float]],
    rows: int,
) -> Estimator:
    """Of a stack of members with ``rows`` rows each: settings that differ become tensors."""
    values: dict[str, float | torch.Tensor] = {}
    for key, first in settings[0].items():
        column = [member[key] for member in settings]
        same = all(value == first for value in column)
        values[key] = first if same else torch.tensor(column).repeat_interleave(rows).unsqueeze(-1)
    return create(name, **dict(options), **values)
