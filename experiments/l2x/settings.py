"""What can be varied."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from experiments.command import option
from experiments.l2x.problems import PROBLEMS, K

# How a run is carried out changes nothing of it.
_ONLY_HOW = ("engine", "workers", "address", "resume")


@dataclass(frozen=True)
class Method:
    """A way to train."""

    name: str
    label: str
    estimator: str
    options: tuple[tuple[str, float | str], ...] = ()
    honest: bool = True
    samples: int = 1  # of every input in a training step


METHODS = (
    Method("simple", "SIMPLE", "simple"),
    Method("swap", "swap", "swap"),
    Method(
        "swap-4", "swap, leave-one-out, 4 samples", "swap", (("baseline", "leave_one_out"),),
        samples=4,
    ),
    Method("l2x", "L2X", "l2x", (("temperature", 0.1),)),
    Method("simple-coupled", "SIMPLE, predictor told", "simple", honest=False),
    Method("l2x-coupled", "L2X, predictor told", "l2x", (("temperature", 0.1),), honest=False),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Of the study."""

    problems: str = option(",".join(PROBLEMS), "Names separated by commas; also additive-in-print.")
    methods: str = option("all", "all, or names separated by commas.")
    seeds: int = option(3, "Models of every method.", min=1)
    seed: int = option(0, "The first of them.", min=0)
    examples: int = option(250_000, "To learn from, a tenth of them for validation.", min=100)
    epochs: int = option(6, "Of which the best by validation counts.", min=1)
    batch: int = option(1000, "Examples of a step.", min=1)
    rate: float = option(1e-3, "Learning rate at the beginning; it falls to zero.", min=0.0)
    engine: str = option("processes", "processes of this machine, or a ray cluster.")
    workers: int = option(2, "Jobs at a time; 0: in this process.", min=0)
    address: str | None = option(None, "Of a Ray cluster.")
    resume: bool = option(False, "Go on with an unfinished run in the output folder.")

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be positive, got {self.rate!r}")
        if self.engine not in ("processes", "ray"):
            raise ValueError(f"engine must be one of processes, ray, got {self.engine!r}")
        if self.address is not None and self.engine != "ray":
            raise ValueError(f"address is for --engine ray, got {self.address!r} without it")
        self.contest()
        self.all_problems()

    def contest(self) -> list[Method]:
        """Who takes part."""
        if self.methods == "all":
            return list(METHODS)
        names = self.methods.split(",")
        known = [method.name for method in METHODS]
        for name in names:
            if name not in known:
                raise ValueError(f"methods must be among all, {', '.join(known)}, got {name!r}")
        return [method for method in METHODS if method.name in names]

    def all_problems(self) -> list[str]:
        """Which."""
        names = list(dict.fromkeys(self.problems.split(",")))
        for name in names:
            if name not in K:
                raise ValueError(f"problems must be among {', '.join(K)}, got {name!r}")
        return names

    @property
    def all_seeds(self) -> range:
        """One for every model of a method."""
        return range(self.seed, self.seed + self.seeds)

    def identity(self) -> dict[str, object]:
        """What must be the same for a run to be continued."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if name not in _ONLY_HOW
        }
