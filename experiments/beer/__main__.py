"""python -m experiments.beer"""

from __future__ import annotations

from pathlib import Path

from experiments.beer.settings import Settings
from experiments.beer.study import run
from experiments.command import command

app = command(
    Settings,
    run,
    Path("outputs/beer"),
    "Which k words of a beer review explain its rating (section 5.3 of the paper).",
    interrupted="--resume goes on with what is not finished",
)

if __name__ == "__main__":
    app()
