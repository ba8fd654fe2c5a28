"""The interactive page: its mathematics in Node, its widgets in a browser, against the library."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import CHROMIUM, Browser
from test_exactness import FALSE_ALARM, p_value
from torch import Tensor

import ksubset
from ksubset import oracle

DOCS = Path(__file__).parents[2] / "docs"
INF = float("inf")
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed: no 'node' on the path")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: none on the path"
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tensors are small here, and the cores belong to the browser."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- the mathematics ----


def node(program: str, data: Any) -> Any:
    """What a program prints as JSON, given data as ``input``; infinities travel as text."""
    script = f"""
        const ksubset = require({json.dumps(str(DOCS / "interactive" / "ksubset.js"))});
        const input = JSON.parse(require("fs").readFileSync(0));
        const result = (() => {{ {program} }})();
        const text = (_, x) => typeof x === "number" && !Number.isFinite(x) ? String(x) : x;
        console.log(JSON.stringify(result, text));
    """
    sent = re.sub(r"-?Infinity", r'"\g<0>"', json.dumps(data))
    assert NODE is not None
    run = subprocess.run([NODE, "-e", script], input=sent, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def tensor(values: Any) -> Tensor:
    """Of numbers, some of them written as text."""

    def numbers(value: Any) -> Any:
        return [numbers(one) for one in value] if isinstance(value, list) else float(value)

    return torch.tensor(numbers(values), dtype=torch.float64)


def rows(n: int) -> Tensor:
    """Logits of all kinds within ±30, forbidden and forced items among them."""
    generator = torch.Generator().manual_seed(n)
    normal = torch.randn(6, n, generator=generator, dtype=torch.float64)
    scales = torch.tensor([0.1, 1.0, 1.0, 3.0, 3.0, 8.0], dtype=torch.float64).unsqueeze(1)
    wide = 60 * torch.rand(6, n, generator=generator, dtype=torch.float64) - 30
    ends = wide.sign() * 30
    special = wide.clone()
    special[:3, 0] = -INF
    special[1:3, n // 2] = -INF
    special[3:, -1] = INF
    equal = torch.tensor([[-30.0], [0.0], [30.0]], dtype=torch.float64).expand(3, n)
    return torch.cat([(normal * scales).clamp(-30, 30), wide, ends, special, equal])


def feasible(logits: Tensor) -> range:
    return range(int((logits == INF).sum()), int((logits > -INF).sum()) + 1)


@needs_node
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 20])
def test_numbers_are_those_of_the_library(n: int) -> None:
    some = rows(n)[:: 1 + n // 8]  # to save time
    cases = [(row, k) for row in some for k in feasible(row)]
    got = node(
        """return input.map(([logits, k]) => {
            const { marginals, covariance, entropy, logPartition } =
                ksubset.law(logits.map(Number), k);
            return { marginals, covariance, entropy, logPartition };
        });""",
        [(row.tolist(), k) for row, k in cases],
    )
    logits = torch.stack([row for row, _ in cases])
    k = torch.tensor([k for _, k in cases])
    law = ksubset.KSubset(k, logits=logits, method="spectral")
    expected = {
        "marginals": law.mean,
        "covariance": law.covariance_matrix,
        "entropy": law.entropy(),
        "logPartition": law.log_partition(),
    }
    for name, value in expected.items():
        found = tensor([one[name] for one in got])
        torch.testing.assert_close(
            found, value, rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


@needs_node
def test_sizes_that_no_subset_has_are_no_numbers() -> None:
    got = node(
        """return input.map(([logits, k]) => {
            const { marginals, entropy, logPartition } = ksubset.law(logits.map(Number), k);
            return [...marginals, entropy, logPartition];
        });""",
        [([1.0, 2.0], 3), ([1.0, 2.0], -1), ([1.0, -INF], 2), ([1.0, INF], 0)],
    )
    assert tensor(got).isnan().all()


@needs_node
def test_likeliest_subsets() -> None:
    logits, k = rows(8)[1], 3
    got = node(
        "return ksubset.likeliest(ksubset.law(input[0], input[1]), 10);", (logits.tolist(), k)
    )
    best = oracle.log_probabilities(logits, k).exp().sort(descending=True)
    found = tensor([one["probability"] for one in got])
    torch.testing.assert_close(found, best.values[:10], rtol=1e-12, atol=0)
    assert torch.equal(tensor([one["z"] for one in got]), oracle.support(8, k)[best.indices[:10]])

    # ties are in order, whatever rounding does, and what cannot be drawn is not listed
    few = node("return ksubset.likeliest(ksubset.law(input.map(Number), 2), 10);", [0.1, 0.1, -INF])
    assert [one["z"] for one in few] == [[1, 1, 0]]
    ties = node("return ksubset.likeliest(ksubset.law(input, 3), 99);", [0.1, 0.3, 0.3, 0.3, 0.1])
    assert [one["z"] for one in ties[:2]] == [[0, 1, 1, 1, 0], [1, 1, 1, 0, 0]]
    assert len(ties) == math.comb(5, 3)


@needs_node
def test_counts_of_subsets() -> None:
    sizes = [(n, k) for n in range(21) for k in range(n + 1)]
    got = node("return input.map(([n, k]) => ksubset.binomial(n, k));", sizes)
    assert got == [math.comb(n, k) for n, k in sizes]


SAMPLERS = {
    "exact": "ksubset.law(logits, k).sample",
    # the k largest of the logits plus Gumbel noise: k-subsets, by another law
    "gumbel": """(uniform) => {
        const noisy = logits.map((x) => x - Math.log(-Math.log(uniform())));
        const least = [...noisy].sort((a, b) => b - a)[k - 1];
        return noisy.map((x) => Number(x >= least));
    }""",
}


def draws(sampler: str, logits: Tensor, k: int, count: int) -> Tensor:
    codes = node(
        f"""const logits = input[0].map(Number);
        const k = input[1];
        const sample = {SAMPLERS[sampler]};
        const uniform = ksubset.generator(1);
        return Array.from({{ length: input[2] }}, () => parseInt(sample(uniform).join(""), 2));""",
        (logits.tolist(), k, count),
    )
    places = torch.arange(len(logits) - 1, -1, -1)
    return (torch.tensor(codes).unsqueeze(1) >> places) & 1


@needs_node
@pytest.mark.parametrize(("n", "k", "scale"), [(8, 3, 1.0), (8, 5, 2.5), (10, 5, 0.3), (7, 6, 1.0)])
def test_draws_follow_the_law(n: int, k: int, scale: float) -> None:
    logits = scale * rows(n)[1]
    assert p_value(draws("exact", logits, k, 100_000), logits, k) > FALSE_ALARM


@needs_node
def test_draws_obey_forbidden_and_forced_items() -> None:
    logits = torch.tensor([INF, 0.5, -INF, 1.0, -1.0], dtype=torch.float64)
    assert p_value(draws("exact", logits, 3, 20_000), logits, 3) > FALSE_ALARM


@needs_node
def test_a_wrong_sampler_is_found_out() -> None:
    logits = rows(8)[1]
    assert p_value(draws("gumbel", logits, 3, 100_000), logits, 3) < FALSE_ALARM


@needs_node
def test_uniform_numbers() -> None:
    program = """
        const uniform = ksubset.generator(input);
        return Array.from({ length: 10000 }, uniform);
    """
    first, again, other = (node(program, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(0 <= u < 1 for u in first)
    grid = [u * 2**53 for u in first]
    assert all(x == int(x) for x in grid)
    # every one of the 53 bits is set half of the time: 5 deviations of 50 either way
    for bit in range(53):
        assert abs(sum(int(x) >> bit & 1 for x in grid) - 5000) < 250


# ---- the page ----


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page without a site: its Markdown is mostly HTML, and the rest does no harm."""
    source = (DOCS / "interactive.md").read_text(encoding="utf-8")
    body = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.DOTALL)
    path = tmp_path_factory.mktemp("page") / "interactive.html"
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>k</title>'
        f'<base href="{DOCS.as_uri()}/"><link rel="icon" href="data:,"><body>{body}',
        encoding="utf-8",
    )
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, page_url: str) -> Iterator[Browser]:
    """The page, just opened; whatever a test does there, nothing goes wrong and nothing is sent."""
    chromium.resize(1280, 900)
    chromium.open(page_url)
    yield chromium
    assert not chromium.errors
    assert all(url.startswith(("file:", "data:")) for url in chromium.requests)


def shown(page: Browser) -> dict[str, Any]:
    """The state of the controls, and the numbers on the page in full precision."""
    return page.evaluate(
        """(() => {
            const value = (name) => Number(document.querySelector(`[data-ks="${name}"]`).value);
            const all = (selector, get) => [...document.querySelectorAll(selector)].map(get);
            return {
                logits: all(".ks-row input", (input) => Number(input.value)),
                k: Number(document.getElementById("ks-k").value),
                marginals: all("[data-marginal]", (node) => Number(node.value)),
                covariance: all("[data-ks=heat] td", (cell) => Number(cell.dataset.value)),
                sets: all("[data-ks=sets] [data-value]", (cell) => Number(cell.dataset.value)),
                total: value("total"),
                count: value("count"),
                mode: value("mode"),
                entropy: value("entropy"),
                logPartition: value("log-partition"),
            };
        })()"""
    )


def assert_right(numbers: dict[str, Any]) -> None:
    logits, k = torch.tensor(numbers["logits"], dtype=torch.float64), numbers["k"]
    law = ksubset.KSubset(k, logits=logits, method="spectral")
    probabilities = oracle.log_probabilities(logits, k).exp().sort(descending=True).values
    expected = {
        "marginals": law.mean,
        "covariance": law.covariance_matrix.flatten(),
        "sets": probabilities[:10],
        "total": float(k),
        "count": float(math.comb(len(logits), k)),
        "mode": law.log_prob(law.mode).exp(),
        "entropy": law.entropy(),
        "logPartition": law.log_partition(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(
            tensor(numbers[name]), torch.as_tensor(value).double(), rtol=0, atol=1e-9
        )


def text(page: Browser, name: str) -> str:
    return page.evaluate(f"document.querySelector('[data-ks=\"{name}\"]').textContent")


@needs_browser
def test_numbers_on_the_page_are_right(page: Browser) -> None:
    before = shown(page)
    assert_right(before)
    for i, across in enumerate((0.9, 0.1, 0.7, 0.3, 0.55, 0.02, 0.98, 0.4)):
        page.click(f"#ks-logit-{i}", across)
    moved = shown(page)
    assert all(a != b for a, b in zip(before["logits"], moved["logits"], strict=True))
    page.evaluate("document.getElementById('ks-k').focus()")
    page.press("Home")
    for k in range(9):
        numbers = shown(page)
        assert (numbers["k"], numbers["logits"]) == (k, moved["logits"])
        assert_right(numbers)
        page.press("ArrowRight")


@needs_browser
def test_the_example_in_python_is_where_the_page_starts(page: Browser) -> None:
    source = (DOCS / "interactive.md").read_text(encoding="utf-8")
    numbers = shown(page)
    listed = re.search(r"torch\.tensor\((\[.*?\])", source)
    assert listed is not None
    assert json.loads(listed[1]) == numbers["logits"]
    assert f"KSubset({numbers['k']}, " in source
    assert "# " + ", ".join(f"{p:.3f}" for p in numbers["marginals"][:3]) in source
    assert f"# {numbers['entropy']:.3f} nats" in source


@needs_browser
def test_buttons_set_the_scores(page: Browser) -> None:
    start = shown(page)
    expected = {"equal": [0] * 8, "extreme": [6, 6, *[-6] * 6], "random": None}
    for name, logits in expected.items():
        page.click(f"[data-ks={name}]")
        numbers = shown(page)
        assert logits is None or numbers["logits"] == logits
        assert_right(numbers)
    assert len(set(numbers["logits"])) > 4
    page.click("[data-ks=reset]")
    assert shown(page) == start


@needs_browser
def test_everything_works_from_the_keyboard(page: Browser) -> None:
    """Tab alone reaches every control; arrows move a slider; Enter and space press buttons."""
    here = "document.activeElement.id || document.activeElement.dataset.ks"
    reached = []
    for _ in range(16):
        page.press("Tab")
        reached.append(page.evaluate(here))
        if reached[-1] == "ks-logit-1":
            before = shown(page)
            page.press("ArrowRight", 3)
            after = shown(page)
            assert after["logits"][1] == pytest.approx(before["logits"][1] + 0.3)
            assert after["marginals"][1] > before["marginals"][1]
            assert after["marginals"][0] < before["marginals"][0]
            assert_right(after)
        if reached[-1] == "draw":
            page.press("Enter")
            assert text(page, "drawn").startswith("Drawn: ")
        if reached[-1] == "draw-many":
            page.press(" ")
            assert text(page, "tally").startswith("1,000 draws")
    sliders = [f"ks-logit-{i}" for i in range(8)]
    presets = ["reset", "random", "equal", "extreme"]
    assert [name for name in reached if name] == ["ks-k", *presets, *sliders, "draw", "draw-many"]

    page.evaluate("document.querySelectorAll('.ks-heat button')[6].focus()")
    assert "Artichokes" in text(page, "words")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"


@needs_browser
def test_draws(page: Browser) -> None:
    chosen = "[...document.querySelectorAll('.ks-in')].map((chip) => chip.textContent)"
    dots = "[...document.querySelectorAll('.ks-dot')].map((dot) => dot.offsetLeft > 0)"
    assert page.evaluate(chosen) == []
    page.click("[data-ks=draw]")
    drawn = page.evaluate(chosen)
    assert len(drawn) == 3
    assert ", ".join(drawn) in text(page, "drawn")
    assert not any(page.evaluate(dots))

    page.click("[data-ks=draw-many]")
    page.click("[data-ks=draw-many]")
    shares = page.evaluate(
        "[...document.querySelectorAll('[data-ks=table] tr')].map((r) => r.cells[4].textContent)"
    )
    exact = torch.tensor(shown(page)["marginals"])
    gap = (torch.tensor([float(share) for share in shares]) - exact).abs().max()
    assert gap < 5 * math.sqrt(0.25 / 2000)
    assert "2,000 draws" in text(page, "tally")
    assert all(page.evaluate(dots))
    page.press("Tab")  # on to another control: nothing is lost by that, but by another law
    assert all(page.evaluate(dots))
    page.click("[data-ks=equal]")
    assert not any(page.evaluate(dots))
    assert text(page, "tally") == ""


@needs_browser
def test_gradients_in_words(page: Browser) -> None:
    page.click(".ks-heat tbody tr:nth-child(3) button")
    covariance = torch.tensor(shown(page)["covariance"]).reshape(8, 8)
    assert "Olives" in text(page, "words")
    assert f"+{0.1 * covariance[2, 2]:.4f}" in text(page, "words")
    pressed = "document.querySelectorAll('.ks-heat [aria-pressed=true]').length"
    assert page.evaluate(pressed) == 1
    page.evaluate("document.getElementById('ks-k').focus()")
    page.press("Home")
    assert "only one set" in text(page, "words")


@needs_browser
def test_screen_readers_hear_a_summary_after_a_pause(page: Browser) -> None:
    # a clock that stands still until told to go on
    page.evaluate(
        """window.setTimeout = (act, delay) => { window.waiting = { act, delay }; };
        window.clearTimeout = () => { window.waiting = null; };
        document.getElementById("ks-logit-0").focus();"""
    )
    page.press("ArrowLeft", 5)
    assert text(page, "status") == ""
    assert page.evaluate("waiting.delay") >= 500
    page.evaluate("waiting.act()")
    assert "Most probable" in text(page, "status")
    value_text = "document.activeElement.getAttribute('aria-valuetext')"
    assert re.fullmatch(r"1\.5, probability 0\.\d{3}", page.evaluate(value_text))


@needs_browser
def test_everything_has_an_accessible_name(page: Browser) -> None:
    tree = page.accessibility_tree()
    controls = [one for one in tree if one["role"] in ("slider", "button", "DisclosureTriangle")]
    assert len(controls) >= 9 + 6 + 8
    assert all(one["name"].strip() for one in controls)
    names = [one["name"] for one in controls if one["role"] == "slider"]
    assert len(set(names)) == 9
    assert "Mushrooms logit" in names
    assert {"status", "table"} <= {one["role"] for one in tree}
    headers = [one["name"] for one in tree if one["role"] == "columnheader"]
    assert "Pineapple" in headers


@needs_browser
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_fits_the_window(page: Browser, width: int) -> None:
    page.resize(width, 800)
    page.click("#ks-k", 0.99)  # all toppings: the longest texts
    page.click("[data-ks=draw]")
    assert shown(page)["k"] == 8
    too_wide = """[...document.querySelectorAll(".ks *:not(.ks-hidden)")].filter(
        (node) => node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML)
    """
    assert page.evaluate(too_wide) == []


@needs_browser
def test_motion_is_optional(page: Browser) -> None:
    duration = "getComputedStyle(document.querySelector('.ks-exact')).transitionDuration"
    assert "0.15s" in page.evaluate(duration)
    page.prefer(reduced_motion="reduce")
    assert page.evaluate(duration) == "0s"
    page.prefer()
