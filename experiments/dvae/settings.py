"""What can be varied."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from experiments.command import option
from experiments.dvae.methods import OWN, Method, chosen
from experiments.dvae.training import PRECISIONS

_EPOCHS = {"digits": 40, "mnist": 100}
_SEEDS = {"digits": 1, "mnist": 5}
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
    groups: str = option("20x20", "The code: groups x items of each, 4x100 for instance.")
    k: str = option("10,1", "Items chosen of each group, one k or several separated by commas.")
    methods: str = option("main", "main, all, or names separated by commas.")
    epochs: int | None = option(None, "100 for MNIST, 40 for digits.", min=1)
    rate: float | None = option(None, "Learning rate, in place of every method's own.", min=0.0)
    kl_weight: str = option("1", "Of the KL term in training: one weight, or several to compare.")
    batch: int = option(100, "Images of a step.", min=1)
    seeds: int | None = option(None, "Models of every method: 5 for MNIST, 1 for digits.", min=1)
    seed: int = option(0, "The first of them.", min=0)
    tune: bool = option(False, "First look for the best settings on grids.")
    tune_epochs: int | None = option(
        None, "For every point of the grids: as many as in training, or fewer.", min=1
    )
    temperatures: str | None = option(
        None,
        "Of the grids, in place of the methods' own: 0.25,0.5 for every k, or a list for each k "
        "separated by slashes.",
    )
    test_every: int = option(1, "Epochs between tests.", min=1)
    stack: int = option(64, "Models trained in one batched step, at most.", min=1)
    together: int | None = option(None, "Steps that run at once: 8 on a GPU, 1 on CPUs.", min=1)
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one.")
    precision: str = option("float32", "float32, tf32, bfloat16 or float64.")
    graph: bool = option(True, "Capture the step as a CUDA graph.")
    checkpoint_every: int = option(5, "Epochs between checkpoints.", min=1)
    resume: bool = option(False, "Go on with an unfinished run in the output folder.")
    tensorboard: bool = option(False, "Also write TensorBoard's logs.")
    step_times: Path | None = option(
        None, "Of experiments.dvae.timing: adds a table at equal training time."
    )
    results_only: bool = option(False, "Write results.json alone: no report, no weights.")

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
        if self.temperatures is not None and not self.tune:
            raise ValueError("temperatures are those of grids: they need tune")
        self.contest()

    def contest(self) -> list[Method]:
        """The methods that are compared."""
        try:
            sizes = [int(size) for size in self.k.split(",")]
        except ValueError:
            raise ValueError(f"k must be integers separated by commas, got {self.k!r}") from None
        try:
            weights = [float(weight) for weight in self.kl_weight.split(",")]
        except ValueError:
            weights = []
        if not weights or not all(0 <= weight < math.inf for weight in weights):
            raise ValueError(
                f"kl_weight must be numbers of at least 0 separated by commas, "
                f"got {self.kl_weight!r}"
            )
        found = chosen(sizes, self.methods, *self.shape, weights)
        if self.temperatures is not None:
            grids = self._temperatures(sizes)
            found = [method.at_temperatures(grids[method.k]) for method in found]
        if self.rate is None:
            return found
        return [replace(method, rate=self.rate) for method in found]

    def _temperatures(self, sizes: list[int]) -> dict[int, tuple[float, ...]]:
        """The grid for every k."""
        try:
            lists = [
                tuple(float(value) for value in words.split(","))
                for words in (self.temperatures or "").split("/")
            ]
        except ValueError:
            lists = []
        if len(lists) == 1:
            lists *= len(sizes)
        positive = all(0 < value < math.inf for values in lists for value in values)
        if len(lists) != len(sizes) or not positive:
            raise ValueError(
                "temperatures must be positive numbers separated by commas, one list or one for "
                f"each of {len(sizes)} k, got {self.temperatures!r}"
            )
        return dict(zip(sizes, lists, strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """Groups of the code, and items of each."""
        groups, _, items = self.groups.partition("x")
        if not (groups.isdecimal() and items.isdecimal() and int(groups) > 0 and int(items) > 1):
            raise ValueError(f"groups must be groups x items, as 20x20, got {self.groups!r}")
        return int(groups), int(items)

    @property
    def total_epochs(self) -> int:
        """For this data."""
        return self.epochs or _EPOCHS[self.data]

    @property
    def total_tune_epochs(self) -> int:
        """For every point of the grids."""
        return self.tune_epochs or self.total_epochs

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
        free = (
            "resume", "tensorboard", "checkpoint_every", "data_dir", "download", "together",
            "step_times", "results_only",
        )  # fmt: skip
        found = {name: value for name, value in vars(self).items() if name not in free}
        recipes = {f"the recipe of {m.key}": m.recipe for m in self.contest()}
        return {
            **found,
            **recipes,
            "device": self.torch_device.type,
            "epochs": self.total_epochs,
            "tune_epochs": self.total_tune_epochs,
            "seeds": len(self.all_seeds),
        }
