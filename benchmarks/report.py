"""The results as a table for the terminal, as Markdown, as JSON and as a figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from contest import BASELINES, OURS, SWAP, Shape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from timing import Summary

OPERATIONS = ("forward", "backward", "both")
HEADINGS = (
    "rows × n, k", "sampler", "forward", "ratio", "backward", "ratio", "both", "ratio [quartiles]",
    "of ours [quartiles]", "memory: forward,\nbackward, both",
)  # fmt: skip
COLOURS = ("#08519c", "#d94801", "#74a892", "#8c6bb1", "#636363", "#c7a317", "#bdbdbd")
MARKERS = "osv^Dx+"


@dataclass(frozen=True)
class Record:
    """One sampler at one shape, measured one way."""

    way: str
    shape: Shape
    name: str
    times: dict[str, Summary]
    against_ours: Summary  # of both
    memory: dict[str, float]  # in multiples of the logits' size
    best: str  # the fastest baseline at this shape, which ratios are taken to


def duration(ms: float) -> str:
    """Three digits and a unit."""
    for scale, unit in ((1e3, "µs"), (1.0, "ms"), (1e-3, "s")):
        if ms * scale < 999.5 or unit == "s":
            value = ms * scale
            return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
    raise AssertionError


def _ratio(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.{3 if value < 0.0995 else 2 if value < 9.995 else 0}f}"


def with_quartiles(summary: Summary) -> str:
    """A ratio and what half of the repeats lie between."""
    low, high = _ratio(summary.ratio_low), _ratio(summary.ratio_high)
    return f"{_ratio(summary.ratio)} [{low}, {high}]"


def cells(record: Record) -> list[str]:
    """One line of the table."""
    line = [str(record.shape), record.name]
    for what in OPERATIONS:
        line += [duration(record.times[what].ms), _ratio(record.times[what].ratio)]
    both = record.times["both"]
    line[-1] = with_quartiles(both)
    line += [with_quartiles(record.against_ours)]
    return [*line, ", ".join(f"{record.memory[what]:.1f}" for what in OPERATIONS)]


def ways(records: Sequence[Record]) -> list[str]:
    """In the order they were measured."""
    return list(dict.fromkeys(record.way for record in records))


def caption(records: Sequence[Record], repeats: int) -> str:
    """How to read a table."""
    fewest = min(summary.repeats for record in records for summary in record.times.values())
    return (
        f"float32; medians of {repeats} interleaved repeats, {fewest} at least for slow samplers. "
        "Ratios to the fastest of the three baselines (straight-through Gumbel top-k: plain, lean, "
        f"compiled), and of both to {OURS}, within the same repeat. Memory: the peak "
        "above what was allocated before, in multiples of the logits. Backward: of a kept output. "
        "The log-space DP returns marginals in place of samples; topk and the copy are no samplers."
    )


def show(console: Console, way: str, records: Sequence[Record], repeats: int) -> None:
    """The table of one way of measuring."""
    chosen = [record for record in records if record.way == way]
    table = Table(title=way, caption=caption(chosen, repeats), caption_justify="left")
    for heading in HEADINGS:
        left = heading in HEADINGS[:2]
        table.add_column(
            escape(heading), justify="left" if left else "right", no_wrap=heading != "sampler"
        )
    for index, record in enumerate(chosen):
        last = index + 1 == len(chosen) or chosen[index + 1].shape != record.shape
        style = "bold" if record.name == OURS else None
        table.add_row(*map(escape, cells(record)), style=style, end_section=last)
    # A wrapped table is no table: where there is no terminal, as wide as it wants to be.
    wide = console if console.is_terminal else Console(file=console.file, width=150)
    wide.print(table)


def ratios(records: Sequence[Record]) -> list[list[str]]:
    """A line for each shape: ours, the baselines and the ratios between them, way by way."""
    lines = []
    for way in ways(records):
        for shape in dict.fromkeys(record.shape for record in records):
            found = {r.name: r for r in records if r.way == way and r.shape == shape}
            if OURS not in found:
                continue
            both = found[OURS].times["both"]
            line = [way, str(shape), duration(both.ms)]
            for name in BASELINES:
                line.append(duration(found[name].times["both"].ms) if name in found else "–")
            line += [with_quartiles(both), with_quartiles(found[SWAP].against_ours)]
            lines.append(line)
    return lines


RATIO_HEADINGS = (
    "way", "rows × n, k", "simple", "plain", "lean", "compiled", "simple / fastest baseline",
    "swap / simple",
)  # fmt: skip


def show_ratios(console: Console, records: Sequence[Record]) -> None:
    """The summary: one line for each way and shape."""
    table = Table(title="forward and backward, medians and ratios [quartiles]")
    for heading in RATIO_HEADINGS:
        table.add_column(escape(heading), no_wrap=True)
    for line in ratios(records):
        table.add_row(*map(escape, line))
    wide = console if console.is_terminal else Console(file=console.file, width=150)
    wide.print(table)


def markdown(records: Sequence[Record], repeats: int, notes: Sequence[str]) -> str:
    """The same tables for a document."""
    parts = [*notes]
    for way in ways(records):
        chosen = [record for record in records if record.way == way]
        headings = [heading.replace("\n", " ") for heading in HEADINGS]
        lines = [headings, ["---"] * 2 + ["---:"] * (len(HEADINGS) - 2), *map(cells, chosen)]
        parts += [f"### {way[:1].upper()}{way[1:]}"]
        parts += ["\n".join("| " + " | ".join(line) + " |" for line in lines)]
        parts += [caption(chosen, repeats)]
    return "\n\n".join(parts) + "\n"


def write_text(path: Path, text: str) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Atomically."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_figure(path: Path, figure: Figure) -> None:
    """Atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, dpi=150, format="png")
    plt.close(figure)
    partial.replace(path)


def plain(records: Sequence[Record]) -> list[dict[str, Any]]:
    """For JSON; a shape by its names."""
    return [{**asdict(record), "shape": record.shape._asdict()} for record in records]


def draw(records: Sequence[Record], machine: str) -> Figure:
    """A row of panels for each way: time, and ratio to the reference with its quartiles."""
    rows = ways(records)
    shapes = list(dict.fromkeys(record.shape for record in records))
    names = list(dict.fromkeys(record.name for record in records))
    figure, panels = plt.subplots(
        len(rows), 2, figsize=(14, 4.3 * len(rows) + 0.8), layout="constrained", squeeze=False
    )
    for way, (left, right) in zip(rows, panels, strict=True):
        for index, name in enumerate(names):
            chosen = [r for r in records if r.way == way and r.name == name]
            _draw_one(left, right, chosen, shapes, index, len(names))
        left.set(title=f"{way}: forward + backward", ylabel="time, ms", yscale="log")
        right.set(title="ratio to the fastest baseline", ylabel="ratio", yscale="log")
        right.axhline(1, color=COLOURS[1], linewidth=1, zorder=0)
        for panel in (left, right):
            panel.set_xticks(range(len(shapes)), [_tick(shape) for shape in shapes], fontsize=8)
            panel.set_xlim(-0.5, len(shapes) - 0.5)
            panel.grid(axis="y", color="#e5e5e5", linewidth=0.8)
            panel.spines[["top", "right"]].set_visible(False)
            for index in range(0, len(shapes), 2):  # which marks belong together
                panel.axvspan(index - 0.5, index + 0.5, color="#f5f5f5", zorder=-1, linewidth=0)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(machine, fontsize=10)
    return figure


def _tick(shape: Shape) -> str:
    return f"{shape.rows} ×\n{shape.n:,}\nk = {shape.k:,}"


def _draw_one(
    left: Axes, right: Axes, chosen: Sequence[Record], shapes: list[Shape], index: int, count: int
) -> None:
    # Side by side within a shape, ours first.
    places = [shapes.index(record.shape) + (index - (count - 1) / 2) * 0.11 for record in chosen]
    both = [record.times["both"] for record in chosen]
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    size = 8 if index == 0 else 6
    label = chosen[0].name if chosen else None
    left.plot(places, [x.ms for x in both], marker, color=colour, markersize=size, label=label)
    for place, x in zip(places, both, strict=True):
        if x.ratio is None or x.ratio_low is None or x.ratio_high is None:
            continue
        right.plot([place] * 2, [x.ratio_low, x.ratio_high], color=colour, linewidth=1.5)
        right.plot([place], [x.ratio], marker, color=colour, markersize=size)
