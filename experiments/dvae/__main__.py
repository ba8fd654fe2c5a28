"""python -m experiments.dvae"""

from __future__ import annotations

from pathlib import Path

from experiments.command import command
from experiments.dvae.settings import Settings
from experiments.dvae.study import run

app = command(
    Settings,
    run,
    Path("outputs/dvae"),
    "A discrete k-subset variational auto-encoder, trained with every estimator (section "
    "5.2 of the paper).",
    interrupted="--resume goes on from the last checkpoint",
)

if __name__ == "__main__":
    app()
