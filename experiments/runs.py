"""A run and its folder: settings, results, figures, a report, all or nothing.

Everything is written into NAME.partial beside the folder asked for, NAME, and takes its place when
the run is complete: whatever stops a run, no half-written result is left. NAME.partial is locked,
so one run at a time ends up at NAME. It vanishes with a run that fails (`run_folder`), or stays to
be continued (`resumable_folder`).
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
from experiments.locks import is_at, locked

_MARK = "results.json"
_IDENTITY = "settings.json"
_REPLACED = ".replaced"
_UNFINISHED = re.compile(r"\..+-\w{8}")  # names that tempfile makes here and in write_atomically
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
    """A folder that takes the place of NAME at the end, and vanishes if the end is not reached.

    It is inside NAME.partial, which is for one run at a time; the next run there removes what is
    left of one that was killed.
    """
    with _partial(path, overwrite) as partial:
        if (left := _left_in(partial)) and not overwrite:
            raise ValueError(f"{partial} is an unfinished run: --overwrite drops it")
        _remove(left)
        work = Path(tempfile.mkdtemp(prefix=".run-", dir=partial))
        yield RunFolder(work)
        work.chmod(0o755)
        _take_place(work, path, partial)
        shutil.rmtree(partial)


def partial_path(path: Path) -> Path:
    """Where a run is until it is complete."""
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
    with _partial(path, overwrite) as partial:
        if left := _left_in(partial):
            if resume:
                _check_identity(partial, identity)
            elif overwrite:
                _remove(left)
            else:
                raise ValueError(
                    f"{partial} is an unfinished run: --resume continues it, --overwrite drops it"
                )
        folder = RunFolder(partial)
        folder.json(_IDENTITY, identity)
        yield folder
        _take_place(partial, path, partial)
        shutil.rmtree(path / _REPLACED, ignore_errors=True)


@contextmanager
def _partial(path: Path, overwrite: bool) -> Iterator[Path]:
    """NAME.partial, for this process alone; it stays if there is something in it to go on with."""
    check(path, overwrite)
    partial = partial_path(path)
    with locked(partial) as lock:
        try:
            _put_back(partial, path)
            check(path, overwrite)  # again: another run may have taken its place meanwhile
            yield partial
        except BaseException:
            # After it has taken its place, the next run may have made another one.
            if is_at(lock, partial):
                _put_back(partial, path)
                if not _work_in(partial):
                    shutil.rmtree(partial)
            raise


def _work_in(partial: Path) -> list[Path]:
    """What a run has left except for its settings, and what it had not finished to write."""
    return [
        path
        for path in partial.iterdir()
        if path.name != _IDENTITY and not _UNFINISHED.fullmatch(path.name)
    ]


def _left_in(partial: Path) -> list[Path]:
    """What an unfinished run has left, without what was being written when it was killed, which is
    removed."""
    left = _work_in(partial)
    if left and not (partial / _IDENTITY).is_file():
        raise ValueError(f"{partial} holds something that is not a run: it is left alone")
    unfinished = sorted(partial.rglob(".*"), reverse=True)  # what is inside a folder first
    _remove([path for path in unfinished if _UNFINISHED.fullmatch(path.name)])
    return left


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


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


def _take_place(work: Path, path: Path, partial: Path) -> None:
    """The old run waits in NAME.partial until the new one is in place."""
    if path.exists():
        path.rename(partial / _REPLACED)
    work.rename(path)


def _put_back(partial: Path, path: Path) -> None:
    """The old run, if the new one was stopped while it took its place; else the old one goes."""
    replaced = partial / _REPLACED
    if path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
    elif replaced.exists():
        replaced.rename(path)


def environment() -> dict[str, str]:
    """Versions, for the record."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
