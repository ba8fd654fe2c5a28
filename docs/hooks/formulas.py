"""Formulas become pictures when the site is built, with MathML for those who listen.

No script has to run for them, no font has to be there, and they look the same in every browser.
Glyphs are drawn once per page and used by all formulas.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

import ziamath
from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# In docstrings a formula on lines of its own is a paragraph of it.
_ALONE = re.compile(
    r'<p><span class="arithmatex">\\\((?P<latex>[^<]*)\\\)</span>(?P<end>[.,]?)</p>'
)
_EM = 16  # points of the formulas as drawn; the page scales them


def on_page_content(content: str, **_: Any) -> str:
    """Called for every page of the site."""
    glyphs: dict[str, str] = {}

    def draw(found: re.Match[str]) -> str:
        latex = " ".join(html.unescape(found["latex"]).split())
        inline = found["tag"] == "span"
        picture = ziamath.Latex(latex, size=_EM, color="currentColor", inline=inline).svgxml()
        glyphs.update(_take_glyphs(picture))
        _place_in_text(picture)
        spoken = convert(latex, display="inline" if inline else "block")
        kind = "formula" if inline else "formula block"
        return f'<span class="{kind}">{_text(picture)}<span class="spoken">{spoken}</span></span>'

    content = _ALONE.sub(r'<div class="arithmatex">\\[\g<latex>\g<end>\\]</div>', content)
    content = _FORMULA.sub(draw, content)
    if not glyphs:
        return content
    return f'<svg class="glyphs" aria-hidden="true">{"".join(glyphs.values())}</svg>{content}'


def _take_glyphs(picture: ElementTree.Element) -> dict[str, str]:
    """Remove the glyphs from a picture and return them by id; references to them stay."""
    taken = {}
    for parent in list(picture.iter()):
        for glyph in parent.findall("symbol"):
            parent.remove(glyph)
            taken[glyph.attrib["id"]] = _text(glyph)
    return taken


def _place_in_text(picture: ElementTree.Element) -> None:
    """As large as the text around it, and on its line, which is at 0."""
    _, top, width, height = (float(number) / _EM for number in picture.attrib["viewBox"].split())
    place = f"width: {width:.3f}em; height: {height:.3f}em; vertical-align: {-top - height:.3f}em"
    del picture.attrib["width"], picture.attrib["height"]
    picture.attrib |= {"style": place, "aria-hidden": "true"}


def _text(element: ElementTree.Element) -> str:
    return ElementTree.tostring(element, encoding="unicode")
