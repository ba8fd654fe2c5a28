"""Docstrings are written for ``help()``, with roles of reStructuredText; the site is Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, NameResolutionError, Object

_MATH = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:class|data|func|meth|mod):`~?([^`]+)`")
_CODE = re.compile(r"``([^`]+)``")
_PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")


class Roles(Extension):
    """Turns roles into formulas and links."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for everything that griffe has read."""
        if obj.docstring is not None:
            text = _MATH.sub(r"$\1$", obj.docstring.value)
            text = _ROLE.sub(lambda found: _link(found[1], obj), text)
            text = _CODE.sub(r"`\1`", text)
            # All of the reference is in one folder of the docs.
            obj.docstring.value = _PAGE.sub(r"[\1](../\1.md)", text)


def _link(name: str, mentioned_in: Object) -> str:
    """A link if the name has a place in the reference, else its text."""
    try:
        path = mentioned_in.resolve(name)
    except NameResolutionError:
        path = name
    return f'<autoref identifier="{path}" optional><code>{name}</code></autoref>'
