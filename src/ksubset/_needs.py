"""What a part of the library needs beyond its base, and the extra that brings it."""

from __future__ import annotations

import importlib


def need(package: str, part: str, extra: str, hint: str = "") -> None:
    """Raise an ImportError that says what to install, unless the package is there."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{part} needs {package}: pip install 'ksubset[{extra}]'{hint}"
        raise ModuleNotFoundError(message, name=package) from error
