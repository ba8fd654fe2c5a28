"""The sentences of section 5.1, checked one by one against the table that was measured.

A sentence about "all other estimators" is checked twice: among those of the paper, which it is
about, and in the whole table. Where a word needs a threshold ("high"), the sentence says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.report import Claim
from experiments.synthetic.contestants import PAPER
from experiments.synthetic.measure import Measured, average

# Mean over draws, ten problems of ten items: one run in some thousands is further off by chance.
_CHANCE = 4.5


def _inline(label: str) -> str:
    """Without commas, for lists."""
    name, _, setting = label.partition(", ")
    return f"{name} ({setting})" if setting else name


class _Table:
    """What was measured, by label."""

    def __init__(self, results: Sequence[Measured]) -> None:
        self.rows = {r.contestant.label: r for r in results}
        self.paper = [label for label in self.rows if label in PAPER]

    def value(self, what: str, label: str) -> float:
        return average(getattr(self.rows[label], what))

    def listed(self, what: str, labels: Iterable[str]) -> str:
        return ", ".join(f"{_inline(label)} {self.value(what, label):.4f}" for label in labels)

    def deviations(self, label: str) -> float:
        """Of the bias from 0, in standard deviations of the mean over draws."""
        return max(self.rows[label].bias_deviations)

    def biased(self, labels: Iterable[str]) -> list[str]:
        return [label for label in labels if self.deviations(label) >= _CHANCE]

    def less(self, what: str, a: str, b: str) -> bool:
        return self.value(what, a) < self.value(what, b)

    def least(self, what: str, said: str, of_paper: list[str], of_all: list[str]) -> list[Claim]:
        """Whether SIMPLE has less of it than any other, of the paper's and of all."""
        claims = []
        for labels, scope in ((of_paper, "of the paper"), (of_all, "of the table")):
            others = [label for label in labels if label != "SIMPLE"]
            below = [label for label in others if not self.less(what, "SIMPLE", label)]
            found = f"{what} {self.listed(what, ['SIMPLE', *(below or others)])}"
            claims.append(Claim(f"{said} {scope}.", found, not below))
        return claims


def judge(results: Sequence[Measured]) -> list[Claim]:
    """Of the paper's loss, with its settings."""
    table = _Table(results)
    listed, less, paper = table.listed, table.less, table.paper
    highest = max(paper, key=lambda label: table.value("variance", label))
    biased = table.biased(paper)
    plain = [label for label in ("SIMPLE-F", "SoftSub", "SFE") if label in paper]
    return [
        Claim(
            "The score function estimator exhibits no bias, but high variance (here: the highest "
            "of the paper's estimators).",
            f"largest entry of its bias {table.deviations('SFE'):.1f} standard deviations of its "
            f"mean; variance {listed('variance', paper)}",
            table.deviations("SFE") < _CHANCE and highest == "SFE",
        ),
        Claim(
            "SoftSub suffers from both bias and variance (here: more of both than SIMPLE).",
            f"bias {listed('bias', ('SoftSub', 'SIMPLE'))}; "
            f"variance {listed('variance', ('SoftSub', 'SIMPLE'))}",
            less("bias", "SIMPLE", "SoftSub") and less("variance", "SIMPLE", "SoftSub"),
        ),
        Claim(
            "I-MLE exhibits very high bias (here: the highest of the paper's biased estimators).",
            f"bias {listed('bias', biased)}",
            "I-MLE" in biased and not any(less("bias", "I-MLE", label) for label in biased),
        ),
        Claim(
            "I-MLE exhibits very low variance (here: half of that of SIMPLE-F, SoftSub and SFE, "
            "which have no exact marginals either, or less).",
            f"variance {listed('variance', ('I-MLE', *plain))}",
            all(
                2 * table.value("variance", "I-MLE") <= table.value("variance", label)
                for label in plain
            ),
        ),
        *table.least(
            "bias",
            "SIMPLE exhibits less bias than all other (biased) estimators",
            biased,
            table.biased(table.rows),
        ),
        *table.least(
            "variance",
            "SIMPLE exhibits less variance than all other estimators",
            paper,
            list(table.rows),
        ),
        *table.least(
            "error",
            "Each gradient estimated by SIMPLE is, on average, more aligned with the exact "
            "gradient than those of all other estimators",
            paper,
            list(table.rows),
        ),
        Claim(
            "Exact sampling (SIMPLE-F) reduces the bias, but increases the variance, compared to "
            "I-MLE.",
            f"bias {listed('bias', ('SIMPLE-F', 'I-MLE'))}; "
            f"variance {listed('variance', ('SIMPLE-F', 'I-MLE'))}",
            less("bias", "SIMPLE-F", "I-MLE") and less("variance", "I-MLE", "SIMPLE-F"),
        ),
        Claim(
            "Exact marginals (SIMPLE-B) reduce the variance even compared to I-MLE.",
            f"variance {listed('variance', ('SIMPLE-B', 'I-MLE'))}",
            less("variance", "SIMPLE-B", "I-MLE"),
        ),
    ]


def judge_one_item(results: Sequence[Measured]) -> list[Claim]:
    """Of k = 1, against straight-through Gumbel-softmax."""
    table = _Table(results)
    gumbel = [r.contestant.label for r in results if r.contestant.estimator == "st_gumbel"]
    return [
        Claim(
            f"With k = 1, SIMPLE exhibits lower {what} than straight-through Gumbel-softmax (at "
            "every temperature of the table).",
            f"{what} {table.listed(what, ('SIMPLE', *gumbel))}",
            all(table.less(what, "SIMPLE", label) for label in gumbel),
        )
        for what in ("bias", "variance")
    ]


def dominating(results: Sequence[Measured]) -> list[str]:
    """Who has both less bias and less variance than SIMPLE."""
    table = _Table(results)
    return [
        label
        for label in table.rows
        if table.less("bias", label, "SIMPLE") and table.less("variance", label, "SIMPLE")
    ]
