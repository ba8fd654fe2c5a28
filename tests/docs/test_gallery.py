"""Every script of the gallery runs, and makes its picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "figures")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_picture(script: Path, tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / f"{script.stem}.png"
    run = subprocess.run(
        [sys.executable, script, "--output", picture],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_every_script_is_shown() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for script in SCRIPTS:
        assert f"](gallery/{script.stem}.png)" in page
        assert f'--8<-- "examples/{script.name}"' in page
