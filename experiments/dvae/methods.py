"""Who takes part, with what settings, and on which grids the settings are tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import torch

from ksubset.estimators import Estimator, create

# The paper's grids: learning rate, lambda, and the temperature of the sum-of-gamma noise; that of
# relaxations is from its section on explanations.
RATES = (1e-3, 5e-4)
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
NOISE_TEMPERATURES = (0.1, 1.0, 10.0, 100.0)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Method:
    """A way to train: an estimator, its settings, and the rest of the recipe."""

    name: str
    label: str
    k: int
    estimator: str
    options: tuple[tuple[str, object], ...] = ()  # what kind of it
    settings: tuple[tuple[str, float], ...] = ()  # numbers, which may differ within a stack
    grid: tuple[tuple[str, tuple[float, ...]], ...] = field(default=(), compare=False)
    samples: int = 1
    rate: float = 1e-3
    divergence: str = "exact"  # the KL term trained with, or "softmax", as was published

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"k{self.k}-{self.name}"

    @property
    def kind(self) -> tuple[object, ...]:
        """What models of a stack have in common."""
        return (
            self.k, self.name, self.estimator, self.options, self.samples, self.rate,
            self.divergence, tuple(name for name, _ in self.settings),
        )  # fmt: skip

    @property
    def recipe(self) -> str:
        """All that decides how it trains but for settings."""
        options = " ".join(f"{name}={value}" for name, value in self.options)
        return (
            f"{self.key} {self.estimator} {options} samples={self.samples} rate={self.rate!r} "
            f"divergence={self.divergence}"
        )

    def setting(self) -> str:
        """For a table."""
        symbols = {"strength": "λ", "temperature": "τ" if self.estimator == "imle" else "t"}
        parts = [f"{symbols[name]} = {value:g}" for name, value in self.settings]
        if self.samples > 1:
            parts.append(f"{self.samples} samples")
        return ", ".join([*parts, f"lr {self.rate:g}"])

    def variants(self, rates: Sequence[float] = RATES) -> list[Method]:
        """The whole grid."""
        names, values = [name for name, _ in self.grid], [v for _, v in self.grid]
        return [
            replace(self, rate=rate, settings=tuple(zip(names, chosen, strict=True)))
            for rate, *chosen in product(rates, *values)
        ]


# Of a second winner of a grid: by the loss with the method's own samples.
OWN = "-own"
_LAMBDA = ("strength", STRENGTHS)
_SOG = (("noise", "sum_of_gamma"),)
_LEAVE_ONE_OUT = (("baseline", "leave_one_out"),)
# Settings are the winners of the grids on MNIST (docs/results/dvae.md).
METHODS: tuple[Method, ...] = (
    Method("simple", "SIMPLE", 10, "simple", rate=5e-4),
    Method(
        "imle-sog", "I-MLE, sum of gamma", 10, "imle", _SOG,
        (("strength", 10.0), ("temperature", 10.0)),
        (_LAMBDA, ("temperature", NOISE_TEMPERATURES)),
    ),
    Method(
        "imle-sog" + OWN, "I-MLE, sum of gamma *", 10, "imle", _SOG,
        (("strength", 1.0), ("temperature", 0.1)), rate=5e-4,
    ),
    Method(
        "imle-gumbel", "I-MLE, Gumbel", 10, "imle", (("noise", "gumbel"),), (("strength", 10.0),),
        (_LAMBDA,), rate=5e-4,
    ),
    Method(
        "imle-softmax-kl", "I-MLE, sum of gamma, softmax KL", 10, "imle", _SOG,
        (("strength", 1000.0), ("temperature", 10.0)),
        (_LAMBDA, ("temperature", NOISE_TEMPERATURES)), rate=5e-4, divergence="softmax",
    ),
    Method(
        "softsub", "SoftSub", 10, "softsub", (), (("temperature", 0.5),),
        (("temperature", TEMPERATURES),),
    ),
    Method(
        "softsub" + OWN, "SoftSub *", 10, "softsub", (), (("temperature", 1.0),), rate=5e-4,
    ),
    Method(
        "softsub-hard", "SoftSub, straight through", 10, "softsub", (("hard", True),),
        (("temperature", 0.5),), (("temperature", TEMPERATURES),), rate=5e-4,
    ),
    Method("score", "score function, leave-one-out", 10, "score", _LEAVE_ONE_OUT, samples=4),
    Method("muprop", "MuProp at the marginals", 10, "muprop", rate=5e-4),
    Method("reinmax", "ReinMax for k-subsets", 10, "reinmax"),
    Method("reinmax-4", "ReinMax for k-subsets, 4 samples", 10, "reinmax", samples=4),
    Method("simple-4", "SIMPLE, 4 samples", 10, "simple", samples=4, rate=5e-4),
    Method("simple", "SIMPLE", 1, "simple"),
    Method(
        "st-gumbel", "ST Gumbel-softmax", 1, "st_gumbel", (), (("temperature", 1.0),),
        (("temperature", TEMPERATURES),),
    ),
    Method("reinmax", "ReinMax", 1, "reinmax"),
    Method("score", "score function, leave-one-out", 1, "score", _LEAVE_ONE_OUT, samples=4),
    Method("muprop", "MuProp at the marginals", 1, "muprop", rate=5e-4),
    Method("reinmax-4", "ReinMax, 4 samples", 1, "reinmax", samples=4),
    Method("simple-4", "SIMPLE, 4 samples", 1, "simple", samples=4),
)  # fmt: skip
_MAIN = (
    "k10-simple", "k10-imle-sog", "k10-imle-gumbel", "k10-softsub", "k10-score", "k10-muprop",
    "k1-simple", "k1-st-gumbel", "k1-reinmax",
)  # fmt: skip


def chosen(k: Iterable[int], words: str) -> list[Method]:
    """Those of the k asked for.

    Args:
        words: separated by commas: "all", "main" for the usual ones, a name, or a key (k10-simple).
    """
    sizes = tuple(k)
    known = {method.k for method in METHODS}
    for size in sizes:
        if size not in known:
            raise ValueError(f"k must be among {', '.join(map(str, sorted(known)))}, got {size}")
    candidates = [m for m in METHODS if m.k in sizes]
    taken: set[str] = set()
    for word in words.split(","):
        groups = {"all": {m.key for m in candidates}, "main": set(_MAIN)}
        found = groups.get(word, {m.key for m in candidates if word in (m.name, m.key)})
        if not found:
            listed = ", ".join(dict.fromkeys(m.name for m in candidates))
            raise ValueError(f"methods must be among all, main, {listed}, got {word!r}")
        taken |= found
    return [m for m in candidates if m.key in taken]


@dataclass(frozen=True)
class Job:
    """Models that are trained in one step: of one kind, with a setting and a seed each."""

    methods: tuple[Method, ...]
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.methods)

    @property
    def recipe(self) -> Method:
        """What all have in common, but for settings."""
        return self.methods[0]

    @property
    def name(self) -> str:
        """Says everything: it is the key of checkpoints and of the noise."""
        members = ";".join(
            ",".join([*(repr(v) for _, v in m.settings), str(seed)])
            for m, seed in zip(self.methods, self.seeds, strict=True)
        )
        return f"{self.recipe.recipe} {members}"

    def estimator(self) -> Estimator:
        """Of all members at once: settings that differ are tensors (members, 1, 1, 1)."""
        settings: dict[str, float | torch.Tensor] = {}
        for i, (name, value) in enumerate(self.recipe.settings):
            values = [method.settings[i][1] for method in self.methods]
            same = all(v == value for v in values)
            settings[name] = value if same else torch.tensor(values).reshape(-1, 1, 1, 1)
        return create(self.recipe.estimator, **dict(self.recipe.options), **settings)


def jobs(methods: Iterable[Method], seeds: Sequence[int], most: int) -> list[Job]:
    """All methods with all seeds, in stacks of one kind with at most so many members."""
    kinds: dict[tuple[object, ...], list[tuple[Method, int]]] = {}
    for method in methods:
        for seed in seeds:
            kinds.setdefault(method.kind, []).append((method, seed))
    found = []
    for members in kinds.values():
        for part in _parts(members, most):
            methods_, seeds_ = zip(*part, strict=True)
            found.append(Job(tuple(methods_), tuple(seeds_)))
    return found


def _parts(items: Sequence[tuple[Method, int]], most: int) -> Iterator[list[tuple[Method, int]]]:
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part


def by_key(methods: Iterable[Method]) -> Mapping[str, list[Method]]:
    """The variants of every method."""
    found: dict[str, list[Method]] = {}
    for method in methods:
        found.setdefault(method.key, []).append(method)
    return found
