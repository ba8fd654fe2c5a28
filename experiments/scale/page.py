"""python -m experiments.scale.page SYNTHETIC SCALE: the results page, from the folders of two runs.

Rewrites the blocks between <!-- NAME --> and <!-- end of NAME --> in docs/results/study.md, and
docs/pictures/frontier.svg. The text around the blocks is written by hand.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def fill(page: str, name: str, content: str) -> str:
    """The page with this content in the block of that name."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.S)
    filled, count = pattern.subn(lambda _: f"{start}\n\n{content.strip()}\n\n{end}", page)
    if count != 1:
        raise ValueError(f"the page must have one block {start}, it has {count}")
    return filled


def described(run: Path) -> str:
    """Settings, machine and duration of a run, in one item of a list."""
    content = json.loads((run / "results.json").read_text(encoding="utf-8"))
    settings = ", ".join(f"{name} {value}" for name, value in content["settings"].items())
    versions = ", ".join(f"{name} {value}" for name, value in content["environment"].items())
    return f"{settings}; {versions}; {content['seconds']:.0f} seconds"


def write(synthetic: Path, scale: Path) -> None:
    """Rewrite the page and the picture."""
    path = DOCS / "results" / "study.md"
    page = path.read_text(encoding="utf-8")
    for name, run in (("synthetic", synthetic), ("scale", scale)):
        page = fill(page, name, (run / "tables.md").read_text(encoding="utf-8"))
    runs = [f"- `python -m experiments.{r}`: {described(p)}."
            for r, p in (("synthetic", synthetic), ("scale", scale))]  # fmt: skip
    path.write_text(fill(page, "runs", "\n".join(runs)), encoding="utf-8")
    shutil.copy(scale / "frontier.svg", DOCS / "pictures" / "frontier.svg")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:3]))
