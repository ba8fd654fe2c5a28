"""Formulas as pictures: every symbol is drawn, and its glyph is on the page exactly once."""

from __future__ import annotations

import html
import importlib.util
from pathlib import Path

import pytest
from drawn import Drawn

pytest.importorskip("ziamath")
HOOK = Path(__file__).parents[2] / "docs" / "hooks" / "formulas.py"
specification = importlib.util.spec_from_file_location("formulas", HOOK)
assert specification is not None
assert specification.loader is not None
formulas = importlib.util.module_from_spec(specification)
specification.loader.exec_module(formulas)


def page(*sources: str) -> Drawn:
    spans = (rf'<span class="arithmatex">\({html.escape(latex)}\)</span>' for latex in sources)
    return Drawn(formulas.on_page_content(f"<p>{' and '.join(spans)}</p>"))


# Names of functions come between glyphs that are blank.
@pytest.mark.parametrize(
    ("latex", "symbols"),
    [
        (r"\exp(\theta \cdot z)", "exp(θ·z)"),
        (r"p(z) \propto \exp(\theta \cdot z)", "p(z)∝exp(θ·z)"),
        (r"\log\sum_i \exp\theta_i", "log∑iexpθi"),
        (r"x_1 + x^1 + \mathrm{x}", "x1+x1+x"),
        (r"\sqrt{\mathrm{Var}(z)} \,/\, 2", "√Var(z)/2"),
        (r"a < b \text{ if } c", "a<bifc"),
    ],
)
def test_every_symbol_is_drawn(latex: str, symbols: str) -> None:
    found = page(latex)
    found.check()
    assert [found.shown(formula) for formula in found.formulas] == [len(symbols)]


def test_formulas_of_a_page_share_their_glyphs() -> None:
    found = page(r"\exp x", r"\log\exp x", "x", r"\exp x_x")
    found.check()
    assert [found.shown(formula) for formula in found.formulas] == [4, 7, 1, 5]
