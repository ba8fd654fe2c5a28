"""The sentences of section 5.1, and ours, checked against the table that was measured.

The paper compares SIMPLE with "all other estimators". That is checked among the paper's estimators
and in the whole table, as two claims. Where a word needs a threshold ("high"), the sentence names
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.report import Claim
from experiments.synthetic.measure import Measured, average
from experiments.synthetic.methods import PAPER

# Mean over draws, ten problems of ten items: one run in some thousands is further off by chance.
_CHANCE = 4.5


def _inline(label: str) -> str:
    """Without commas, for lists."""
    name, _, setting = label.partition(", ")
    return f"{name} ({setting})" if setting else name


class _Table:
    """What was measured, by label."""

    def __init__(self, results: Sequence[Measured]) -> None:
        self.rows = {r.method.label: r for r in results}
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

    def lowest(self, said: str, what: str, among: Iterable[str]) -> Claim:
        """Whether SIMPLE has less of it than every other one."""
        others = [label for label in among if label != "SIMPLE"]
        below = [label for label in others if not self.less(what, "SIMPLE", label)]
        found = f"{what} {self.listed(what, ['SIMPLE'])}"
        if below:
            found += f"; as low or lower: {self.listed(what, below)}"
        else:
            found += f"; the others: {self.listed(what, others)}"
        return Claim(said, found, not below)


def judge(results: Sequence[Measured]) -> list[Claim]:
    """Claims about k > 1 on the paper's loss."""
    table = _Table(results)
    return [*_of_the_paper(table), *_of_all(table), *_of_swap(table)]


def _of_the_paper(table: _Table) -> list[Claim]:
    listed, less, paper = table.listed, table.less, table.paper
    highest = max(paper, key=lambda label: table.value("variance", label))
    biased = table.biased(paper)
    plain = [label for label in ("SIMPLE-F", "SoftSub", "score function") if label in paper]
    return [
        Claim(
            "The score function has no bias, and the highest variance of the paper's estimators.",
            f"largest entry of its bias {table.deviations('score function'):.1f} standard "
            f"deviations of its mean; variance {listed('variance', paper)}",
            table.deviations("score function") < _CHANCE and highest == "score function",
        ),
        Claim(
            "SoftSub has more bias and more variance than SIMPLE.",
            f"bias {listed('bias', ('SoftSub', 'SIMPLE'))}; "
            f"variance {listed('variance', ('SoftSub', 'SIMPLE'))}",
            less("bias", "SIMPLE", "SoftSub") and less("variance", "SIMPLE", "SoftSub"),
        ),
        Claim(
            "I-MLE has the highest bias of the paper's biased estimators.",
            f"bias {listed('bias', biased)}",
            "I-MLE" in biased and not any(less("bias", "I-MLE", label) for label in biased),
        ),
        Claim(
            "I-MLE has at most half the variance of SIMPLE-F, of SoftSub and of the score "
            "function, which have no exact marginals either (the paper: very low variance).",
            f"variance {listed('variance', ('I-MLE', *plain))}",
            all(
                2 * table.value("variance", "I-MLE") <= table.value("variance", label)
                for label in plain
            ),
        ),
        Claim(
            "Exact samples (SIMPLE-F) give less bias and more variance than I-MLE.",
            f"bias {listed('bias', ('SIMPLE-F', 'I-MLE'))}; "
            f"variance {listed('variance', ('SIMPLE-F', 'I-MLE'))}",
            less("bias", "SIMPLE-F", "I-MLE") and less("variance", "I-MLE", "SIMPLE-F"),
        ),
        Claim(
            "Exact marginals (SIMPLE-B) give less variance than I-MLE.",
            f"variance {listed('variance', ('SIMPLE-B', 'I-MLE'))}",
            less("variance", "SIMPLE-B", "I-MLE"),
        ),
        table.lowest(
            "Of the paper's six estimators, SIMPLE has the least bias of those that are biased.",
            "bias",
            biased,
        ),
        *(
            table.lowest(f"Of the paper's six estimators, SIMPLE has the {least}.", what, paper)
            for what, least in _LEAST.items()
        ),
    ]


_LEAST = {"variance": "least variance", "error": "smallest error in direction"}


def _of_all(table: _Table) -> list[Claim]:
    """The same of the whole table."""
    least = {"bias": "least bias", **_LEAST}
    return [
        table.lowest(f"Of all methods in the table, SIMPLE has the {words}.", what, table.rows)
        for what, words in least.items()
    ]


def _of_swap(table: _Table) -> list[Claim]:
    unbiased = [
        label
        for label, result in table.rows.items()
        if result.method.samples == 1 and not table.biased([label])
    ]
    ours = ["swap", "corrected swap"]
    others = [label for label in unbiased if label not in (*ours, "swap, exact plan")]
    worse = max(ours, key=lambda label: table.value("squared_error", label))
    below = [label for label in others if not table.less("squared_error", worse, label)]
    return [
        Claim(
            "Swap with exact rates has no bias on a quadratic loss.",
            f"largest entry of its bias {table.deviations('swap, exact plan'):.1f} standard "
            "deviations of its mean",
            not table.biased(["swap, exact plan"]),
        ),
        Claim(
            "Swap has less bias than SIMPLE.",
            f"bias {table.listed('bias', ('swap', 'SIMPLE'))}",
            table.less("bias", "swap", "SIMPLE"),
        ),
        Claim(
            "Swap and corrected swap have smaller mean squared errors than all other methods that "
            "use one sample and have no measurable bias.",
            f"MSE {table.listed('squared_error', (*ours, *(below or others)))}",
            not below,
        ),
    ]


def judge_one_item(results: Sequence[Measured]) -> list[Claim]:
    """Claims about k = 1: SIMPLE against straight-through Gumbel-softmax."""
    table = _Table(results)
    gumbel = [r.method.label for r in results if r.method.estimator == "st_gumbel"]
    return [
        Claim(
            f"With k = 1, SIMPLE has less {what} than straight-through Gumbel-softmax at every "
            "temperature in the table.",
            f"{what} {table.listed(what, ('SIMPLE', *gumbel))}",
            all(table.less(what, "SIMPLE", label) for label in gumbel),
        )
        for what in ("bias", "variance")
    ]


def dominating(results: Sequence[Measured]) -> list[str]:
    """The methods with both less bias and less variance than SIMPLE."""
    table = _Table(results)
    return [
        label
        for label in table.rows
        if table.less("bias", label, "SIMPLE") and table.less("variance", label, "SIMPLE")
    ]
