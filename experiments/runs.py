"""A run and its folder: settings, results, figures, a report, all or nothing.

Everything is written into a folder beside the one asked for, which takes its place when the run is
complete: whatever stops a run, no half-written result is left. That folder vanishes with a run that
fails (`run_folder`), or stays to be continued (`resumable_folder`).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.datasets.files import write_atomically
from experiments.identity import as_json, difference
from experiments.locks import locked

_MARK = "results.json"
_IDENTITY = "settings.json"
_UNFINISHED = re.compile(r"\..+-\w{8}")  # names that write_atomically makes
_PACKAGES = ("ksubset", "torch", "numpy", "numba", "matplotlib")


class RunFolder:
    """Where a run in progress writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def json(self, name: str, content: Any) -> None:
        """Numbers as they are; NaN is an error, it is no JSON."""
        self.text(name, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def text(self, name: str, content: str) -> None:
        """UTF-8, whole or not at all."""
        write_atomically(self.path / name, content.encode())

    def figure(self, name: str, figure: Figure) -> str:
        """As PNG and as SVG, which is returned."""
        figure.savefig(self.path / f"{name}.png", dpi=150)
        figure.savefig(self.path / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
        svg = (self.path / f"{name}.svg").read_text(encoding="utf-8")
        return svg[svg.index("<svg") :]


def check(path: Path, overwrite: bool) -> None:
    """Raise unless a run may end up there."""
    if path.is_symlink():
        raise ValueError(f"output {path} is a link: name the folder itself")
    if os.path.lexists(path) and not path.is_dir():
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
        _take_place(work, path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def partial_path(path: Path) -> Path:
    """Where a run that can be continued is until it is complete."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def resumable_folder(
    path: Path, identity: Mapping[str, Any], overwrite: bool = False, resume: bool = False
) -> Iterator[RunFolder]:
    """A folder NAME.partial that takes the place of NAME at the end, and stays if the end is not
    reached, for the same run to go on with.

    Args:
        path: NAME.
        identity: what must be the same for a run to be continued.
        overwrite: replace a run that is there, finished or not.
        resume: go on with an unfinished one, if there is one.
    """
    check(path, overwrite)
    partial = partial_path(path)
    partial.mkdir(parents=True, exist_ok=True)
    with locked(partial):
        _prepare(partial, identity, overwrite, resume)
        folder = RunFolder(partial)
        folder.json(_IDENTITY, identity)
        try:
            yield folder
        except BaseException:
            if not _work_in(partial):  # there is nothing to go on with
                shutil.rmtree(partial)
            raise
        _take_place(partial, path)


def _work_in(partial: Path) -> list[Path]:
    """What a run has left but for its settings."""
    return [path for path in partial.iterdir() if path.name != _IDENTITY]


def _prepare(partial: Path, identity: Mapping[str, Any], overwrite: bool, resume: bool) -> None:
    """Raise unless the run may go on there, and make room for it."""
    work = _work_in(partial)
    if not work:
        return
    # A run that was killed while it wrote its very first file has left nothing else.
    begun = (partial / _IDENTITY).is_file() or all(_UNFINISHED.fullmatch(p.name) for p in work)
    if not begun:
        raise ValueError(f"{partial} holds something that is not a run: it is left alone")
    # What was being written when a process was killed.
    for path in partial.rglob(".*"):
        if path.is_file() and _UNFINISHED.fullmatch(path.name):
            path.unlink()
    work = _work_in(partial)
    if not work:
        return
    if resume:
        _check_identity(partial, identity)
    elif overwrite:
        # Not the folder itself: it is what is locked.
        for path in work:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        raise ValueError(
            f"{partial} is an unfinished run: --resume continues it, --overwrite drops it"
        )


def _check_identity(partial: Path, identity: Mapping[str, Any]) -> None:
    path = partial / _IDENTITY
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(before, dict):
        raise ValueError(f"{path} is damaged: it holds no settings")
    if (differs := difference(before, as_json(identity))) is not None:
        raise ValueError(
            f"{partial} was begun with {differs}: --resume continues with the same settings only"
        )


def _take_place(work: Path, path: Path) -> None:
    """An old run goes when the new one is in place; if that is cut short, it is at NAME.old."""
    old = path.with_name(f"{path.name}.old")
    if path.exists():
        if old.exists():
            shutil.rmtree(old)
        path.rename(old)
    work.rename(path)
    if old.exists():
        shutil.rmtree(old)


def environment() -> dict[str, str]:
    """Versions, for the record."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
