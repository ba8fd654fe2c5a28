"""Equations from data: the solver, the library, the rivals and the command, small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

from experiments.sparse import kuramoto, lorenz, study
from experiments.sparse.__main__ import app
from experiments.sparse.rivals import FINDERS
from experiments.sparse.settings import Settings


@pytest.fixture(scope="module")
def field() -> kuramoto.Field:
    return kuramoto.solve(length=16 * np.pi, n=256, end=60, frames=151)


def test_the_solver(field: kuramoto.Field) -> None:
    coarse, fine, finest = (
        kuramoto.solve(length=16 * np.pi, n=256, end=0.4, frames=2, steps=steps).v[:, 1]
        for steps in (8, 16, 128)
    )
    ratio = np.abs(coarse - finest).max() / np.abs(fine - finest).max()
    assert 15 < ratio < 17  # fourth order
    np.testing.assert_allclose(field.v.mean(0), field.v[:, 0].mean(), atol=1e-12)  # conserved
    chaotic = field.v[:, 75:]
    assert 1.0 < chaotic.std() < 1.6  # about 1.3 on the attractor
    assert 2 < np.abs(chaotic).max() < 4
    # The fastest growing wave has wavelength 2 pi sqrt(2): eight minus a few on this ring.
    power = np.square(np.abs(np.fft.rfft(chaotic, axis=0))).mean(1)
    assert 3 <= power.argmax() <= 7


@pytest.mark.parametrize("periodic", [True, False])
def test_the_equation_is_found(field: kuramoto.Field, periodic: bool) -> None:
    for method in ("ksubset", "all subsets"):
        found = study.clean(field, method, periodic, 0)
        assert set(found.terms) == set(kuramoto.TRUTH)
        assert found.to_truth < 0.15  # coarse grid


def test_weak_form_under_noise(field: kuramoto.Field) -> None:
    data = kuramoto.weak(field.with_noise(0.05, 0), 150)
    assert data.terms.shape == (150, 14)
    support = study.find("ksubset", data.terms, data.v_t, 3, 0)
    assert {data.names[i] for i in support} == set(kuramoto.TRUTH)


def test_every_rival_finds_planted_terms() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 8)) * np.geomspace(0.1, 10, 8)
    scale = x.std(0)
    y = (x / scale)[:, [1, 4, 6]] @ np.array([1.0, -2.0, 1.5]) + 0.01 * random.standard_normal(300)
    for name in FINDERS:
        assert study.find(name, x, y, 3, 0) == (1, 4, 6), name


def test_lorenz_with_little_noise() -> None:
    terms, names, slopes = lorenz.regression(1e-4, 0)
    for d, truth in enumerate(lorenz.TRUTH):
        support = study.find("ksubset", terms, slopes[:, d], len(truth), 0)
        assert {names[i] for i in support} == set(truth)


def test_the_command(
    tmp_path: Path, field: kuramoto.Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "field.mat"
    savemat(data, {"x": field.x[:, None], "tt": field.t[None], "uu": field.v})
    monkeypatch.setattr(study, "_KS_NOISE", (0.01,))
    monkeypatch.setattr(study, "_LORENZ_NOISE", (0.001,))
    monkeypatch.setattr(study, "_STEPS", (1, 5))
    few = {name: FINDERS[name] for name in ("ksubset", "OMP", "all subsets")}
    monkeypatch.setattr(study, "FINDERS", few)

    def invoke(*options: str) -> Any:
        small = ["--seeds", "2", "--repeats", "1", "--domains", "50"]
        return CliRunner().invoke(app, [*small, "--output", str(tmp_path / "run"), *options])

    result = invoke("--data", str(data))
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "run" / "results.json").read_text())
    assert len(content["trained"]) == 2
    assert len(content["clean"]) == 2 * len(few)
    assert content["claims"][0]["held"]
    assert not content["claims"][1]["held"]  # another field, other coefficients
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "v_xxxx" in page
    result = invoke("--data", str(tmp_path / "none.mat"), "--overwrite")
    assert result.exit_code == 2
    assert "data must be a .mat file" in result.output


def test_claims_are_judged() -> None:
    right = study.Found("ksubset", "", list(kuramoto.TRUTH), list(study.EXPECTED), 0, 0, 0, 1.0)
    assert [claim.held for claim in study.judge([right, right])] == [True] * 3
    wrong = study.Found("ksubset", "", ["v", "v_x", "v v_x"], [1, 1, 1], 0, 0, 0, 30.0)
    assert [claim.held for claim in study.judge([right, wrong])] == [False] * 3


def test_settings_have_defaults() -> None:
    assert Settings().data is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uu": np.zeros((151, 256))}, "uu must be"),
        ({"uu": np.full((256, 151), np.nan)}, "must be finite"),
        ({"uu": np.zeros((256, 151), complex)}, "real numbers"),
        ({"x": np.zeros(3), "tt": np.zeros(2), "uu": np.zeros((3, 2))}, "at least 16 of each"),
    ],
)
def test_wrong_fields(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "field.mat"
    good = {"x": np.arange(256.0), "tt": np.arange(151.0), "uu": np.zeros((256, 151))}
    savemat(path, good | change)
    with pytest.raises(ValueError, match=message):
        kuramoto.load(path)


def test_a_truncated_field(tmp_path: Path) -> None:
    path = tmp_path / "field.mat"
    savemat(path, {"x": np.arange(256.0), "tt": np.arange(151.0), "uu": np.ones((256, 151))})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"field\.mat is not a complete \.mat file"):
        kuramoto.load(path)
