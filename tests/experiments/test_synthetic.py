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
from experiments.synthetic.measure import Measured
from experiments.synthetic.methods import PAPER, Method, beyond, one_item, published

SMALL = ["--n", "6", "--k", "3", "--problems", "2", "--draws", "200"]


def invoke(*options: str) -> Any:
    return CliRunner().invoke(app, list(options))


def test_a_small_study(tmp_path: Path) -> None:
    output = tmp_path / "run"
    result = invoke(*SMALL, "--output", str(output))
    assert result.exit_code == 0, result.output
    # Verdicts are below the table that they are about.
    of_all, of_one = result.output.split("k = 1, E‖z − b‖²")
    assert "SIMPLE has the least variance" in of_all
    assert "With k = 1, SIMPLE has less bias" in of_one
    assert "With k = 1" not in of_all
    content = json.loads((output / "results.json").read_text())
    assert content["settings"]["draws"] == 200
    assert {"quadratic", "network", "best", "one item"} == set(content["results"])
    assert all(len(found) == 6 for found in content["results"]["best"].values())
    assert len(content["claims"]) == 17
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
    "score function": (0.09, 0.2, 0.9, 2.0),
}
SWAP = dict.fromkeys(("swap", "swap, exact plan", "corrected swap"), (0.01, 0.02, 0.3, 2.0))
ELSE = (0.3, 0.1, 0.7, 100.0)
LESS_BIAS = "Of all methods in the table, SIMPLE has the least bias."  # not so: swap has less


def made_up(**changed: tuple[float, float, float, float]) -> list[Measured]:
    """The table of a study with these numbers; the mean squared error is the error."""
    found = []
    for one in published(2.5) + beyond():
        bias, variance, error, off = {**AS_SAID, **SWAP, **changed}.get(one.label, ELSE)
        lists = ([bias], [variance], [error], [0.1], [bias], [variance], [error], [off])
        found.append(Measured(one, "quadratic", *lists))
    return found


def failed(**changed: tuple[float, float, float, float]) -> list[str]:
    """Claims that do not hold, except for the one that never does here."""
    return [
        claim.said
        for claim in judge(made_up(**changed))
        if not claim.held and claim.said != LESS_BIAS
    ]


def test_claims_hold_where_the_numbers_say_so() -> None:
    assert set(PAPER) == {one.label for one in published(1.0)} == AS_SAID.keys()
    verdicts = {claim.said: claim.held for claim in judge(made_up())}
    assert [said for said, held in verdicts.items() if not held] == [LESS_BIAS]


@pytest.mark.parametrize("what", ["bias", "variance", "error"])
@pytest.mark.parametrize("label", ["SoftSub", "straight-through", "MuProp, 4 samples"])
def test_simple_has_the_least_only_where_no_other_has_as_little(what: str, label: str) -> None:
    """A method beyond the paper's refutes the claim about the table; one of the paper's, both."""
    numbers = list(AS_SAID.get(label, ELSE))
    place = ("bias", "variance", "error").index(what)
    numbers[place] = AS_SAID["SIMPLE"][place]
    results = made_up(**{label: (numbers[0], numbers[1], numbers[2], numbers[3])})
    of_paper, of_all = (
        claim
        for claim in judge(results)
        if claim.found.startswith(f"{what} SIMPLE") and claim.said.startswith("Of ")
    )
    assert "Of the paper's six" in of_paper.said
    assert "Of all methods" in of_all.said
    assert [of_paper.held, of_all.held] == [label not in PAPER, False]
    shown = {"MuProp, 4 samples": "MuProp (4 samples)"}.get(label, label)
    assert f"{shown} {numbers[place]:.4f}" in of_all.found.partition("as low or lower: ")[2]


def test_whether_there_is_bias_is_measured() -> None:
    """Whatever the name of an estimator."""
    assert failed(ReinMax=(0.001, 0.06, 0.6, 2.0)) == []
    said = failed(**{"score function": (0.001, 0.2, 0.9, 7.0)})
    assert len(said) == 2
    assert said[0].startswith("The score function has no bias")
    assert "the least bias of those that are biased" in said[1]


@pytest.mark.parametrize(
    ("label", "numbers", "said"),
    [
        ("L2X", (0.3, 0.9, 0.7, 100.0), None),  # not of the paper
        ("SIMPLE-F", (0.2, 0.9, 0.6, 100.0), "The score function"),
        ("SIMPLE-F", (0.5, 0.06, 0.6, 100.0), "I-MLE has the highest bias"),
        ("SIMPLE-F", (0.2, 0.015, 0.6, 100.0), "I-MLE has at most half"),
        ("SIMPLE-B", (0.2, 0.012, 0.3, 900.0), "Exact marginals"),
        ("swap, exact plan", (0.01, 0.02, 0.3, 5.0), "Swap with exact rates"),
        ("swap", (0.03, 0.02, 0.3, 2.0), "Swap has less bias"),
        ("swap", (0.01, 0.02, 0.95, 2.0), "Swap and corrected swap have smaller"),
        ("removal", (0.01, 0.02, 0.3, 2.0), "Swap and corrected swap have smaller"),
        ("removal", (0.01, 0.02, 0.3, 7.0), None),  # biased
    ],
)
def test_claims_about_some(
    label: str, numbers: tuple[float, float, float, float], said: str | None
) -> None:
    words = failed(**{label: numbers})
    assert any(each.startswith(said) for each in words) if said else not words


def rows(page: str, below: str) -> list[list[str]]:
    """Of the first table below a line."""
    lines = page[page.index(below) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    found = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 1 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


def test_the_page_says_of_its_tables_what_they_show() -> None:
    page = (Path(__file__).parents[2] / "docs/results/study.md").read_text(encoding="utf-8")
    known: dict[str, Method] = {m.label: m for m in published(2.5) + beyond() + one_item()}
    claims = []
    for below, judged in (("**Quadratic loss", judge), ("**k = 1", judge_one_item)):
        results = []
        for label, _, _, bias, variance, error, *others, off, _ in rows(page, below):
            values = [*map(float, (bias, variance, error, *others)), float(off.strip("> "))]
            results.append(Measured(known[label], "quadratic", *([v] for v in values)))
        claims += judged(results)
    said = [(words, verdict == "held") for words, _, verdict in rows(page, "| claim")]
    assert said == [(claim.said, claim.held) for claim in claims]


def test_claims_about_one_item() -> None:
    def made(bias: float, variance: float, who: str) -> list[Measured]:
        found = []
        for one in one_item():
            values = (0.1, 0.03) if one.label == "SIMPLE" else (0.2, 0.06)
            if one.label == who:
                values = (bias, variance)
            lists = ([value] for value in (*values, 0.1, 0.1, 0.1, 0.1, 0.1, 9.0))
            found.append(Measured(one, "quadratic", *lists))
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
