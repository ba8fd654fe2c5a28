"""The study end to end, small, as its command runs it."""

from __future__ import annotations

import html
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments import runs
from experiments.runs import run_folder
from experiments.synthetic import study
from experiments.synthetic.__main__ import app
from experiments.synthetic.claims import dominating, judge, judge_one_item
from experiments.synthetic.contestants import PAPER, beyond, one_item, published
from experiments.synthetic.measure import Measured

SMALL = ["--n", "6", "--k", "3", "--problems", "2", "--draws", "200"]


def invoke(*options: str) -> Any:
    return CliRunner().invoke(app, list(options))


def test_a_small_study(tmp_path: Path) -> None:
    output = tmp_path / "run"
    result = invoke(*SMALL, "--output", str(output))
    assert result.exit_code == 0, result.output
    # Verdicts are below the table that they are about.
    of_all, of_one = result.output.split("k = 1, E‖z − b‖²")
    assert "SIMPLE exhibits less bias" in of_all
    assert "With k = 1, SIMPLE exhibits lower bias" in of_one
    assert "With k = 1" not in of_all
    content = json.loads((output / "results.json").read_text())
    assert content["settings"]["draws"] == 200
    assert {"quadratic", "network", "best", "one item"} == set(content["results"])
    assert all(len(found) == 6 for found in content["results"]["best"].values())
    assert len(content["claims"]) == 14
    assert {"ksubset", "torch"} <= set(content["environment"])
    page = (output / "report.html").read_text()
    assert page.count("<svg") == 3
    assert all(claim["said"] in html.unescape(page) for claim in content["claims"])
    # What is said of how settings were chosen is how they were.
    assert "mean error of 100 draws" in page
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


# Bias, variance, error and deviations of the bias: all that the paper says holds.
AS_SAID = {
    "SIMPLE": (0.02, 0.004, 0.15, 200.0),
    "SIMPLE-F": (0.2, 0.06, 0.6, 500.0),
    "SIMPLE-B": (0.2, 0.008, 0.3, 900.0),
    "I-MLE": (0.4, 0.01, 0.5, 900.0),
    "SoftSub": (0.07, 0.03, 0.2, 100.0),
    "SFE": (0.09, 0.2, 0.9, 2.0),
}
ELSE = (0.3, 0.1, 0.7, 100.0)


def made_up(**changed: tuple[float, float, float, float]) -> list[Measured]:
    """The table of a study with these numbers."""
    found = []
    for one in published(2.5) + beyond():
        bias, variance, error, off = {**AS_SAID, **changed}.get(one.label, ELSE)
        lists = ([bias], [variance], [error], [0.1], [bias], [variance], [error], [off])
        found.append(Measured(one, "quadratic", *lists, 1.0))
    return found


def verdicts(results: list[Measured]) -> dict[str, bool]:
    return {claim.said: claim.held for claim in judge(results)}


def test_claims_hold_where_the_numbers_say_so() -> None:
    assert set(PAPER) == {one.label for one in published(1.0)} == AS_SAID.keys()
    assert all(verdicts(made_up()).values())


@pytest.mark.parametrize("what", ["bias", "variance", "aligned"])
@pytest.mark.parametrize("label", ["SoftSub", "straight-through", "MuProp, 4 samples"])
def test_no_claim_is_made_of_all_where_one_is_better(what: str, label: str) -> None:
    """A single estimator of the table is enough; of the paper's, only one of the paper's."""
    numbers = list(AS_SAID.get(label, ELSE))
    place = ("bias", "variance", "aligned").index(what)
    numbers[place] = AS_SAID["SIMPLE"][place]  # as little: SIMPLE has no less
    results = made_up(**{label: (numbers[0], numbers[1], numbers[2], numbers[3])})
    claims = [claim for claim in judge(results) if "all other" in claim.said and what in claim.said]
    assert [claim.held for claim in claims] == [label not in PAPER, False]
    shown = {"MuProp, 4 samples": "MuProp (4 samples)"}.get(label, label)
    assert f"SIMPLE {numbers[place]:.4f}, {shown} {numbers[place]:.4f}" in claims[1].found


def test_whether_there_is_bias_is_measured() -> None:
    """An unbiased estimator is none of the biased ones, whoever it is, and a biased SFE is one."""
    less = {"ReinMax": (0.001, 0.06, 0.6, 2.0)}
    assert all(verdicts(made_up(**less)).values())
    less = {"SFE": (0.001, 0.2, 0.9, 7.0)}
    failed = [said for said, held in verdicts(made_up(**less)).items() if not held]
    assert len(failed) == 3
    assert failed[0].startswith("The score function estimator exhibits no bias")
    assert all("less bias than all other (biased)" in said for said in failed[1:])


@pytest.mark.parametrize(
    ("label", "numbers", "said"),
    [
        ("L2X", (0.3, 0.9, 0.7, 100.0), None),  # not of the paper
        ("SIMPLE-F", (0.2, 0.9, 0.6, 100.0), "The score function estimator"),
        ("SIMPLE-F", (0.5, 0.06, 0.6, 100.0), "I-MLE exhibits very high bias"),
        ("SIMPLE-F", (0.2, 0.015, 0.6, 100.0), "I-MLE exhibits very low variance"),
        ("SIMPLE-B", (0.2, 0.012, 0.3, 900.0), "Exact marginals"),
    ],
)
def test_claims_about_some(
    label: str, numbers: tuple[float, float, float, float], said: str | None
) -> None:
    failed = [words for words, held in verdicts(made_up(**{label: numbers})).items() if not held]
    assert any(words.startswith(said) for words in failed) if said else not failed


def rows(page: str, below: str) -> list[list[str]]:
    """Of the first table below a line."""
    lines = page[page.index(below) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    found = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 1 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


def test_the_page_says_of_its_tables_what_they_show() -> None:
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    known = {one.label: one for one in published(2.5) + beyond() + one_item()}
    claims = []
    for below, judged in (
        ("**Quadratic loss", judge), ("**One item**", judge_one_item)
    ):  # fmt: skip
        results = []
        for label, _, _, bias, variance, error, *others, off, _, _ in rows(page, below):
            values = [*map(float, (bias, variance, error, *others)), float(off.strip("> "))]
            results.append(Measured(known[label], "quadratic", *([v] for v in values), 1.0))
        claims += judged(results)
    said = [(words, found, verdict == "held") for words, found, verdict in rows(page, "| claim")]
    assert said == [(claim.said, claim.found, claim.held) for claim in claims]


def test_claims_about_one_item() -> None:
    def made(bias: float, variance: float, who: str) -> list[Measured]:
        found = []
        for one in one_item():
            values = (0.1, 0.03) if one.label == "SIMPLE" else (0.2, 0.06)
            if one.label == who:
                values = (bias, variance)
            lists = ([value] for value in (*values, 0.1, 0.1, 0.1, 0.1, 0.1, 9.0))
            found.append(Measured(one, "quadratic", *lists, 1.0))
        return found

    def held(results: list[Measured]) -> list[bool]:
        return [claim.held for claim in judge_one_item(results)]

    gumbel = "ST Gumbel-softmax, t = 5"
    assert held(made(0.2, 0.06, gumbel)) == [True, True]
    assert held(made(0.1, 0.06, gumbel)) == [False, True]
    assert held(made(0.2, 0.03, gumbel)) == [True, False]
    assert dominating(made(0.05, 0.04, gumbel)) == []
    assert dominating(made(0.05, 0.02, gumbel)) == [gumbel]
    assert dominating(made(0.05, 0.02, "ReinMax")) == ["ReinMax"]


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
