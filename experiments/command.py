"""From a dataclass of settings to a command: its fields are the options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from experiments import interrupts


def option(default: Any, description: str, **constraints: Any) -> Any:
    """A field with a line of help, and typer's own constraints (min, max)."""
    return dataclasses.field(
        default=default, metadata={"help": description, "constraints": constraints}
    )


@contextmanager
def one_line_errors(interrupted: str = "nothing was written") -> Iterator[None]:
    """A mistake of the user's is a line, not a traceback; bad values exit with code 2, as wrong
    options do."""
    try:
        with interrupts.raised():
            yield
    except ValueError as error:
        typer.secho(f"Error: {error}", err=True, fg="red")
        raise typer.Exit(2) from None
    except OSError as error:
        typer.secho(f"Error: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.secho(f"Interrupted: {interrupted}.", err=True, fg="yellow")
        raise typer.Exit(interrupts.STATUS) from None


def command(
    settings: type,
    run: Callable[[Any, Path, bool], None],
    output: Path,
    description: str,
    interrupted: str = "nothing was written",
) -> typer.Typer:
    """An application with one command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    def main(**given: Any) -> None:
        folder, overwrite = given.pop("output"), given.pop("overwrite")
        with one_line_errors(interrupted):
            run(settings(**given), folder, overwrite)

    hints = get_type_hints(settings)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                hints[field.name],
                typer.Option(help=field.metadata["help"], **field.metadata["constraints"]),
            ],
        )
        for field in dataclasses.fields(settings)
    ]
    more: tuple[tuple[str, Any, Any], ...] = (
        ("output", output, Annotated[Path, typer.Option(help="The folder of the run.")]),
        (
            "overwrite",
            False,
            Annotated[bool, typer.Option(help="Replace a run that is there already.")],
        ),
    )
    for name, default, annotation in more:
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
        )
    main.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    main.__doc__ = description
    app.command()(main)
    return app


def command_line(start: str, settings: Any) -> str:
    """The command that these settings came from: its options that are not the default."""
    parts = [start]
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if value != item.default:
            name = item.name.replace("_", "-")
            if isinstance(value, bool):
                parts.append(f"--{'' if value else 'no-'}{name}")
            else:
                parts.append(f"--{name} {value}")
    return " ".join(parts)
