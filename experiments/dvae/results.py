"""What came out: losses of every method, the winners of a grid, and whether claims held."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import ttest_ind

from experiments.dvae.methods import OWN, Method
from experiments.dvae.runner import Trained
from experiments.report import Claim

Curve = np.ndarray  # (seeds, tests)
# The published log of SIMPLE's test loss at k = 10, whose KL is up to 92 nats too large.
PUBLISHED = {1: 219.3, 10: 184.2, 50: 174.5, 100: 171.65}
_CERTAIN = 0.05


@dataclass
class Outcome:
    """A method and all its models."""

    method: Method
    seeds: list[int] = field(default_factory=list)
    losses: dict[str, list[list[float]]] = field(default_factory=dict)  # by seed, by test
    epochs: list[int] = field(default_factory=list)  # those after which it was tested
    importance: list[float] = field(default_factory=list)  # IWAE bounds, on binary images

    def curve(self, *names: str) -> Curve:
        """The sum of some losses."""
        return np.sum([np.array(self.losses[name]) for name in names], axis=0)

    @property
    def elbo(self) -> Curve:
        """Negative: exact samples, exact KL."""
        return self.curve("reconstruction", "divergence")

    @property
    def own(self) -> Curve:
        """With the samples the method itself draws: a bound only if they are exact."""
        return self.curve("own reconstruction", "divergence")

    @property
    def published(self) -> Curve:
        """With its own samples and the softmax's KL."""
        return self.curve("own reconstruction", "softmax divergence")

    @property
    def training(self) -> Curve:
        """Over the batches of every epoch, whether it was followed by a test or not."""
        return self.curve("train reconstruction", "train divergence")


def outcomes(trained: Iterable[Trained]) -> list[Outcome]:
    """One for every method, seeds together."""
    found: dict[Method, Outcome] = {}
    for done in trained:
        for i, (method, seed) in enumerate(zip(done.job.methods, done.job.seeds, strict=True)):
            outcome = found.setdefault(method, Outcome(method))
            outcome.seeds.append(seed)
            tested = [e for e, losses in enumerate(done.history, 1) if "reconstruction" in losses]
            outcome.epochs = tested
            for name in done.history[-1]:
                curve = [losses[name][i] for losses in done.history if name in losses]
                outcome.losses.setdefault(name, []).append(curve)
    return list(found.values())


def by_shape(results: Iterable[Outcome]) -> dict[tuple[int, int, int], list[Outcome]]:
    """Methods whose codes have the same groups, items and k: only those compare."""
    found: dict[tuple[int, int, int], list[Outcome]] = {}
    for r in results:
        found.setdefault((r.method.groups, r.method.items, r.method.k), []).append(r)
    return found


def final(curve: Curve) -> tuple[float, float]:
    """Mean and standard deviation over seeds after the last epoch."""
    last = curve[:, -1]
    return float(last.mean()), float(last.std(ddof=1)) if len(last) > 1 else math.nan


def best(tried: Sequence[Outcome], loss: Callable[[Outcome], Curve]) -> Method:
    """The setting with the smallest loss after the last epoch; what diverged is out."""
    found = [(final(loss(outcome))[0], i) for i, outcome in enumerate(tried)]
    finite = [pair for pair in found if math.isfinite(pair[0])]
    if not finite:
        raise ValueError(f"every setting of {tried[0].method.label} diverged")
    return tried[min(finite)[1]].method


def judge(results: Sequence[Outcome]) -> list[Claim]:
    """The paper's two claims, on the exact ELBO and on the loss as the methods sample; one seed is
    no evidence."""
    claims = []
    for k, rivals, words in (
        (10, ("imle-sog", "imle-gumbel"), "significantly lower test loss than I-MLE on the "),
        (1, ("st-gumbel",), "lower test loss than straight-through Gumbel-softmax on the "),
    ):
        ours = [r for r in results if (r.method.k, r.method.name) == (k, "simple")]
        theirs = [
            r for r in results if r.method.k == k and r.method.name.removesuffix(OWN) in rivals
        ]
        if not ours or not theirs or len(ours[0].seeds) < 2:
            continue
        for kind, loss in (
            ("negative ELBO: exact samples, exact KL", lambda r: r.elbo),
            ("the methods' own samples, exact KL", lambda r: r.own),
        ):
            finite = [r for r in theirs if math.isfinite(final(loss(r))[0])]
            if not finite:
                continue
            rival = min(finite, key=lambda r: final(loss(r))[0])
            found, held = _compare(ours[0], rival, loss)
            claims.append(Claim(f"SIMPLE has {words}{k}-subset VAE ({kind}).", found, held))
    return claims


def _compare(ours: Outcome, rival: Outcome, loss: Callable[[Outcome], Curve]) -> tuple[str, bool]:
    a, b = loss(ours)[:, -1], loss(rival)[:, -1]
    difference = float(b.mean() - a.mean())
    text = (
        f"SIMPLE {spread(loss(ours))}, {rival.method.label} ({rival.method.setting()}) "
        f"{spread(loss(rival))}"
    )
    p = float(ttest_ind(a, b, equal_var=False).pvalue)
    verdict = f"{text}; difference {difference:+.2f} nats, Welch's p = {p:.2g}, {len(a)} seeds"
    return verdict, difference > 0 and p < _CERTAIN


def spread(curve: Curve) -> str:
    """Mean ± standard deviation over seeds, after the last epoch."""
    mean, std = final(curve)
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}"


@dataclass(frozen=True)
class Stopped:
    """A method up to some epoch."""

    outcome: Outcome
    epoch: int | None  # of the last test until then; None if there was none
    elbo: Curve  # negative, up to that test


def stopped_early(results: Sequence[Outcome], tried: Sequence[Outcome]) -> list[Stopped]:
    """Every method up to the epoch at which its loss on held-out images was least.

    Args:
        tried: with held-out images in place of test images, one seed; methods without are left out.
    """
    held_out = {outcome.method: outcome for outcome in tried}
    found = []
    for r in results:
        other = held_out.get(r.method)
        if other is not None and other.epochs == r.epochs:
            last = int(np.nanargmin(other.elbo[0]))
            found.append(Stopped(r, r.epochs[last], r.elbo[:, : last + 1]))
    return found


def at_equal_time(
    results: Sequence[Outcome], microseconds: Mapping[str, float], reference: str = "swap"
) -> list[Stopped]:
    """Every method after the time that the reference takes for all its epochs.

    Settings were chosen for the full length: a method that is stopped early might do better with
    others. One that is done before its time is up has nothing to do with the rest of it.

    Args:
        microseconds: of a training step, by the keys of methods; methods without are left out.
        reference: the name of a method; those of every shape of the code are compared with it.
    """
    found: list[Stopped] = []
    for shape in by_shape(results).values():
        same = [r for r in shape if r.method.key in microseconds]
        budgets = [
            r.epochs[-1] * microseconds[r.method.key] for r in same if r.method.name == reference
        ]
        for r in same if budgets else ():
            step = microseconds[r.method.key]
            # Rounding is not to take the reference's own last epoch away.
            within = sum(epoch * step <= budgets[0] * (1 + 1e-9) for epoch in r.epochs)
            epoch = r.epochs[within - 1] if within else None
            found.append(Stopped(r, epoch, r.elbo[:, :within]))
    return found
