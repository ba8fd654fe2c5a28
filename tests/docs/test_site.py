"""The site as it is built: no warnings, every page opened, nothing fetched, nothing too wide."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import CHROMIUM, HANG_S, Browser
from drawn import Drawn

ROOT = Path(__file__).parents[2]
# One pixel, in place of the gallery's pictures: making those is test_gallery.py's subject.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63f80f0001010100b138f6140000000049454e44ae426082"
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: none on the path"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the site is made of."""
    copy = tmp_path_factory.mktemp("project")
    for folder in ("docs", "examples", "src"):
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
        )
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copy)
    (copy / "docs" / "gallery").mkdir(exist_ok=True)
    for script in (ROOT / "examples").glob("*.py"):
        if script.stem != "figures":
            (copy / "docs" / "gallery" / f"{script.stem}.png").write_bytes(PIXEL)
    return copy


def build(project: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(project: Path) -> Path:
    run = build(project)
    assert run.returncode == 0, run.stderr
    return project / "build" / "site"


def pages(site: Path) -> list[Path]:
    """All but the one a server shows for those that are not there."""
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def test_every_document_is_a_page_and_formulas_are_drawn(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site).with_suffix(".md") for path in pages(site)} == documents
    text = (site / "mathematics.html").read_text(encoding="utf-8")
    assert text.count('<span class="formula') == text.count('<span class="spoken"><math') > 400
    assert "arithmatex" not in text
    assert "\\frac" not in text


def test_every_symbol_of_every_formula_is_drawn(site: Path) -> None:
    found = {path: Drawn(path.read_text(encoding="utf-8")) for path in pages(site)}
    for path, drawn in found.items():
        try:
            drawn.check()
        except AssertionError as error:
            raise AssertionError(path.relative_to(site)) from error
    assert sum(len(drawn.formulas) for drawn in found.values()) > 500


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    """Also one to a heading that is not there: a page of its own, built as strictly as the site."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    kept = {name: settings[name] for name in ("site_name", "strict", "validation")}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(kept | {"plugins": []}), encoding="utf-8")
    page = tmp_path / "docs" / "index.md"
    page.parent.mkdir()
    page.write_text("# Here\n\n[a](index.md#here)\n", encoding="utf-8")
    assert build(tmp_path).returncode == 0
    page.write_text("# Here\n\n[a](nowhere.md) [b](index.md#nowhere)\n", encoding="utf-8")
    run = build(tmp_path)
    assert run.returncode != 0
    assert "nowhere.md" in run.stderr
    assert "#nowhere" in run.stderr


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_opens(site: Path, chromium: Browser, width: int) -> None:
    for path in pages(site):
        chromium.resize(width, 900)
        chromium.open(path.as_uri())
        assert not chromium.errors, path
        assert all(url.startswith(("file:", "data:")) for url in chromium.requests), path
        wide = "document.documentElement.scrollWidth > innerWidth + 1"
        assert not chromium.evaluate(wide), path
        unnamed = "[...document.images].filter((image) => !image.alt).map((image) => image.src)"
        assert chromium.evaluate(unnamed) == [], path


@needs_browser
def test_search_needs_no_server(site: Path, chromium: Browser) -> None:
    chromium.resize(1280, 900)
    chromium.open((site / "tutorial.html").as_uri())
    chromium.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
    for key in "entropy":
        chromium.press(key)
    result = "document.querySelector('[data-md-component=search-result]').innerText"
    deadline = time.monotonic() + HANG_S
    while "matching" not in chromium.evaluate(result) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "Distributions" in chromium.evaluate(result)
    assert not chromium.errors
