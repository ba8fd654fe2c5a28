"""Every script of the gallery runs, and makes its picture."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

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


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    return importlib.import_module("cost")


def test_the_picture_of_costs_has_the_benchmarks_baselines(cost: Any) -> None:
    import baselines
    import contest

    assert cost.samplers is contest.samplers
    assert {contest.OURS, contest.REFERENCE} < cost.COLOURS.keys()
    table = contest.samplers(contest.Shape(2, 8, 3), graphs=False)
    assert table[contest.REFERENCE] is baselines.straight_through_gumbel_top_k


def test_costs_are_measured_in_turns(cost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No method has a moment of the machine to itself, at any k."""
    calls: list[tuple[str, int]] = []

    def samplers(shape: Any, graphs: bool) -> dict[str, Any]:
        def sampler(name: str) -> Any:
            def sample(logits: torch.Tensor, k: int) -> torch.Tensor:
                calls.append((name, k))
                time.sleep(1e-3)  # so that one call is enough for the clock
                return logits * 1.0

            return sample

        return {name: sampler(name) for name in cost.COLOURS}

    monkeypatch.setattr(cost, "samplers", samplers)
    monkeypatch.setattr(cost, "SIZES", (1, 3))
    monkeypatch.setattr(cost, "REPEATS", 4)
    times = cost.milliseconds()
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys(cost.COLOURS, 2)
    one_round = len(cost.COLOURS) * 2
    assert len(calls) >= 4 * one_round
    for turn in range(1, 5):
        start = len(calls) - turn * one_round
        assert len(set(calls[start : start + one_round])) == one_round


def test_every_script_is_shown() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for script in SCRIPTS:
        assert f"](gallery/{script.stem}.png)" in page
        assert f'--8<-- "examples/{script.name}"' in page
