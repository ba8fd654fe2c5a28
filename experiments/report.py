"""One self-contained page: figures inside, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Claim:
    """What was said, what was found, and whether the first held."""

    said: str
    found: str
    held: bool


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; numbers are aligned right by the page."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """An SVG and what it shows."""

    svg: str
    caption: str
    alt: str


@dataclass
class Page:
    """The parts of a report, in their order."""

    title: str
    summary: str
    claims: list[Claim] = field(default_factory=list)
    claims_title: str = "What the paper says, and what was measured"
    links: dict[str, str] = field(default_factory=dict)  # titles and files beside the report
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    command: str = ""

    def html(self) -> str:
        """Everything but the figures is escaped."""
        pictures = [(Markup(p.svg), p.caption, p.alt) for p in self.pictures]
        return render("report.html", page=self, pictures=pictures)


def render(template: str, **content: Any) -> str:
    """A page from a template of this project; what it is given is escaped."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template).render(**content)
