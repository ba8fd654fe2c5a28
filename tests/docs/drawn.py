"""Formulas of a page as a browser finds them: glyphs, what refers to them, what is spoken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

_FUNCTION_APPLICATION = "\u2061"  # spoken, not seen


@dataclass
class Formula:
    """A picture and its MathML."""

    glyphs: list[str] = field(default_factory=list)  # ids it refers to
    spoken: str = ""
    roots: int = 0  # a radical is drawn, and is no text

    def symbols(self) -> int:
        """How many must be drawn."""
        return len("".join(self.spoken.split()).replace(_FUNCTION_APPLICATION, "")) + self.roots


class Drawn(HTMLParser):
    """``ids`` of a page and how often each is there, ``shapes`` (ids of glyphs that are not blank),
    ``formulas``."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.shapes: set[str] = set()
        self.formulas: list[Formula] = []
        self._glyph: str | None = None
        self._speaks = False
        self.feed(page)

    def check(self) -> None:
        """Every id is there once, and every symbol is drawn."""
        assert {name for name, count in self.ids.items() if count > 1} == set()
        for formula in self.formulas:
            assert set(formula.glyphs) <= self.ids.keys(), formula.spoken
            assert self.shown(formula) == formula.symbols(), formula.spoken

    def shown(self, formula: Formula) -> int:
        """How many symbols of it a reader sees."""
        return sum(name in self.shapes for name in formula.glyphs)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if "id" in given:
            self.ids[given["id"]] += 1
        match tag:
            case "span" if "formula" in given.get("class", "").split():
                self.formulas.append(Formula())
            case "symbol":
                self._glyph = given["id"]
            case "path" if self._glyph is not None:
                self.shapes.add(self._glyph)
            case "use":
                self.formulas[-1].glyphs.append(given["href"].removeprefix("#"))
            case "math":
                self._speaks = True
            case "msqrt" | "mroot":
                self.formulas[-1].roots += 1

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "symbol":
                self._glyph = None
            case "math":
                self._speaks = False

    def handle_data(self, data: str) -> None:
        if self._speaks:
            self.formulas[-1].spoken += data
