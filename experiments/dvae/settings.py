"""What can be varied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from experiments.command import option
from experiments.dvae.methods import OWN, Method, chosen
from experiments.dvae.training import PRECISIONS

_EPOCHS = {"digits": 40, "mnist": 100}
_SEEDS = {"digits": 1, "mnist": 3}
# A tenth of MNIST's or more, to choose settings by.
_HELD_OUT = {"digits": 300, "mnist": 10_000}
_TOGETHER = {"cpu": 1, "cuda": 8}


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    data: str = option("digits", "digits (inside scikit-learn) or mnist.")
    data_dir: Path | None = option(None, "The folder of MNIST's idx files, gzipped or not.")
    download: bool = option(False, "Fetch what is not in that folder.")
    binarize: bool = option(False, "Black and white, a proper likelihood; adds the IWAE bound.")
    k: str = option("10,1", "Items chosen of the 20 of a group: 10, 1 or both.")
    methods: str = option("main", "main, all, or names separated by commas.")
    epochs: int | None = option(None, "100 for MNIST, 40 for digits.", min=1)
    rate: float | None = option(None, "Learning rate, in place of every method's own.", min=0.0)
    batch: int = option(100, "Images of a step.", min=1)
    seeds: int | None = option(None, "Models of every method: 3 for MNIST, 1 for digits.", min=1)
    seed: int = option(0, "The first of them.", min=0)
    tune: bool = option(False, "First look for the best settings on the paper's grids.")
    tune_epochs: int = option(20, "For every point of the grids.", min=1)
    stack: int = option(64, "Models trained in one batched step, at most.", min=1)
    together: int | None = option(None, "Steps that run at once: 8 on a GPU, 1 on CPUs.", min=1)
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one.")
    precision: str = option("float32", "float32, tf32, bfloat16 or float64.")
    graph: bool = option(True, "Capture the step as a CUDA graph.")
    checkpoint_every: int = option(5, "Epochs between checkpoints.", min=1)
    resume: bool = option(False, "Go on with an unfinished run in the output folder.")
    tensorboard: bool = option(False, "Also write TensorBoard's logs.")

    def __post_init__(self) -> None:
        for name, value, known in (
            ("data", self.data, tuple(_EPOCHS)),
            ("precision", self.precision, PRECISIONS),
            ("device", self.device, ("auto", "cpu", "cuda")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, and there is none")
        if self.tune and all(method.name.endswith(OWN) for method in self.contest()):
            raise ValueError(f"methods {self.methods} are winners of grids: nothing to tune")
        self.contest()

    def contest(self) -> list[Method]:
        """Who takes part."""
        try:
            sizes = [int(size) for size in self.k.split(",")]
        except ValueError:
            raise ValueError(f"k must be integers separated by commas, got {self.k!r}") from None
        found = chosen(sizes, self.methods)
        if self.rate is None:
            return found
        return [replace(method, rate=self.rate) for method in found]

    @property
    def total_epochs(self) -> int:
        """For this data."""
        return self.epochs or _EPOCHS[self.data]

    @property
    def all_seeds(self) -> range:
        """One for every model of a method."""
        return range(self.seed, self.seed + (self.seeds or _SEEDS[self.data]))

    @property
    def held_out(self) -> int:
        """Training images to choose settings by."""
        return _HELD_OUT[self.data]

    @property
    def torch_device(self) -> torch.device:
        """The one to use."""
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(automatic if self.device == "auto" else self.device)

    @property
    def most_together(self) -> int:
        """On this device."""
        return self.together or _TOGETHER[self.torch_device.type]

    def identity(self) -> dict[str, object]:
        """What decides the numbers: a run is continued only with the same."""
        free = ("resume", "tensorboard", "checkpoint_every", "data_dir", "download", "together")
        found = {name: value for name, value in vars(self).items() if name not in free}
        recipes = {f"the recipe of {m.key}": f"{m.recipe} {m.settings}" for m in self.contest()}
        return {
            **found,
            **recipes,
            "device": self.torch_device.type,
            "epochs": self.total_epochs,
            "seeds": len(self.all_seeds),
        }
