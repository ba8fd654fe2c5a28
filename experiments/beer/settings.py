"""What can be varied."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.beer.methods import Method, named
from experiments.beer.training import PRECISIONS
from experiments.command import option
from experiments.datasets.beer import ASPECTS, MAX_TOKENS

ENGINES = ("processes", "ray")
# How a run is carried out changes nothing of it.
_ONLY_HOW = ("engine", "workers", "address", "resume")


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    data_dir: Path | None = option(None, "Folder of reviews: see experiments/datasets/beer.py.")
    cells: str = option(
        "aroma:5,aroma:10,aroma:15,palate:10,taste:10", "Aspects, and how many words are chosen."
    )
    methods: str = option("all", "all, or names separated by commas.")
    splits: int = option(
        10, "Halvings of the held-out reviews, each with a model of its own.", min=1
    )
    seed: int = option(0, "Of the first of them.", min=0)
    epochs: int = option(20, "Of which the best by validation counts.", min=1)
    batch: int = option(40, "Reviews of a step.", min=1)
    tune: bool = option(False, "First look for the best settings, on one split of every cell.")
    tune_epochs: int = option(10, "For every point of the grids.", min=1)
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one.")
    precision: str = option("auto", "Of the scorer: float32, bfloat16, or auto: bfloat16 on GPUs.")
    engine: str = option("processes", "processes of this machine, or a ray cluster.")
    workers: int | None = option(None, "Jobs at a time; 0, for one GPU: in this process.", min=0)
    address: str | None = option(None, "Of a Ray cluster.")
    resume: bool = option(False, "Go on with an unfinished run in the output folder.")

    def __post_init__(self) -> None:
        for name, value, known in (
            ("device", self.device, ("auto", "cpu", "cuda")),
            ("precision", self.precision, ("auto", *PRECISIONS)),
            ("engine", self.engine, ENGINES),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, and there is none")
        if self.address is not None and self.engine != "ray":
            raise ValueError(f"address is for --engine ray, got {self.address!r} without it")
        self.contest()
        self.table()

    def contest(self) -> list[Method]:
        """Who takes part."""
        return named(self.methods)

    def table(self) -> list[tuple[str, int]]:
        """Aspects with a k each."""
        found = []
        for cell in self.cells.split(","):
            aspect, _, k = cell.partition(":")
            if aspect not in ASPECTS or not k.isdecimal() or not int(k):
                raise ValueError(
                    f"cells must be like aroma:10, with an aspect among {', '.join(ASPECTS)}, got "
                    f"{cell!r}"
                )
            if int(k) > MAX_TOKENS:
                raise ValueError(f"k must be at most {MAX_TOKENS}, the longest text, got {cell!r}")
            found.append((aspect, int(k)))
        return list(dict.fromkeys(found))

    @property
    def seeds(self) -> list[int]:
        """One for every split."""
        return list(range(self.seed, self.seed + self.splits))

    @property
    def where(self) -> str:
        """The device."""
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def number_format(self) -> str:
        """Of the scorer."""
        if self.precision != "auto":
            return self.precision
        return "bfloat16" if self.where == "cuda" else "float32"

    @property
    def at_a_time(self) -> int:
        """Jobs."""
        if self.workers is not None:
            return self.workers
        return 1 if self.engine == "ray" or self.where == "cpu" else 0

    def identity(self) -> dict[str, object]:
        """What must be the same for a run to be continued."""
        found = dataclasses.asdict(self) | {
            "device": self.where, "precision": self.number_format, "data_dir": str(self.data_dir),
        }  # fmt: skip
        return {name: value for name, value in found.items() if name not in _ONLY_HOW}
