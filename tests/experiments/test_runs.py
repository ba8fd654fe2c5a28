"""Run folders: whatever happens, a run is there or it is not."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.runs import RunFolder, resumable_folder, run_folder

ROOT = Path(__file__).parents[2]
SAME = {"seed": 0}
Begin = Callable[..., AbstractContextManager[RunFolder]]


def resumable(path: Path, **options: bool) -> AbstractContextManager[RunFolder]:
    return resumable_folder(path, SAME, **options)


KINDS = pytest.mark.parametrize("begin", [run_folder, resumable])


def begun(path: Path) -> None:
    """A run that was stopped after some work."""
    with contextlib.suppress(KeyboardInterrupt), resumable_folder(path, SAME) as folder:
        folder.json("work.json", 1)
        raise KeyboardInterrupt


def finish(folder: RunFolder) -> None:
    folder.json("results.json", 2)


def test_a_run_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with resumable_folder(path, SAME) as folder:
        assert not path.exists()
        finish(folder)
    assert json.loads((path / "results.json").read_text()) == 2
    with pytest.raises(ValueError, match="holds a run already"), resumable_folder(path, SAME):
        pass
    with resumable_folder(path, {"seed": 1}, overwrite=True) as folder:
        finish(folder)
    assert json.loads((path / "settings.json").read_text()) == {"seed": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_unfinished_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    begun(path)
    with pytest.raises(ValueError, match="is an unfinished run"), resumable_folder(path, SAME):
        pass
    message = "was begun with seed = 0, not 1"
    with pytest.raises(ValueError, match=message), resumable_folder(path, {"seed": 1}, resume=True):
        pass
    with resumable_folder(path, SAME, resume=True) as folder:
        assert (folder.path / "work.json").exists()
        finish(folder)
    assert (path / "work.json").exists()
    begun(tmp_path / "other")
    with resumable_folder(tmp_path / "other", SAME, overwrite=True) as folder:
        assert not (folder.path / "work.json").exists()
        finish(folder)


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize("first", [{}, {"overwrite": True}])
def test_one_process_at_a_time(
    tmp_path: Path, first: dict[str, bool], options: dict[str, bool]
) -> None:
    path = tmp_path / "run"
    begun(path)
    with resumable_folder(path, SAME, **(first or {"resume": True})) as folder:
        with (
            pytest.raises(ValueError, match="is in use by another process"),
            resumable_folder(path, SAME, **options),
        ):
            pass
        finish(folder)
    assert (path / "results.json").exists()


@KINDS
@pytest.mark.parametrize("other", [run_folder, resumable])
def test_one_run_at_a_time(tmp_path: Path, begin: Begin, other: Begin) -> None:
    path = tmp_path / "run"
    for old in ({}, {"overwrite": True}):  # without an old run, and with one
        with begin(path, **old) as folder:
            why = "holds a run already" if old else "is in use by another process"
            with pytest.raises(ValueError, match=why), other(path):
                pass
            with pytest.raises(ValueError, match="is in use"), other(path, overwrite=True):
                pass
            finish(folder)
        assert json.loads((path / "results.json").read_text()) == 2
        assert [p.name for p in tmp_path.iterdir()] == ["run"]


@KINDS
def test_the_other_run_has_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Begin
) -> None:
    """Between a run's look at the place and its lock: it does not replace what it has not seen."""
    path = tmp_path / "run"
    mkdir = Path.mkdir

    def late(self: Path, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        with begin(path) as folder:
            finish(folder)
        mkdir(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    with pytest.raises(ValueError, match="holds a run already"), begin(path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


EXPERIMENTS = {
    "synthetic": [],
    "sparse": [],
    "l2x": ["--workers", "0"],
    "beer": ["--data-dir", ".", "--workers", "0"],
    "dvae": ["--k", "10", "--methods", "simple", "--epochs", "1"],
}


@KINDS
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_take_turns(tmp_path: Path, begin: Begin, name: str) -> None:
    path = tmp_path / "run"
    app = importlib.import_module(f"experiments.{name}.__main__").app
    resumes = [["--resume"]] if name in ("l2x", "beer", "dvae") else []
    with begin(path) as folder:
        for more in ([], ["--overwrite"], *resumes):
            options = [*EXPERIMENTS[name], "--output", str(path), *more]
            result = CliRunner().invoke(app, options)
            assert result.exit_code == 2, result.output
            assert "is in use by another process" in " ".join(result.output.split())
        finish(folder)
    assert (path / "results.json").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from experiments import runs
path, where = Path(sys.argv[1]), sys.argv[2]
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
with runs.run_folder(path, overwrite=True) as folder:
    folder.json("results.json", "new")
    (folder.path / "figure.svg").write_text("half")
    if where == "running":
        killed()
    renames = []
    rename = Path.rename
    def counted(self, target):
        renames.append(target)
        if len(renames) == 2:
            killed()
        rename(self, target)
    if where == "replacing":
        Path.rename = counted
    else:
        runs.shutil.rmtree = killed
"""


@pytest.mark.parametrize(
    ("where", "left"), [("running", "old"), ("replacing", "old"), ("cleaning", "new")]
)
def test_what_a_killed_run_leaves(tmp_path: Path, where: str, left: str) -> None:
    path = tmp_path / "run"
    with run_folder(path) as folder:
        folder.json("results.json", "old")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), where],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "run.partial").exists()
    with contextlib.suppress(KeyboardInterrupt), run_folder(path, overwrite=True):
        assert json.loads((path / "results.json").read_text()) == left
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert json.loads((path / "results.json").read_text()) == left


def test_runs_that_cannot_be_continued_spare_those_that_can(tmp_path: Path) -> None:
    path = tmp_path / "run"
    begun(path)
    with pytest.raises(ValueError, match="is an unfinished run"), run_folder(path):
        pass
    assert (tmp_path / "run.partial" / "work.json").exists()
    with run_folder(path, overwrite=True) as folder:
        finish(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_is_beside_a_run_is_left_alone(tmp_path: Path) -> None:
    path, mine = tmp_path / "run", tmp_path / "run.old"
    mine.mkdir()
    for overwrite in (False, True):
        with run_folder(path, overwrite) as folder:
            finish(folder)
    assert mine.exists()


def test_what_a_refused_run_leaves(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(ValueError, match="no"), resumable_folder(path, SAME):
        raise ValueError("no")
    assert not list(tmp_path.iterdir())
    (tmp_path / "elsewhere").mkdir()
    for target in ("nowhere", "elsewhere"):
        path.symlink_to(target)
        with pytest.raises(ValueError, match="is a link"), resumable_folder(path, SAME):
            pass
        path.unlink()
    path.write_text("a file")
    with pytest.raises(ValueError, match="is not a folder"), resumable_folder(path, SAME):
        pass


def test_what_a_kill_leaves(tmp_path: Path) -> None:
    path, partial = tmp_path / "run", tmp_path / "run.partial"
    partial.mkdir()
    (partial / ".settings.json-abc_1234").write_text("{")
    with resumable_folder(path, SAME) as folder:
        assert [p.name for p in folder.path.iterdir()] == ["settings.json"]
        finish(folder)
    begun(tmp_path / "next")
    (tmp_path / "next.partial" / "settings.json").write_text("[1]")
    with (
        pytest.raises(ValueError, match="is damaged"),
        resumable_folder(tmp_path / "next", SAME, resume=True),
    ):
        pass
    (tmp_path / "alien.partial").mkdir()
    (tmp_path / "alien.partial" / "thesis.tex").write_text("dear")
    (tmp_path / "alien.partial" / ".env").write_text("dearer")
    (tmp_path / "hidden.partial").mkdir()
    (tmp_path / "hidden.partial" / ".env").write_text("dear")
    with (
        pytest.raises(ValueError, match="is not a run: it is left alone"),
        resumable_folder(tmp_path / "hidden", SAME),
    ):
        pass
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with (
            pytest.raises(ValueError, match="is not a run: it is left alone"),
            resumable_folder(tmp_path / "alien", SAME, **options),
        ):
            pass
    assert (tmp_path / "alien.partial" / "thesis.tex").read_text() == "dear"
    assert (tmp_path / "alien.partial" / ".env").read_text() == "dearer"
