"""The methods that are compared, with what settings, and the grids on which settings are tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

# The paper's rates are the first two; at full length smaller ones often win. The paper's grids of
# lambda and of the temperature of the sum-of-gamma noise; that of relaxations is from its section
# on explanations.
RATES = (1e-3, 5e-4, 2.5e-4, 1.25e-4)
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
NOISE_TEMPERATURES = (0.1, 1.0, 10.0, 100.0)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0)
# The paper's code: groups, and items of each.
GROUPS, ITEMS = 20, 20
# Estimators whose samples have another distribution than the exact one.
_OTHER_SAMPLES = ("imle", "softsub")


@dataclass(frozen=True)
class Method:
    """A way to train: an estimator, its settings, and the rest of the recipe."""

    name: str
    label: str
    k: int
    estimator: str
    options: tuple[tuple[str, object], ...] = ()  # what kind of estimator
    settings: tuple[tuple[str, float], ...] = ()  # its numbers
    grid: tuple[tuple[str, tuple[float, ...]], ...] = field(default=(), compare=False)
    samples: int = 1
    rate: float = 1e-3
    divergence: str = "exact"  # the KL term trained with, or "softmax", as was published
    kl_weight: float = 1.0  # of the KL term in training; tests have none
    groups: int = GROUPS
    items: int = ITEMS

    @property
    def key(self) -> str:
        """Its name in files."""
        usual = (self.groups, self.items) == (GROUPS, ITEMS)
        shape = "" if usual else f"{self.groups}x{self.items}-"
        weight = "" if self.kl_weight == 1 else f"-kl{self.kl_weight:g}"
        return f"{shape}k{self.k}-{self.name}{weight}"

    @property
    def samples_by(self) -> tuple[object, ...]:
        """The estimator, but not its numbers."""
        return (self.estimator, self.options, tuple(name for name, _ in self.settings))

    @property
    def draws_exactly(self) -> bool:
        """Whether its samples are exact samples of the k-subset distribution."""
        top_k = self.estimator in ("st_gumbel", "st_decoupled") and self.k > 1
        return not top_k and self.estimator not in _OTHER_SAMPLES

    @property
    def recipe(self) -> str:
        """All that decides how it trains."""
        options = " ".join(f"{name}={value}" for name, value in self.options + self.settings)
        return (
            f"{self.key} {self.estimator} {options} samples={self.samples} rate={self.rate!r} "
            f"divergence={self.divergence} weight={self.kl_weight!r}"
        )

    @property
    def title(self) -> str:
        """For a curve or a row without its setting."""
        parts = [self.label]
        if self.samples > 1:
            parts.append(f"{self.samples} samples")
        if self.kl_weight != 1:
            parts.append(f"KL × {self.kl_weight:g}")
        return ", ".join(parts)

    def setting(self) -> str:
        """For a table."""
        symbols = {
            "strength": "λ",
            "temperature": "τ" if self.estimator == "imle" else "t",
            "backward_temperature": "t back",
        }
        parts = [f"{symbols[name]} = {value:g}" for name, value in self.settings]
        if self.samples > 1:
            parts.append(f"{self.samples} samples")
        if self.kl_weight != 1:
            parts.append(f"KL × {self.kl_weight:g}")
        return ", ".join([*parts, f"lr {self.rate:g}"])

    def variants(self, rates: Sequence[float] = RATES) -> list[Method]:
        """The whole grid."""
        if not self.grid:
            return [replace(self, rate=rate) for rate in rates]
        names, values = [name for name, _ in self.grid], [v for _, v in self.grid]
        return [
            replace(self, rate=rate, settings=tuple(zip(names, chosen, strict=True)))
            for rate, *chosen in product(rates, *values)
        ]

    def at_temperatures(self, values: tuple[float, ...]) -> Method:
        """With another grid of the temperature, if it has one."""
        grid = tuple((n, values if n.endswith("temperature") else v) for n, v in self.grid)
        return replace(self, grid=grid)


# Of a second winner of a grid: by the loss with the method's own samples.
OWN = "-own"
_LAMBDA = ("strength", STRENGTHS)
_SOG = (("noise", "sum_of_gamma"),)
_LEAVE_ONE_OUT = (("baseline", "leave_one_out"),)
# Of every kind of k, ten and one. Settings are the winners of the grids on MNIST
# (docs/results/dvae.md).
METHODS: tuple[Method, ...] = (
    Method("swap", "swap", 10, "swap", rate=2.5e-4),
    Method("simple", "SIMPLE", 10, "simple", rate=2.5e-4),
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
    Method(
        "score", "score function, leave-one-out", 10, "score", _LEAVE_ONE_OUT, samples=4, rate=5e-4,
    ),
    Method("muprop", "MuProp at the marginals", 10, "muprop", rate=5e-4),
    Method("reinmax", "ReinMax for k-subsets", 10, "reinmax", rate=2.5e-4),
    Method(
        "st-gumbel", "ST Gumbel top-k", 10, "st_gumbel", (), (("temperature", 0.5),),
        (("temperature", (0.5, 1.0)),), rate=2.5e-4,
    ),
    Method(
        "st-decoupled", "decoupled ST Gumbel top-k", 10, "st_decoupled", (),
        (("backward_temperature", 0.5),), (("backward_temperature", (0.5, 2.0)),), rate=2.5e-4,
    ),
    Method(
        "st-gapped", "gapped ST", 10, "st_gapped", (), (("temperature", 1.0),),
        (("temperature", (0.5, 1.0)),), rate=5e-4,
    ),
    Method("double-4", "double control variate", 10, "double_control", samples=4, rate=5e-4),
    Method("swap-4", "swap, leave-one-out", 10, "swap", _LEAVE_ONE_OUT, samples=4, rate=2.5e-4),
    Method("reinmax-4", "ReinMax for k-subsets", 10, "reinmax", samples=4, rate=2.5e-4),
    Method("simple-4", "SIMPLE", 10, "simple", samples=4, rate=2.5e-4),
    Method("swap", "swap", 1, "swap"),
    Method("simple", "SIMPLE", 1, "simple", rate=5e-4),
    Method(
        "st-gumbel", "ST Gumbel-softmax", 1, "st_gumbel", (), (("temperature", 1.0),),
        (("temperature", TEMPERATURES),),
    ),
    Method(
        "st-gumbel-rao", "ST Gumbel-softmax, noise averaged out", 1, "gumbel_backward",
        (("draws", 16),), (("temperature", 1.0),), (("temperature", TEMPERATURES),),
    ),
    Method(
        "st-gumbel-independent", "ST Gumbel-softmax, noise independent of the sample", 1,
        "gumbel_backward", (("coupled", False),), (("temperature", 1.0),),
        (("temperature", TEMPERATURES),),
    ),
    Method("reinmax", "ReinMax", 1, "reinmax"),
    Method("reinmax-rao", "ReinMax-Rao", 1, "reinmax_rao", rate=5e-4),
    Method(
        "st-decoupled", "decoupled ST Gumbel-softmax", 1, "st_decoupled", (),
        (("backward_temperature", 2.0),), (("backward_temperature", (0.5, 2.0)),),
    ),
    Method(
        "st-gapped", "gapped ST", 1, "st_gapped", (), (("temperature", 0.5),),
        (("temperature", (0.5, 1.0)),),
    ),
    Method("score", "score function, leave-one-out", 1, "score", _LEAVE_ONE_OUT, samples=4),
    Method("muprop", "MuProp at the marginals", 1, "muprop", rate=5e-4),
    Method("swap-4", "swap, leave-one-out", 1, "swap", _LEAVE_ONE_OUT, samples=4, rate=5e-4),
    Method("reinmax-4", "ReinMax", 1, "reinmax", samples=4),
    Method("simple-4", "SIMPLE", 1, "simple", samples=4),
)  # fmt: skip
# Some win and some lose, on purpose.
_MAIN = {
    10: (
        "swap", "simple", "imle-sog", "imle-gumbel", "softsub", "score", "muprop", "reinmax",
        "st-gapped",
    ),
    1: ("swap", "simple", "st-gumbel", "st-gapped", "reinmax"),
}  # fmt: skip


def chosen(
    k: Iterable[int],
    words: str,
    groups: int = GROUPS,
    items: int = ITEMS,
    kl_weights: Iterable[float] = (1.0,),
) -> list[Method]:
    """Methods for the k asked for, with every weight of the KL term.

    Args:
        words: separated by commas: "all", "main" for the usual ones, a name, or a key (k10-simple).
    """
    weights = tuple(kl_weights)
    found = []
    for size in k:
        if not 0 < size < items:
            raise ValueError(
                f"k must be between 1 and {items - 1} for groups of {items} items, got {size}"
            )
        rows = [method for method in METHODS if method.k == (1 if size == 1 else 10)]
        found += [replace(method, k=size, groups=groups, items=items) for method in rows]
    taken: set[str] = set()
    for word in words.split(","):
        named = {m.key for m in found if word == "all" or word in (m.name, m.key)}
        if word == "main":
            named = {m.key for m in found if m.name in _MAIN[1 if m.k == 1 else 10]}
        if not named:
            listed = ", ".join(dict.fromkeys(m.name for m in found))
            raise ValueError(f"methods must be among all, main, {listed}, got {word!r}")
        taken |= named
    kept = [method for method in found if method.key in taken]
    return [replace(method, kl_weight=weight) for method in kept for weight in weights]


def by_key(methods: Iterable[Method]) -> Mapping[str, list[Method]]:
    """The variants of every method."""
    found: dict[str, list[Method]] = {}
    for method in methods:
        found.setdefault(method.key, []).append(method)
    return found
