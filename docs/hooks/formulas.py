"""Formulas become MathML when the site is built: no script has to run for them, and screen readers
know what to do with them."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    return convert(html.unescape(found["latex"]).strip(), display=display)


def on_page_content(content: str, **_: Any) -> str:
    """Called for every page of the site."""
    return _FORMULA.sub(_mathml, content)
