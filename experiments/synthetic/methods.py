"""The methods of the study: as published, and over a grid of settings. A new one is one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ksubset.estimators import Estimator, create

# Labels of the estimators in the paper's figure 1.
PAPER = ("SIMPLE", "SIMPLE-F", "SIMPLE-B", "I-MLE", "SoftSub", "score function")
REGRESSION = {"baseline": "regression"}
LEAVE_ONE_OUT = {"baseline": "leave_one_out"}


@dataclass(frozen=True)
class Method:
    """An estimator with one setting."""

    label: str
    estimator: str
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 1
    # Backward passes before it is measured, for estimators that learn from them.
    warm_up: int = 0

    def create(self) -> Estimator:
        """A new estimator."""
        return create(self.estimator, **self.options)

    def setting(self) -> str:
        """The options in a few words."""
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


REFERENCE = Method("SIMPLE", "simple")  # times are relative to its time


def published(strength: float) -> list[Method]:
    """The estimators of the paper's figure 1, with the settings of its code."""
    return [
        REFERENCE,
        Method("SIMPLE-F", "simple_f", {"strength": strength}),
        Method("SIMPLE-B", "simple_b", {"strength": strength}),
        Method("I-MLE", "imle", {"strength": strength, "temperature": 1.0}),
        Method("SoftSub", "softsub", {"temperature": 2.0}),
        Method("score function", "score"),
    ]


def beyond() -> list[Method]:
    """Methods that the paper does not have."""
    return [
        Method("swap", "swap"),
        Method("swap, exact plan", "swap", {"plan": "exact"}),
        Method("swap, 4 samples", "swap", LEAVE_ONE_OUT, 4),
        Method("sparse swap", "sparse_swap"),
        Method("removal", "removal"),
        Method("corrected swap", "corrected_swap"),
        Method("ReinMax", "reinmax"),
        Method("MuProp", "muprop"),
        Method("MuProp, 4 samples", "muprop", {"scale": "leave_one_out"}, 4),
        Method("double control, 4 samples", "double_control", {}, 4),
        Method("score function, 4 samples", "score", LEAVE_ONE_OUT, 4),
        Method("at the marginals", "marginals"),
        Method("AIMLE", "aimle", {"rate": 0.02}, warm_up=200),
        Method("ST Gumbel", "st_gumbel", {"temperature": 1.0}),
        Method("decoupled ST Gumbel", "st_decoupled", {"backward_temperature": 2.0}),
        Method("gapped straight-through", "st_gapped", {"temperature": 1.0}),
        Method("L2X", "l2x", {"temperature": 0.1}),
        Method("straight-through", "ste"),
    ]


def tuned() -> list[Method]:
    """Relaxations at the temperature that the grid below prefers."""
    return [
        Method("SoftSub, t = 10", "softsub", {"temperature": 10.0}),
        Method("ST Gumbel, t = 10", "st_gumbel", {"temperature": 10.0}),
    ]


def growing() -> list[Method]:
    """Methods to follow as rows grow."""
    labels = (
        "swap", "swap, 4 samples", "ReinMax", "MuProp", "MuProp, 4 samples",
        "score function, 4 samples",
    )  # fmt: skip
    return [REFERENCE, *(method for method in beyond() if method.label in labels)]


def unbiased(k: int) -> list[Method]:
    """Methods that are unbiased for every loss, some with the k + 1 samples that need as many loss
    evaluations as removal."""
    several = {"2": 2, "4": 4, "k + 1": k + 1}
    return [
        REFERENCE,
        Method("removal", "removal"),
        Method("removal, 4 samples", "removal", LEAVE_ONE_OUT, 4),
        Method("corrected swap", "corrected_swap"),
        *(
            Method(f"corrected swap, {words} samples", "corrected_swap", LEAVE_ONE_OUT, samples)
            for words, samples in several.items()
            if samples > 2
        ),
        *(
            Method(f"double control, {words} samples", "double_control", {}, samples)
            for words, samples in several.items()
            if samples > 2
        ),
        Method("unordered set, 4 samples", "unordered_set", {}, 4),
        *(
            Method(f"score regression, {words} samples", "score", REGRESSION, samples)
            for words, samples in several.items()
            if samples > 2
        ),
        *(
            Method(f"score function, {words} samples", "score", LEAVE_ONE_OUT, samples)
            for words, samples in several.items()
        ),
        Method("MuProp", "muprop"),
        *(
            Method(f"MuProp, {words} samples", "muprop", {"scale": "leave_one_out"}, samples)
            for words, samples in several.items()
            if samples > 2
        ),
    ]


_STRENGTHS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
_TEMPERATURES = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)


def grids() -> dict[str, list[Method]]:
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
        label: [Method(label, name, setting) for setting in settings]
        for (label, name), settings in options.items()
    }


def one_item() -> list[Method]:
    """For k = 1, the paper's figure 3. Swap with k = 1 is ReinMax."""
    return [
        REFERENCE,
        Method("swap", "swap"),
        Method("ReinMax", "reinmax"),
        *(
            Method(f"ST Gumbel-softmax, t = {t:g}", "st_gumbel", {"temperature": t})
            for t in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
        ),
    ]
