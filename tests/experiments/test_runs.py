"""Run folders: whatever happens, a run is there or it is not."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from experiments.runs import RunFolder, resumable_folder

SAME = {"seed": 0}


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
