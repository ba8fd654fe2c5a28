"""python -m experiments.dvae.tables RESULTS...: the tables of runs as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import one_line_errors
from experiments.dvae.methods import Method
from experiments.dvae.page import comparisons, grid_table, table
from experiments.dvae.results import Outcome
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


@one_line_errors()
def main(
    results: Annotated[list[Path], typer.Argument(help="Files results.json, of several runs.")],
    times: Annotated[Path | None, typer.Option(help="As --step-times of the study.")] = None,
) -> None:
    """Print tables."""
    microseconds = step_times(times)
    for path in results:
        try:
            content = json.loads(path.read_bytes())
            found = [outcome(part) for part in content["results"]]
            grids = {key: list(map(outcome, tried)) for key, tried in content["grids"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a results.json of this study: {error!r}") from None
        typer.echo(f"## {path}\n")
        for k in sorted({one.method.k for one in found}, reverse=True):
            typer.echo(markdown(table(k, found, bool(grids))))
        for shown in comparisons(found, grids, microseconds):
            typer.echo(markdown(shown))
        for key, tried in grids.items():
            typer.echo(markdown(grid_table(key, tried)))


if __name__ == "__main__":
    typer.run(main)
