"""The tables of the study, for the terminal, the report and the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.report import Table
from experiments.scale.measure import Result
from experiments.synthetic.methods import growing


def all_tables(
    methods: Sequence[Result],
    growth: Sequence[Result],
    unbiased: Sequence[Result],
    cost: Sequence[Result],
) -> list[Table]:
    """Growth with n, errors for each loss, directions, equal evaluations, cost."""
    losses = list(dict.fromkeys(r.loss for r in methods))
    return [
        _growth([*growth, *methods], [method.label for method in growing()]),
        *(_errors(loss, [r for r in methods if r.loss == loss]) for loss in losses),
        _directions(methods, losses),
        *(_equal(loss, [r for r in unbiased if r.loss == loss]) for loss in losses),
        _cost(cost),
    ]


def number(value: float) -> str:
    """Two significant digits, without an exponent up to 9,999."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) >= 0.001 else f"{value:.0e}" if value else "0"


def bias(r: Result) -> str:
    """A squared bias, or that there is none beyond three standard errors."""
    return number(r.squared_bias.mean) if r.squared_bias.mean > 3 * r.noise else "–"


def _sizes(results: Iterable[Result]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((r.n, r.k) for r in results))


def _labels(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(r.method.label for r in results))


def _growth(results: Sequence[Result], labels: Sequence[str]) -> Table:
    found = {(r.loss, r.method.label, r.n, r.k): r for r in results}
    losses = list(dict.fromkeys(r.loss for r in results))
    columns = sorted(
        {key[:1] + key[2:] for key in found},
        key=lambda c: (losses.index(c[0]), -c[2] / c[1], c[1]),
    )
    headings = ["method", *(f"{loss}: {n:,}, {k}" for loss, n, k in columns)]
    rows = [
        [label, *(number(found[loss, label, n, k].squared_error.mean) for loss, n, k in columns)]
        for label in labels
    ]
    note = (
        "Mean squared error of one gradient relative to the squared length of the true gradient, "
        "for the n and k above the column: first with k = n / 2, then with k = n / 10."
    )
    return Table("Growth with n", headings, rows, note)


def _errors(loss: str, results: Sequence[Result]) -> Table:
    found = {(r.method.label, r.n): r for r in results}
    headings, rows = ["method"], []
    for n, k in _sizes(results):
        headings += [f"n = {n:,}, k = {k}: MSE", "bias²", "time"]
    for label in _labels(results):
        row = [label]
        for n, _ in _sizes(results):
            r = found[label, n]
            row += [f"{number(r.squared_error.mean)} ± {number(r.squared_error.error)}",
                    bias(r), number(r.time)]  # fmt: skip
        rows.append(row)
    note = (
        "Mean squared error and squared bias of one gradient relative to the squared length of the "
        "true gradient, means over problems ± one standard error; “–”: no bias beyond three "
        "standard errors of the draws. Time in units of SIMPLE's, with the evaluation of the loss."
    )
    return Table(f"Errors, {loss} loss", headings, rows, note)


def _directions(results: Sequence[Result], losses: Sequence[str]) -> Table:
    found = {(r.loss, r.method.label, r.n): r for r in results}
    columns = [(loss, n) for loss in losses for n, _ in _sizes(results)]
    rows = [
        [label, *(number(found[loss, label, n].direction.mean) for loss, n in columns)]
        for label in _labels(results)
    ]
    note = "Mean of 1 − cos(gradient, true gradient): the error in direction, whatever the length."
    headings = ["method", *(f"{loss}, n = {n:,}" for loss, n in columns)]
    return Table("Directions", headings, rows, note)


def _equal(loss: str, results: Sequence[Result]) -> Table:
    headings, rows = ["method"], []
    unbiased = [r for r in results if r.method.estimator != "simple"]
    for n, k in _sizes(unbiased):
        headings += [f"n = {n:,}, k = {k}: evaluations", "MSE", "MSE × evaluations"]
    found = {(r.method.label, r.n): r for r in unbiased}
    for label in _labels(unbiased):
        row = [label]
        for n, _ in _sizes(unbiased):
            row += _evaluated(found[label, n])
        rows.append(row)
    note = (
        "Evaluations of the loss + of its gradient, for one estimate. All are unbiased, so that "
        "their number times the MSE compares methods at equal numbers of evaluations."
    )
    return Table(f"Unbiased methods at equal evaluations, {loss} loss", headings, rows, note)


def _evaluated(r: Result) -> list[str]:
    spent = f"{r.losses:g} + {r.gradients:g}"
    product = r.squared_error.mean * (r.losses + r.gradients)
    return [spent, number(r.squared_error.mean), number(product)]


def _cost(results: Sequence[Result]) -> Table:
    found = {(r.method.label, r.n): r for r in results}
    headings, rows = ["method"], []
    for n, k in _sizes(results):
        headings += [f"n = {n:,}, k = {k}: µs", "/ SIMPLE"]
    for label in _labels(results):
        row = [label]
        for n, _ in _sizes(results):
            row += [number(found[label, n].microseconds), number(found[label, n].time)]
        rows.append(row)
    note = (
        "Of one gradient of a linear loss, which costs next to nothing: one thread, the same batch "
        "of up to 4,096 rows and 131,072 numbers, methods in turns, medians; ratios within a round."
    )
    return Table("Cost", headings, rows, note)
