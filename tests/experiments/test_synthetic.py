"""The study end to end, small, as its command runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments import runs
from experiments.runs import run_folder
from experiments.synthetic import study
from experiments.synthetic.__main__ import app

SMALL = ["--n", "6", "--k", "3", "--problems", "2", "--draws", "200"]


def invoke(*options: str) -> Any:
    return CliRunner().invoke(app, list(options))


def test_a_small_study(tmp_path: Path) -> None:
    output = tmp_path / "run"
    result = invoke(*SMALL, "--output", str(output))
    assert result.exit_code == 0, result.output
    assert "SIMPLE exhibits less bias" in result.output
    content = json.loads((output / "results.json").read_text())
    assert content["settings"]["draws"] == 200
    assert {"quadratic", "network", "best", "one item"} == set(content["results"])
    assert all(len(found) == 6 for found in content["results"]["best"].values())
    assert len(content["claims"]) == 11
    assert {"ksubset", "torch"} <= set(content["environment"])
    page = (output / "report.html").read_text()
    assert page.count("<svg") == 3
    assert all(claim["said"] in page for claim in content["claims"])
    # Nothing is fetched.
    assert not any(mark in page for mark in ('src="http', 'href="http', "@import", "url(http"))
    for name in ("quadratic", "network", "one-item"):
        assert (output / f"{name}.png").stat().st_size > 10_000
        assert (output / f"{name}.svg").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]

    again = invoke(*SMALL, "--output", str(output))
    assert again.exit_code == 2
    assert "holds a run already; --overwrite replaces it" in again.output
    again = invoke(*SMALL, "--no-grid", "--output", str(output), "--overwrite")
    assert again.exit_code == 0
    assert not any(json.loads((output / "results.json").read_text())["results"]["best"].values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--k", "10"], "k must be less than n = 10, got 10"),
        (["--draws", "7"], "--draws"),
        (["--n", "ten"], "--n"),
        (["--lambda", "1"], "--lambda"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path) -> None:
    result = invoke(*options, "--output", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert message in result.output
    assert not list(tmp_path.iterdir())


def test_an_interrupted_study_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "_measure_all", interrupted)
    result = invoke(*SMALL, "--output", str(tmp_path / "run"))
    assert result.exit_code == 130
    assert "nothing was written" in result.output
    assert not list(tmp_path.iterdir())


def test_a_failed_run_leaves_the_old_one(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with run_folder(output) as folder:
        folder.json("results.json", {"a": 1})

    def fail() -> None:
        with run_folder(output, overwrite=True) as folder:
            folder.json("results.json", {"a": 2})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert json.loads((output / "results.json").read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="something that is not a run"):
        runs.check(tmp_path, overwrite=True)
