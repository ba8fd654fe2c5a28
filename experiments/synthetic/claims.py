"""The sentences of section 5.1, checked one by one against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.report import Claim
from experiments.synthetic.measure import Measured, average

_RIVALS = ("SIMPLE-F", "SIMPLE-B", "I-MLE", "SoftSub", "SFE")
# Mean over draws, ten problems of ten items: one run in some thousands is further off by chance.
_CHANCE = 4.5


def judge(results: Mapping[str, Measured], one_item: Sequence[Measured]) -> list[Claim]:
    """Of the contestants with the paper's own settings on its own loss."""

    def value(what: str, label: str) -> float:
        return average(getattr(results[label], what))

    def listed(what: str, *labels: str) -> str:
        return ", ".join(f"{label} {value(what, label):.4f}" for label in labels)

    everybody = ("SIMPLE", *_RIVALS)
    off = max(results["SFE"].bias_deviations)
    highest = max(everybody, key=lambda label: value("variance", label))
    biased = [label for label in _RIVALS if label != "SFE"]
    claims = [
        Claim(
            "The score function estimator exhibits no bias, but high variance.",
            f"largest entry of its bias {off:.1f} standard deviations of its mean; "
            f"variance {listed('variance', *everybody)}",
            off < _CHANCE and highest == "SFE",
        ),
        Claim(
            "SoftSub suffers from both bias and variance.",
            f"bias {listed('bias', 'SoftSub', 'SIMPLE')}; "
            f"variance {listed('variance', 'SoftSub', 'SIMPLE')}",
            value("bias", "SoftSub") > value("bias", "SIMPLE")
            and value("variance", "SoftSub") > value("variance", "SIMPLE"),
        ),
        Claim(
            "I-MLE exhibits very high bias.",
            f"bias {listed('bias', *biased)}",
            value("bias", "I-MLE") >= max(value("bias", label) for label in biased),
        ),
        Claim(
            "I-MLE exhibits very low variance (here: half of that of any other estimator without "
            "exact marginals, or less).",
            f"variance {listed('variance', *everybody)}",
            all(
                2 * value("variance", "I-MLE") <= value("variance", label)
                for label in ("SoftSub", "SFE", "SIMPLE-F")
            ),
        ),
        Claim(
            "SIMPLE exhibits less bias than all other (biased) estimators.",
            f"bias {listed('bias', 'SIMPLE', *biased)}",
            all(value("bias", "SIMPLE") < value("bias", label) for label in biased),
        ),
        Claim(
            "SIMPLE exhibits less variance than all other estimators.",
            f"variance {listed('variance', *everybody)}",
            all(value("variance", "SIMPLE") < value("variance", label) for label in _RIVALS),
        ),
        Claim(
            "Each gradient estimated by SIMPLE is, on average, much more aligned with the exact "
            "gradient.",
            f"error {listed('error', *everybody)}",
            all(value("error", "SIMPLE") < value("error", label) for label in _RIVALS),
        ),
        Claim(
            "Exact sampling (SIMPLE-F) reduces the bias, but increases the variance, compared to "
            "I-MLE.",
            f"bias {listed('bias', 'SIMPLE-F', 'I-MLE')}; "
            f"variance {listed('variance', 'SIMPLE-F', 'I-MLE')}",
            value("bias", "SIMPLE-F") < value("bias", "I-MLE")
            and value("variance", "SIMPLE-F") > value("variance", "I-MLE"),
        ),
        Claim(
            "Exact marginals (SIMPLE-B) reduce the variance even compared to I-MLE.",
            f"variance {listed('variance', 'SIMPLE-B', 'I-MLE')}",
            value("variance", "SIMPLE-B") < value("variance", "I-MLE"),
        ),
    ]
    ours = next(r for r in one_item if r.contestant.label == "SIMPLE")
    gumbel = [r for r in one_item if r.contestant.estimator == "st_gumbel"]
    for what in ("bias", "variance"):
        mine = average(getattr(ours, what))
        theirs = {
            f"t = {r.contestant.options['temperature']:g}": average(getattr(r, what))
            for r in gumbel
        }
        found = ", ".join(f"{label} {v:.4f}" for label, v in theirs.items())
        claims.append(
            Claim(
                f"With k = 1, SIMPLE exhibits lower {what} than straight-through Gumbel-softmax "
                "(at every temperature).",
                f"SIMPLE {mine:.4f}; Gumbel-softmax at {found}",
                all(mine < v for v in theirs.values()),
            )
        )
    return claims


def dominating(one_item: Sequence[Measured]) -> list[str]:
    """Who has both less bias and less variance than SIMPLE, among Gumbel-softmax estimators."""
    ours = next(r for r in one_item if r.contestant.label == "SIMPLE")
    return [
        r.contestant.label
        for r in one_item
        if r.contestant.estimator == "st_gumbel"
        and average(r.bias) <= average(ours.bias)
        and average(r.variance) <= average(ours.variance)
    ]
