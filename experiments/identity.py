"""Whether what is on disk was made with the settings of now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As they will be read again: tuples are lists; NaN is an error, it is no JSON."""
    return json.loads(json.dumps(dict(settings), allow_nan=False))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first setting that is not the same, "NAME = OLD, not NEW"; both as JSON gives them."""
    for name in sorted(before.keys() | now.keys()):
        # 1, 1.0 and true are equal in Python.
        if (name in before) != (name in now) or _text(before[name]) != _text(now[name]):
            return f"{name} = {_shown(before, name)}, not {_shown(now, name)}"
    return None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "nothing"
