"""The study at n = 10, 100 and 1,000: true gradients, statistics, evaluations, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from experiments.scale import figures, page, problems, tables
from experiments.scale.__main__ import app
from experiments.scale.measure import Result, Value, evaluations, measure
from experiments.scale.problems import Truth, networks, quadratic
from experiments.synthetic.cost import relative
from experiments.synthetic.methods import REFERENCE, Method


def test_a_small_study(tmp_path: Path) -> None:
    output = tmp_path / "run"
    options = ["--largest", "10", "--problems", "2", "--rounds", "3", "--rows", "64"]
    result = CliRunner().invoke(app, [*options, "--output", str(output)])
    assert result.exit_code == 0, result.output
    content = json.loads((output / "results.json").read_text())
    results = content["results"]
    assert {r["loss"] for r in results["methods"]} == {"quadratic", "network"}
    assert {r["n"] for r in results["methods"]} == {10}
    assert {"swap", "SIMPLE"} <= {r["method"]["label"] for r in results["cost"]}
    text = (output / "tables.md").read_text()
    for table in ("Errors, quadratic loss", "Directions", "Cost"):
        assert f"**{table}**" in text
    assert (output / "report.html").read_text().count("<svg") == 1


def test_gradients_of_quadratics_are_exact() -> None:
    found, truth = quadratic(7, 3, 2, seed=0)
    torch.testing.assert_close(truth.gradient, found.exact(), rtol=1e-5, atol=1e-5)


def test_long_runs_know_their_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_ENUMERATED", 5)
    found, truth = networks(6, 3, 8, seed=0, samples=2**13)
    exact = found.exact()
    distance = (truth.gradient - exact).square().sum(-1)
    # Each ratio is a mean of about five squares of standard normals.
    assert 0.3 < (distance / truth.squared_error).mean() < 3
    assert (truth.squared_error < 0.02 * exact.square().sum(-1)).all()


def test_metrics_take_out_the_noise() -> None:
    """Of the mean over draws, and of the truth."""
    found, truth = networks(8, 4, 4, seed=0, samples=0)
    off = torch.randn(truth.gradient.shape, dtype=torch.float64) * 0.3
    noisy = Truth(truth.gradient + off, off.square().sum(-1))
    methods = [REFERENCE, Method("score function", "score")]
    plain = measure(methods, found, truth, rows=4096, rounds=4, seed=1)
    same = measure(methods, found, noisy, rows=4096, rounds=4, seed=1)
    for a, b in zip(plain, same, strict=True):
        assert b.variance.mean == pytest.approx(a.variance.mean, rel=0.3)
        assert b.squared_error.mean == pytest.approx(a.squared_error.mean, rel=0.3)
    simple, score = plain
    assert simple.squared_bias.mean > 10 * simple.noise
    for found_score in (score, same[1]):  # unbiased, however noisy the truth
        assert abs(found_score.squared_bias.mean) < 4 * found_score.noise < 0.1
    for r in plain:
        assert r.squared_error.mean == pytest.approx(
            r.squared_bias.mean + r.variance.mean, rel=0.01
        )


@pytest.mark.parametrize(
    ("name", "samples", "losses", "slopes"),
    [("simple", 1, 1, 1), ("score", 3, 3, 0), ("removal", 1, 4, 0), ("corrected_swap", 1, 2, 2),
     ("muprop", 1, 2, 1), ("marginals", 1, 1, 1)],
)  # fmt: skip
def test_evaluations_are_counted(name: str, samples: int, losses: int, slopes: int) -> None:
    found, _ = networks(6, 3, 2, seed=0, samples=0)
    counted = evaluations(Method(name, name, samples=samples), found)
    assert counted == (losses, slopes)


def test_times_are_relative_to_the_same_round() -> None:
    seconds = {"SIMPLE": [1.0, 10.0, 2.0], "swap": [2.0, 15.0, 4.0]}
    assert relative(seconds) == {"SIMPLE": 1.0, "swap": 2.0}


def made_up(label: str, estimator: str, bias: float, variance: float, time: float) -> Result:
    return Result(
        Method(label, estimator), "quadratic", 10, 5, 100, Value(bias, 0.1), 0.01,
        Value(variance, 0.0), Value(bias + variance, 0.0), Value(0.5, 0), 1, time, 1, 1,
    )  # fmt: skip


def test_the_frontier_has_a_line_for_whatever_is_best_at_some_time() -> None:
    results = [
        made_up("SIMPLE", "simple", 0.1, 1.0, 1.0),
        made_up("swap", "swap", 0.0, 3.0, 1.5),
        made_up("still", "ste", 0.5, 0.0, 1.0),
        made_up("quick", "score", 9.0, 9.0, 0.5),  # best only before SIMPLE is there at all
        made_up("worse", "l2x", 1.0, 5.0, 4.0),
    ]
    panel = figures.frontier(results).axes[0]
    markers = [line for line in panel.lines if len(line.get_xdata()) == 1]
    lines = [line for line in panel.lines if len(line.get_xdata()) > 2]
    assert len(markers) == 5
    assert {line.get_color() for line in lines} == {
        figures._STYLES[name][1] for name in ("simple", "swap", "ste")
    }


def test_numbers() -> None:
    assert [tables.number(x) for x in (1234.5, 99.4, 0.0123, 0.00051, 0.0)] == [
        "1,234", "99", "0.012", "5e-04", "0"
    ]  # fmt: skip
    assert tables.bias(made_up("", "swap", 0.1, 1.0, 1.0)) == "0.1"
    assert tables.bias(made_up("", "swap", 0.02, 1.0, 1.0)) == "–"


def test_blocks_of_the_page_are_filled() -> None:
    text = "before\n<!-- runs -->\nold\n<!-- end of runs -->\nafter\n"
    filled = page.fill(text, "runs", r"a \1 new\n")
    assert filled == "before\n<!-- runs -->\n\na \\1 new\\n\n\n<!-- end of runs -->\nafter\n"
    assert page.fill(filled, "runs", "old") == page.fill(text, "runs", "old")
    with pytest.raises(ValueError, match="must have one block <!-- scale -->, it has 0"):
        page.fill(text, "scale", "")
