"""Formulas become pictures when the site is built, with MathML for those who listen.

No script has to run for them, no font has to be there, and they look the same in every browser.
Glyphs are drawn once per page and used by all formulas.
"""

from __future__ import annotations

import html
import re
from typing import Any

import ziamath
from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# In docstrings a formula on lines of its own is a paragraph of it.
_ALONE = re.compile(
    r'<p><span class="arithmatex">\\\((?P<latex>[^<]*)\\\)</span>(?P<end>[.,]?)</p>'
)
_GLYPH = re.compile(r'<symbol id="(?P<id>[^"]+)".*?</symbol>', re.DOTALL)
_SIZE = re.compile(r'width="[\d.]+" height="[\d.]+" viewBox="(?P<box>[-\d. ]+)"')
_EM = 16  # points of the formulas as drawn; the page scales them


def on_page_content(content: str, **_: Any) -> str:
    """Called for every page of the site."""
    glyphs: dict[str, str] = {}

    def draw(found: re.Match[str]) -> str:
        latex = " ".join(html.unescape(found["latex"]).split())
        inline = found["tag"] == "span"
        svg = ziamath.Latex(latex, size=_EM, color="currentColor", inline=inline).svg()
        glyphs.update((glyph["id"], glyph[0]) for glyph in _GLYPH.finditer(svg))
        svg = _SIZE.sub(_in_text, _GLYPH.sub("", svg), count=1)
        spoken = convert(latex, display="inline" if inline else "block")
        kind = "formula" if inline else "formula block"
        return f'<span class="{kind}">{svg}<span class="spoken">{spoken}</span></span>'

    content = _ALONE.sub(r'<div class="arithmatex">\\[\g<latex>\g<end>\\]</div>', content)
    content = _FORMULA.sub(draw, content)
    if not glyphs:
        return content
    return f'<svg class="glyphs" aria-hidden="true">{"".join(glyphs.values())}</svg>{content}'


def _in_text(size: re.Match[str]) -> str:
    """As large as the text around it, and on its line, which is at 0."""
    _, top, width, height = (float(number) / _EM for number in size["box"].split())
    place = f"width: {width:.3f}em; height: {height:.3f}em; vertical-align: {-top - height:.3f}em"
    return f'style="{place}" viewBox="{size["box"]}" aria-hidden="true"'
