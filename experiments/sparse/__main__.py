"""python -m experiments.sparse"""

from __future__ import annotations

from pathlib import Path

from experiments.command import command
from experiments.sparse.settings import Settings
from experiments.sparse.study import run

app = command(
    Settings,
    run,
    Path("outputs/sparse"),
    "Equations from data: Kuramoto–Sivashinsky and Lorenz (section 5.4 of the paper).",
)

if __name__ == "__main__":
    app()
