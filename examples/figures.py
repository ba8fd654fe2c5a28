"""What the pictures of the gallery share."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#08519c", "#d94801", "#238b45", "#999999"


def save(figure: Figure, name: str) -> None:
    """Into the file that ``--output`` names, or into outputs/."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(f"outputs/{name}.png"))
    path = parser.parse_args().output
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"written: {path}")
