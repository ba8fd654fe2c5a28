"""What opens docs/benchmarks.md: one chart and one table, from the results of two runs.

    python benchmarks/run.py --device cuda --fast    # on a GPU
    python benchmarks/run.py --fast
    python benchmarks/overview.py outputs/benchmark-cuda.json outputs/benchmark-cpu.json

Rewrites the block between <!-- overview --> and <!-- end of overview --> of the page, and
docs/pictures/benchmarks.svg. The text around the block is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from contest import COMPILED, OURS, PLAIN, REFERENCE, SWAP, Shape
from matplotlib.figure import Figure
from report import duration

DOCS = Path(__file__).parents[1] / "docs"
SHORT = {PLAIN: "plain", REFERENCE: "lean", COMPILED: "compiled"}
# By the first words of a way's title: heading, colour and marker.
WAYS = {
    "captured": ("CUDA graphs", "#08519c", "o"),
    "as a user": ("eager CUDA", "#6baed6", "D"),
    "one thread": ("one CPU thread", "#d94801", "s"),
}


@dataclass(frozen=True)
class Line:
    """`ksubset.simple` and `swap` at one shape, called one way."""

    shape: Shape
    ms: float
    best: str
    ratio: float
    low: float
    high: float
    swap: float

    @classmethod
    def of(cls, ours: dict[str, Any], swap: dict[str, Any]) -> Line:
        """From the records of both."""
        both = ours["times"]["both"]
        return cls(
            Shape(**ours["shape"]),
            both["ms"],
            SHORT[ours["best"]],
            both["ratio"],
            both["ratio_low"],
            both["ratio_high"],
            swap["against_ours"]["ratio"],
        )

    def cells(self) -> list[str]:
        """Time, ratio to the fastest baseline with quartiles, and swap's to ours."""
        ratio = f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] {self.best}"
        return [duration(self.ms), f"**{ratio}**" if self.ratio > 1 else ratio, f"{self.swap:.2f}"]


def read(paths: list[Path]) -> tuple[dict[str, dict[Shape, Line]], list[str]]:
    """The lines by way and shape, and the machines in words."""
    found: dict[str, dict[Shape, Line]] = {}
    machines = []
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        machines.append(machine.in_words(content["machine"]))
        for way in WAYS:
            records: dict[Shape, dict[str, Any]] = {}
            for record in content["table"]:
                if record["way"].startswith(way):
                    records.setdefault(Shape(**record["shape"]), {})[record["name"]] = record
            lines = {shape: Line.of(of[OURS], of[SWAP]) for shape, of in records.items()}
            found.setdefault(way, {}).update(lines)
    return {way: lines for way, lines in found.items() if lines}, machines


def shapes_of(found: dict[str, dict[Shape, Line]]) -> list[Shape]:
    """All, in the order they were measured."""
    return list(dict.fromkeys(shape for lines in found.values() for shape in lines))


def table(found: dict[str, dict[Shape, Line]]) -> str:
    """Markdown: a line for each shape, three columns for each way."""
    head, rule = ["rows × n, k"], ["---"]
    for way in found:
        head += [f"{WAYS[way][0]}: time", "/ fastest baseline", "swap / simple"]
        rule += ["---:"] * 3
    rows = [head, rule]
    for shape in shapes_of(found):
        row = [str(shape)]
        for lines in found.values():
            row += lines[shape].cells() if shape in lines else ["–"] * 3
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw(found: dict[str, dict[Shape, Line]]) -> Figure:
    """Ratios to the fastest baseline, a row of the chart for each shape."""
    shapes = shapes_of(found)
    figure, panel = plt.subplots(figsize=(8.4, 0.38 * len(shapes) + 1.7), layout="constrained")
    for index, (way, lines) in enumerate(found.items()):
        name, colour, marker = WAYS[way]
        places = [shapes.index(shape) + (index - (len(found) - 1) / 2) * 0.24 for shape in lines]
        ends = [(line.low, line.high) for line in lines.values()]
        panel.hlines(places, *zip(*ends, strict=True), color=colour, linewidth=1.5)
        ratios = [line.ratio for line in lines.values()]
        panel.plot(ratios, places, marker, color=colour, markersize=5, label=name)
    panel.axvline(1, color="#333333", linewidth=1)
    panel.set_yticks(range(len(shapes)), [str(shape) for shape in shapes], fontsize=9)
    panel.set_ylim(len(shapes) - 0.5, -0.5)
    panel.set_xlim(left=0)
    for index in range(0, len(shapes), 2):
        panel.axhspan(index - 0.5, index + 0.5, color="#f5f5f5", zorder=-1, linewidth=0)
    panel.set_xlabel("time of ksubset.simple / time of the fastest baseline (left of 1: faster)")
    panel.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=len(found), frameon=False, fontsize=9)
    return figure


def main() -> None:
    """Rewrite the block and the picture."""
    found, machines = read([Path(name) for name in sys.argv[1:]])
    page = DOCS / "benchmarks.md"
    block = f"{table(found)}\n\n{'; '.join(machines)}."
    filled, count = re.subn(
        "(<!-- overview -->).*?(<!-- end of overview -->)",
        lambda match: f"{match[1]}\n\n{block}\n\n{match[2]}",
        page.read_text(encoding="utf-8"),
        flags=re.S,
    )
    if count != 1:
        raise ValueError(f"{page} must have one block <!-- overview -->, it has {count}")
    page.write_text(filled, encoding="utf-8")
    plt.rcParams["svg.hashsalt"] = "ksubset"  # the same picture for the same numbers
    draw(found).savefig(DOCS / "pictures" / "benchmarks.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
