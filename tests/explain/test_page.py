"""The page of an explanation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ksubset.explain import Explanation, KSubsetExplainer, MaskedInput, write_page

TEXTS = ["a warm bright beer", "<b>dull</b> & sour"]


@pytest.fixture
def found() -> Explanation:
    network = torch.nn.Linear(4, 2)
    torch.nn.init.constant_(network.weight, 0.0)
    network.bias.data = torch.tensor([0.0, 1.0])
    explainer = KSubsetExplainer(torch.nn.Identity(), MaskedInput(network), k=2)
    x = torch.tensor([[0.0, 4.0, 0.0, 3.0], [5.0, 0.0, 6.0, 0.0]])
    return explainer.explain(x, mask=torch.tensor([[True] * 4, [True] * 3 + [False]]))


def test_a_page(found: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    given = write_page(found, TEXTS, path, labels=["bad", "good"], outcomes=["good", "bad"])
    assert given == path
    assert list(tmp_path.iterdir()) == [path]
    page = path.read_text(encoding="utf-8")
    assert re.findall(r'<mark class="chosen"[^>]*>([^<]*)<', page) == [
        "warm", "beer", "&lt;b&gt;dull&lt;/b&gt;", "sour",
    ]  # fmt: skip
    assert "<b>dull" not in page
    assert page.count("<mark") == 7
    assert "2 items were chosen in each of 2 inputs, which have 4 items on average." in page
    assert "50% of the outcomes are predicted correctly" in page
    assert page.count("From the chosen items alone: <b>good</b>") == 2
    strengths = [float(p) for p in re.findall(r"--p:([\d.]+)", page)]
    expected = 0.75 * torch.cat([found.marginals[0], found.marginals[1, :3]])
    torch.testing.assert_close(torch.tensor(strengths), expected, atol=1e-3, rtol=0)


def test_names_and_few_inputs(found: Explanation, tmp_path: Path) -> None:
    page = write_page(found, [["age", "dose"], ["x"]], tmp_path / "a.html", most=1).read_text()
    assert page.count("<section>") == 1
    assert "The first 1 of 2 inputs." in page
    assert "dose" in page
    empty = Explanation(
        *(x[:0] for x in (found.chosen, found.marginals, found.log_prob)), found.prediction[:0]
    )
    assert "There are no inputs." in write_page(empty, [], tmp_path / "b.html").read_text()


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (TEXTS[:1], {}, "inputs must be 2"),
        (["one two three four five", "six"], {}, "at most 4 items.* got 5 in input 0"),
        (TEXTS, {"labels": ["one"]}, "labels must name the classes"),
        (TEXTS, {"outcomes": ["one"]}, "outcomes must be one for each of the 2 inputs, got 1"),
    ],
)
def test_errors(
    found: Explanation, tmp_path: Path, given: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_page(found, given, tmp_path / "page.html", **settings)
    assert not list(tmp_path.iterdir())


def test_a_single_text(found: Explanation, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list with one text for every input"):
        write_page(found, "a warm bright beer", tmp_path / "page.html")
