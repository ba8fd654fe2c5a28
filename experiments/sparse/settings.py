"""What can be varied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.command import option


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    data: Path | None = option(None, "kuramoto_sivishinky.mat; without it the field is computed.")
    seeds: int = option(10, "Trainings on the clean field, each with a seed of its own.", min=1)
    repeats: int = option(3, "Draws of noise at every level.", min=1)
    domains: int = option(200, "Patches of the weak form.", min=20)
    seed: int = option(0, "Of everything random.")
