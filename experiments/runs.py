"""A run and its folder: settings, results, figures, a report, all or nothing.

Everything is written into a folder beside the one asked for, which takes its place when the run is
complete: whatever stops a run, no half-written result is left.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

_MARK = "results.json"
_PACKAGES = ("ksubset", "torch", "numpy", "numba", "matplotlib")


class RunFolder:
    """Where a run in progress writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def json(self, name: str, content: Any) -> None:
        """Numbers as they are; NaN is an error, it is no JSON."""
        text = json.dumps(content, indent=1, allow_nan=False)
        (self.path / name).write_text(text + "\n", encoding="utf-8")

    def text(self, name: str, content: str) -> None:
        """UTF-8."""
        (self.path / name).write_text(content, encoding="utf-8")

    def figure(self, name: str, figure: Figure) -> str:
        """As PNG and as SVG, which is returned."""
        figure.savefig(self.path / f"{name}.png", dpi=150)
        figure.savefig(self.path / f"{name}.svg", metadata={"Date": None})
        svg = (self.path / f"{name}.svg").read_text(encoding="utf-8")
        return svg[svg.index("<svg") :]


def check(path: Path, overwrite: bool) -> None:
    """Raise unless a run may end up there."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"output {path} is not a folder")
    if path.is_dir() and any(path.iterdir()):
        if not (path / _MARK).exists():
            raise ValueError(f"output {path} holds something that is not a run: it is left alone")
        if not overwrite:
            raise ValueError(f"output {path} holds a run already; --overwrite replaces it")


@contextmanager
def run_folder(path: Path, overwrite: bool = False) -> Iterator[RunFolder]:
    """A folder that takes its place at the end, and vanishes if the end is not reached."""
    check(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield RunFolder(work)
        work.chmod(0o755)
        old = None
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
            path.rename(old / "run")
        work.rename(path)
        if old is not None:
            shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def environment() -> dict[str, str]:
    """Versions, for the record."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
