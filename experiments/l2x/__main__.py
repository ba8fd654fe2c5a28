"""python -m experiments.l2x"""

from __future__ import annotations

from pathlib import Path

from experiments.command import command
from experiments.l2x.settings import Settings
from experiments.l2x.study import run

app = command(
    Settings,
    run,
    Path("outputs/l2x"),
    "Do explanations find the features that matter? The synthetic problems of L2X.",
    interrupted="--resume goes on with what is not finished",
)

if __name__ == "__main__":
    app()
