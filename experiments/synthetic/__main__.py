"""python -m experiments.synthetic"""

from __future__ import annotations

from pathlib import Path

from experiments.command import command
from experiments.synthetic.settings import Settings
from experiments.synthetic.study import run

app = command(
    Settings,
    run,
    Path("outputs/synthetic"),
    "Bias, variance and error of gradient estimators for k-subsets (section 5.1 of the paper).",
)

if __name__ == "__main__":
    app()
