"""Who takes part, as published and over a grid of settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ksubset.estimators import Estimator, create

# Labels of the estimators in the paper's figure 1.
PAPER = ("SIMPLE", "SIMPLE-F", "SIMPLE-B", "I-MLE", "SoftSub", "SFE")


@dataclass(frozen=True)
class Contestant:
    """An estimator with one setting."""

    label: str
    estimator: str
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 1
    # Backward passes before it is measured, for one that learns from them.
    warm_up: int = 0

    def create(self) -> Estimator:
        """A fresh one."""
        return create(self.estimator, **self.options)

    def setting(self) -> str:
        """In words, short."""
        names = {"strength": "λ", "temperature": "t", "noise": "", "hard": "hard", "common": "crn"}
        parts = []
        for key, value in self.options.items():
            if isinstance(value, bool):
                parts += [names.get(key, key)] if value else []
            elif isinstance(value, str):
                parts.append(value.replace("_", " "))
            else:
                parts.append(f"{names.get(key, key)} = {'0+' if value is None else f'{value:g}'}")
        return ", ".join(parts)


def published(strength: float) -> list[Contestant]:
    """The estimators of the paper's figure 1, with the settings of its code."""
    return [
        Contestant("SIMPLE", "simple"),
        Contestant("SIMPLE-F", "simple_f", {"strength": strength}),
        Contestant("SIMPLE-B", "simple_b", {"strength": strength}),
        Contestant("I-MLE", "imle", {"strength": strength, "temperature": 1.0}),
        Contestant("SoftSub", "softsub", {"temperature": 2.0}),
        Contestant("SFE", "score"),
    ]


def beyond() -> list[Contestant]:
    """Those the paper does not have."""
    return [
        Contestant("ReinMax", "reinmax"),
        Contestant("MuProp", "muprop"),
        Contestant("MuProp, 4 samples", "muprop", {"scale": "leave_one_out"}, 4),
        Contestant("SFE, leave one out, 4 samples", "score", {"baseline": "leave_one_out"}, 4),
        Contestant("at the marginals", "marginals"),
        Contestant("AIMLE", "aimle", {"rate": 0.02}, warm_up=200),
        Contestant("ST Gumbel", "st_gumbel", {"temperature": 1.0}),
        Contestant("L2X", "l2x", {"temperature": 0.1}),
        Contestant("straight-through", "ste"),
    ]


_STRENGTHS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
_TEMPERATURES = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)


def grids() -> dict[str, list[Contestant]]:
    """Settings to choose the best from, by label."""
    imle = [
        {"strength": s, "temperature": t, "noise": noise}
        for noise, s, t in product(
            ("sum_of_gamma", "gumbel"), (0.5, 1.0, 2.5, 5.0, 10.0), (0.3, 1.0, 3.0, 10.0)
        )
    ]
    forward = [{"strength": s, "common": c} for c in (False, True) for s in _STRENGTHS]
    backward: list[dict[str, Any]] = [{"strength": s} for s in (None, *_STRENGTHS)]
    relaxed = [{"temperature": t, "hard": h} for h in (False, True) for t in _TEMPERATURES]
    options: dict[tuple[str, str], list[dict[str, Any]]] = {
        ("SIMPLE-F", "simple_f"): forward,
        ("SIMPLE-B", "simple_b"): backward,
        ("I-MLE", "imle"): imle,
        ("SoftSub", "softsub"): relaxed,
        ("L2X", "l2x"): relaxed,
        ("ST Gumbel", "st_gumbel"): [{"temperature": t} for t in _TEMPERATURES],
    }
    return {
        label: [Contestant(label, name, setting) for setting in settings]
        for (label, name), settings in options.items()
    }


def one_item() -> list[Contestant]:
    """For k = 1, the paper's figure 3."""
    return [
        Contestant("SIMPLE", "simple"),
        Contestant("ReinMax", "reinmax"),
        *(
            Contestant(f"ST Gumbel-softmax, t = {t:g}", "st_gumbel", {"temperature": t})
            for t in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
        ),
    ]
