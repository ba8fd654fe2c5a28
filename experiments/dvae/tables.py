"""python -m experiments.dvae.tables RESULTS...: the tables of runs as Markdown, and their curves.

With --merge the files are parts of one study: methods with codes of one shape share a table and the
comparison at equal time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import one_line_errors
from experiments.dvae import figures
from experiments.dvae.methods import Method
from experiments.dvae.page import comparisons, grid_table, table
from experiments.dvae.results import Outcome, by_shape
from experiments.dvae.study import step_times
from experiments.report import Table


def _numbers(value: Any) -> Any:
    """What diverged has no number in JSON."""
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return float("nan") if value is None else value


def _pairs(values: Any) -> tuple[Any, ...]:
    return tuple((name, tuple(x) if isinstance(x, list) else x) for name, x in values)


def about(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method in results.json."""
    found = dict(content["method"])
    for name in ("options", "settings", "grid"):
        found[name] = _pairs(found[name])
    return found


def outcome(content: Mapping[str, Any]) -> Outcome:
    """A method and its losses in results.json."""
    losses = {name: _numbers(values) for name, values in content["losses"].items()}
    return Outcome(
        Method(**about(content)), content["seeds"], losses, content["epochs"],
        _numbers(content["importance"]),
    )  # fmt: skip


def markdown(shown: Table) -> str:
    """A table, its title above it and its note below."""
    lines = [" | ".join(cells) for cells in (shown.headings, ["---"] * len(shown.headings))]
    lines += [" | ".join(cells) for cells in shown.rows]
    body = "\n".join(f"| {line} |" for line in lines)
    return f"**{shown.title}**\n\n{body}\n\n{shown.note}\n"


@dataclass
class Part:
    """What a file holds, or several together."""

    title: str
    results: list[Outcome]
    grids: dict[str, list[Outcome]]


def read(path: Path) -> Part:
    """A file results.json."""
    try:
        content = json.loads(path.read_bytes())
        results = [outcome(part) for part in content["results"]]
        grids = {key: list(map(outcome, tried)) for key, tried in content["grids"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a results.json of this study: {error!r}") from None
    return Part(str(path), results, grids)


def merged(parts: Sequence[Part]) -> Part:
    """One study. Grids of the same method are one grid; its trained models must not come twice."""
    results = [one for part in parts for one in part.results]
    keys = [one.method.key for one in results]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"results cannot be merged: {', '.join(twice)} came more than once")
    grids: dict[str, list[Outcome]] = {}
    for part in parts:
        for key, tried in part.grids.items():
            grids[key] = grids.get(key, []) + tried
    return Part(" + ".join(part.title for part in parts), results, grids)


@one_line_errors()
def main(
    results: Annotated[list[Path], typer.Argument(help="Files results.json, of several runs.")],
    times: Annotated[Path | None, typer.Option(help="As --step-times of the study.")] = None,
    merge: Annotated[bool, typer.Option(help="The files are parts of one study.")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the curves of all files: a PNG or SVG.")
    ] = None,
) -> None:
    """Print tables."""
    microseconds = step_times(times)
    parts = list(map(read, results))
    if figure is not None:
        curves = figures.curves(
            merged(parts).results, lambda r: r.elbo, "Negative test ELBO: exact samples, exact KL",
            "nats per image",
        )  # fmt: skip
        curves.savefig(figure, dpi=110)
    for part in [merged(parts)] if merge else parts:
        typer.echo(f"## {part.title}\n")
        for same in by_shape(part.results).values():
            typer.echo(markdown(table(same, bool(part.grids))))
        for shown in comparisons(part.results, part.grids, microseconds):
            typer.echo(markdown(shown))
        for key, tried in part.grids.items():
            typer.echo(markdown(grid_table(key, tried)))


if __name__ == "__main__":
    typer.run(main)
