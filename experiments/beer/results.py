"""What came of the study: tables beside the paper's, and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind_from_stats

from experiments.beer.methods import LESS_NOISE
from experiments.report import Claim, Table

_CERTAIN = 0.05
# (aspect, k) and method: test MSE and precision, both x 100, mean and deviation over ten splits.
PUBLISHED: Mapping[tuple[str, int], Mapping[str, tuple[float, float, float, float]]] = {
    ("aroma", 5): {
        "simple": (2.27, 0.05, 57.30, 3.04), "l2x": (5.75, 0.30, 33.63, 6.91),
        "softsub": (2.57, 0.12, 54.06, 6.29), "imle": (2.62, 0.05, 54.76, 2.50),
    },
    ("aroma", 10): {
        "simple": (2.23, 0.03, 47.17, 2.11), "l2x": (6.68, 1.08, 26.65, 9.39),
        "softsub": (2.67, 0.14, 44.44, 2.27), "imle": (2.71, 0.10, 47.98, 2.26),
    },
    ("aroma", 15): {
        "simple": (3.20, 0.04, 53.18, 1.09), "l2x": (7.71, 0.64, 23.49, 10.93),
        "softsub": (2.52, 0.07, 37.78, 1.71), "imle": (2.91, 0.18, 39.56, 2.07),
    },
    ("appearance", 10): {
        "simple": (2.35, 0.28, 66.81, 7.56), "l2x": (10.70, 4.82, 30.02, 15.82),
        "softsub": (2.48, 0.10, 52.86, 7.08), "imle": (2.51, 0.05, 65.47, 4.95),
    },
    ("palate", 10): {
        "simple": (2.68, 0.06, 44.78, 2.75), "l2x": (6.70, 0.63, 50.39, 13.58),
        "softsub": (2.94, 0.08, 39.17, 3.17), "imle": (2.96, 0.04, 40.73, 3.15),
    },
    ("taste", 10): {
        "simple": (2.11, 0.02, 42.31, 0.61), "l2x": (6.92, 1.61, 32.23, 4.92),
        "softsub": (2.18, 0.10, 41.98, 1.42), "imle": (2.38, 0.04, 41.38, 1.55),
    },
}  # fmt: skip
HEADINGS = (
    "method", "setting", "test MSE", "precision", "… where marked", "best epoch",
    "paper: MSE", "paper: precision",
)  # fmt: skip
NOTE = (
    "Mean ± standard deviation over splits of the held-out reviews into validation and test, a "
    "model each; MSE and precision × 100. Precision: the share of the words chosen in an annotated "
    "review that people had marked for the aspect; beside it over the reviews with a mark at all. "
    "The paper's models saw 70,000 reviews and other word vectors, and its code differs (see the "
    "documentation): columns are to be compared with themselves."
)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """One method in one cell of the tables."""

    aspect: str
    k: int
    method: str
    label: str
    setting: str
    members: list[dict[str, Any]]
    diverged: int
    training_from: tuple[str, ...]
    reviews: int

    def values(self, name: str) -> Values:
        """Of all splits, × 100 but for epochs."""
        scale = 1 if name == "epoch" else 100
        found = [member[name] for member in self.members]
        return scale * np.array([value for value in found if value is not None])

    def epochs(self) -> str:
        """The mean of the best ones, and how many members never had one."""
        best = f"{self.values('epoch').mean():.0f}" if self.members else "–"
        return f"{best} ({self.diverged} diverged)" if self.diverged else best


def entries(cells: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """From what the jobs returned."""
    return [
        Entry(
            cell["aspect"], cell["k"], cell["method"], cell["label"], cell["setting"],
            [member for member in cell["members"] if member is not None],
            sum(member is None for member in cell["members"]),
            tuple(cell["training_from"]), cell["reviews"],
        )
        for cell in cells
    ]  # fmt: skip


def spread(values: Values) -> str:
    """Mean ± standard deviation."""
    if not len(values):
        return "–"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"


def in_cell(found: Sequence[Entry], aspect: str, k: int) -> list[Entry]:
    """All methods there."""
    return [entry for entry in found if (entry.aspect, entry.k) == (aspect, k)]


def tables(found: Sequence[Entry]) -> list[Table]:
    """One for every cell, the paper's figures beside ours."""
    result = []
    for aspect, k in dict.fromkeys((entry.aspect, entry.k) for entry in found):
        rows = []
        for entry in in_cell(found, aspect, k):
            published = PUBLISHED.get((aspect, k), {}).get(entry.method)
            mse, precision = "–", "–"
            if published is not None:
                mse = f"{published[0]:.2f} ± {published[1]:.2f}"
                precision = f"{published[2]:.2f} ± {published[3]:.2f}"
            rows.append(
                [
                    entry.label, entry.setting, spread(entry.values("test")),
                    spread(entry.values("precision")), spread(entry.values("precision_marked")),
                    entry.epochs(), mse, precision,
                ]
            )  # fmt: skip
        result.append(Table(f"{aspect}, k = {k}", HEADINGS, rows))
    return [*result[:-1], replace(result[-1], note=NOTE)] if result else []


def claims(found: Sequence[Entry]) -> list[Claim]:
    """The paper's, for every cell with several splits: SIMPLE against the estimators that it can be
    compared with there, which are named. SIMPLE with other settings may be better than SIMPLE."""
    result = []
    for aspect, k in dict.fromkeys((entry.aspect, entry.k) for entry in found):
        present = in_cell(found, aspect, k)
        several = [e for e in present if len(e.members) > 1]
        rivals = [e for e in several if not e.method.startswith("simple")]
        names = ("simple", *(method.name for method in LESS_NOISE))
        for ours in (e for e in several if e.method in names and rivals):
            cell = f"{aspect}, k = {k}"
            result += [_lowest(cell, ours, rivals), _not_exceeded(cell, ours, rivals)]
    return result


def _p(a: Values, b: Values) -> float:
    spreads = [float(x.std(ddof=1)) for x in (a, b)]
    if not any(spreads):  # nothing varies, and there is nothing to test
        return 1.0 if a.mean() == b.mean() else 0.0
    found = ttest_ind_from_stats(
        a.mean(), spreads[0], len(a), b.mean(), spreads[1], len(b), equal_var=False
    )
    return float(found.pvalue)


def _best(rivals: Sequence[Entry], key: Callable[[Entry], float]) -> Entry:
    return min(rivals, key=key)


def _lowest(cell: str, ours: Entry, rivals: Sequence[Entry]) -> Claim:
    a = ours.values("test")
    rival = _best(rivals, lambda e: float(e.values("test").mean()))
    b = rival.values("test")
    text = f"{ours.label} {spread(a)}, {rival.label} {spread(b)}; Welch's p = {_p(a, b):.2g}"
    claim = f"{cell}: {ours.label} has a lower test MSE than {_named(rivals, 'and')}."
    return Claim(claim, text, bool(a.mean() < b.mean()))


def _not_exceeded(cell: str, ours: Entry, rivals: Sequence[Entry]) -> Claim:
    a = ours.values("precision")
    rival = _best(rivals, lambda e: -float(e.values("precision").mean()))
    b = rival.values("precision")
    p = _p(a, b)
    text = f"{ours.label} {spread(a)}, {rival.label} {spread(b)}; Welch's p = {p:.2g}"
    held = bool(a.mean() >= b.mean() or p > _CERTAIN)
    claim = (
        f"{cell}: {ours.label} has no significantly lower precision than {_named(rivals, 'or')}."
    )
    return Claim(claim, text, held)


def _named(rivals: Sequence[Entry], conjunction: str) -> str:
    *others, last = (rival.label for rival in rivals)
    return f"{', '.join(others)} {conjunction} {last}" if others else last
