"""Tables and claims for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.report import Claim, Table


def table(content: Table) -> str:
    """A title in bold, the table, and its note."""
    note = [content.note, ""] if content.note else []
    lines = _lines(content.headings, content.rows, right=True)
    return "\n".join([f"**{content.title}**", "", *lines, "", *note])


def claims(judged: Sequence[Claim]) -> str:
    """A row for every claim."""
    rows = [(c.said, c.found, "held" if c.held else "**not held**") for c in judged]
    return "\n".join([*_lines(("claim", "measured (means over problems)", ""), rows), ""])


def _lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False
) -> list[str]:
    rule = ["---", *["---:" if right else "---"] * (len(headings) - 1)]
    return [
        "| " + " | ".join(headings) + " |",
        "|" + "|".join(rule) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
