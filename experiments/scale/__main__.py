"""python -m experiments.scale"""

from __future__ import annotations

from pathlib import Path

from experiments.command import command
from experiments.scale.settings import Settings
from experiments.scale.study import run

app = command(
    Settings,
    run,
    Path("outputs/scale"),
    "Error and time of gradient estimators for k-subsets of 10, 100 and 1,000 items.",
)

if __name__ == "__main__":
    app()
