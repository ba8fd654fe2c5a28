"""Problems with known features, their metric, and the study."""

from __future__ import annotations

import json

import pytest
import torch

from experiments.l2x.job import explainer, train
from experiments.l2x.problems import BEST, K, additive, draw, median_rank, orange_skin
from experiments.l2x.settings import METHODS, Settings
from experiments.l2x.study import claims, run


def test_log_odds():
    x = torch.tensor([[1.0, 2.0, 0.0, 1.0], [0.0, -1.0, 2.0, 0.0]])
    assert orange_skin(x).tolist() == [2.0, 1.0]
    first = 100 * torch.sin(torch.tensor(0.2)).item() - 2 - 0 - torch.exp(torch.tensor(-1.0)).item()
    torch.testing.assert_close(additive(x), torch.tensor([first + 2.4, -1 - 2 - 1 + 2.4]))


@pytest.mark.parametrize("problem", K)
def test_features_that_matter_decide(problem):
    data = draw(problem, 40_000, seed=0)
    assert (data.matter.sum(-1) == K[problem]).all()
    assert 0.1 < data.y.float().mean() < 0.9
    again = draw(problem, 40_000, seed=0)
    assert torch.equal(data.x, again.x)
    assert torch.equal(data.y, again.y)


def test_outcomes_follow_the_log_odds():
    data = draw("xor", 200_000, seed=1)
    odds = data.x[:, 0] * data.x[:, 1]
    for low, high in ((-2.0, -1.0), (-0.2, 0.2), (1.0, 2.0)):
        some = (odds > low) & (odds < high)
        expected = odds[some].sigmoid().mean()
        assert abs(data.y[some].float().mean() - expected) < 4 * 0.5 / some.sum().sqrt()


def test_switch_has_two_sides():
    data = draw("switch", 1000, seed=0)
    orange = data.matter[:, 0]
    assert torch.equal(data.matter[:, 4], ~orange)
    assert data.matter[:, 9].all()
    assert not data.matter[:, 8].any()
    assert data.x[orange, 9].mean() > 2.5
    assert data.x[~orange, 9].mean() < -2.5


def test_unknown_problem():
    with pytest.raises(ValueError, match=r"problem must be one of xor, .*, got 'magic'"):
        draw("magic", 10, 0)


@pytest.mark.parametrize("problem", K)
def test_the_best_median_rank_is_that_of_the_truth(problem):
    data = draw(problem, 50, seed=0)
    assert median_rank(data.matter.float(), data.matter).tolist() == [BEST[problem]] * 50


def test_median_rank():
    scores = torch.tensor([[0.9, 0.1, 0.5, 0.3]])
    matter = torch.tensor([[False, True, True, False]])
    assert median_rank(scores, matter).tolist() == [3.0]  # of the ranks 4 and 2
    # Who says nothing has found nothing.
    data = draw("xor", 10, seed=0)
    assert median_rank(torch.ones(10, 10), data.matter).tolist() == [5.5] * 10
    tied = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    assert median_rank(tied, matter).tolist() == [2.5]  # of 1.5 and 3.5


@pytest.mark.parametrize("estimator", ["simple", "swap"])
def test_finds_the_features_of_xor(estimator):
    found = train(
        {"problem": "xor", "estimator": estimator, "options": {}, "honest": True, "samples": 1,
         "seed": 0, "examples": 40_000, "epochs": 5, "batch": 400, "rate": 2e-3}
    )  # fmt: skip
    assert found["median_rank"] < 1.65
    assert found["recovery"] > 0.9


def test_several_samples_of_every_input():
    (method,) = Settings(methods="swap-4").contest()
    chosen = explainer("xor", method.estimator, dict(method.options), True, method.samples)
    x = draw("xor", 6, seed=0).x
    counts = []

    def criterion(prediction, y):
        counts.append(len(prediction))
        return prediction[:, 0]

    chosen.loss(x, torch.zeros(6), criterion)
    assert counts == [6] * 5  # four choices of the scorer's, one lesson


def test_study_and_its_claims(tmp_path):
    settings = Settings(problems="xor,switch", examples=200, epochs=1, batch=50, seeds=2, workers=0)
    run(settings, tmp_path / "out", overwrite=False)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(results) == {f"{p}/{m.name}" for p in ("xor", "switch") for m in METHODS}
    assert all(len(found) == 2 for found in results.values())
    assert "Do explanations find" in (tmp_path / "out" / "report.html").read_text()
    good, bad = [{"median_rank": 1.5}, {"median_rank": 1.6}], [{"median_rank": 3.0}] * 2
    only = Settings(problems="xor")
    ranks = {("xor", m.name): good if m.name == "simple" else bad for m in METHODS}
    assert [claim.held for claim in claims(only, ranks)] == [True, True]
    ranks = {("xor", m.name): bad if m.name == "simple" else good for m in METHODS}
    assert [claim.held for claim in claims(only, ranks)] == [False, False]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"problems": "xor,magic"}, "problems must be among xor"),
        ({"methods": "magic"}, "methods must be among all, simple"),
        ({"engine": "magic"}, "engine must be one of processes, ray"),
        ({"address": "somewhere"}, "address is for --engine ray"),
    ],
)
def test_wrong_settings(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(**given)
