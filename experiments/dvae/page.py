"""The report of the study."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from experiments.clock import Duration
from experiments.command import command_line
from experiments.datasets.images import Images
from experiments.dvae import figures
from experiments.dvae.model import DiscreteVAE
from experiments.dvae.results import (
    PUBLISHED,
    Outcome,
    Stopped,
    at_equal_time,
    by_shape,
    spread,
    stopped_early,
)
from experiments.dvae.settings import Settings
from experiments.report import Claim, Page, Picture, Table
from experiments.runs import RunFolder, environment

HEADINGS = (
    "method", "setting", "−ELBO", "reconstruction", "KL", "softmax “KL”", "own samples: loss",
    "own samples, softmax “KL”", "training",
)  # fmt: skip
_NOTE = (
    "Nats per test image after the last epoch, mean ± standard deviation over seeds. −ELBO: codes "
    "drawn from the exact k-subset distribution of the encoder's logits, plus its exact KL from "
    "the uniform prior; only this is a bound on the likelihood for every method. Own samples: "
    "codes as the method itself draws them in training (perturb-and-MAP for I-MLE, relaxed for "
    "SoftSub), plus the exact KL, or plus the divergence of a softmax over items, which the "
    "literature takes for the KL and which is exact for k = 1 only. Training: the same bound, over "
    "the batches of the last epoch."
)


def table(results: Sequence[Outcome], tuned: bool) -> Table:
    """The losses of methods that have codes of one shape."""
    shape = results[0].method
    rows = [
        [
            r.method.label, r.method.setting(), spread(r.elbo),
            *(spread(r.curve(name)) for name in ("reconstruction", "divergence")),
            spread(r.curve("softmax divergence")), spread(r.own), spread(r.published),
            spread(r.training),
        ]
        for r in results
    ]  # fmt: skip
    headings: tuple[str, ...] = HEADINGS
    if any(r.importance for r in results):
        headings = (*HEADINGS[:3], "−IWAE bound (64)", *HEADINGS[3:])
        for row, r in zip(rows, results, strict=True):
            values = [-x for x in r.importance]
            mean = sum(values) / len(values)
            row.insert(3, f"{mean:.2f}")
    note = _NOTE + (
        " Settings: the best on the grid." if tuned else " Settings: the best on MNIST's grids."
    )
    title = f"{shape.k} of {shape.items} items in each of {shape.groups} groups"
    return Table(title, headings, rows, note)


def grid_table(key: str, tried: Sequence[Outcome]) -> Table:
    """What every setting of a method came to, the best first."""
    ordered = sorted(tried, key=lambda r: (math.isnan(r.elbo[0, -1]), r.elbo[0, -1]))
    rows = [
        [r.method.label, r.method.setting(), f"{r.elbo[0, -1]:.2f}", f"{r.own[0, -1]:.2f}"]
        for r in ordered
    ]
    return Table(f"Grid: {key}", ("method", "setting", "−ELBO", "own samples"), rows)


def stopped_table(title: str, found: Sequence[Stopped], note: str) -> Table:
    """Losses of methods that were stopped before their end."""
    rows = [
        [
            str(one.outcome.method.k), one.outcome.method.label, one.outcome.method.setting(),
            "–" if one.epoch is None else str(one.epoch),
            "–" if one.epoch is None else spread(one.elbo), spread(one.outcome.elbo),
        ]
        for one in found
    ]  # fmt: skip
    headings = ("k", "method", "setting", "epoch", "−ELBO then", "−ELBO at the end")
    return Table(title, headings, rows, note)


def comparisons(
    results: Sequence[Outcome], grids: Mapping[str, Sequence[Outcome]], times: Mapping[str, float]
) -> list[Table]:
    """At equal training time, and with early stopping: those that can be made."""
    found = []
    if paid := at_equal_time(results, times):
        note = (
            "After the time that swap with one sample takes for all its epochs; steps were timed "
            "one model at a time. Settings are those chosen for the full length."
        )
        found.append(stopped_table("Equal training time", paid, note))
    if early := stopped_early(results, [r for tried in grids.values() for r in tried]):
        note = "Stopped at the epoch with the least loss on held-out images, in tuning."
        found.append(stopped_table("Early stopping", early, note))
    return found


def page(
    folder: RunFolder,
    settings: Settings,
    data: Images,
    results: Sequence[Outcome],
    claims: list[Claim],
    grids: Mapping[str, Sequence[Outcome]],
    shown: Mapping[int, tuple[str, DiscreteVAE]],
    times: Mapping[str, float],
    duration: Duration,
) -> Page:
    """Everything.

    Args:
        grids: what was tried, by method.
        shown: for every k a model whose pictures are shown, with its name.
        times: microseconds of a training step, by method.
    """
    name = {"mnist": "MNIST", "digits": "small digits"}[data.name]
    seeds = len(settings.all_seeds)
    groups, items = settings.shape
    places = ("data_dir", "step_times")  # on this machine
    kind = "binarised" if settings.binarize else "grey levels"
    found = Page(
        title=f"Discrete k-subset VAE: {name}",
        summary=(
            "The discrete variational auto-encoder of section 5.2 of “SIMPLE: A Gradient Estimator "
            f"for k-Subset Sampling” (ICLR 2023) on {name} ({kind}): {len(data.train):,} images to "
            f"learn from, {len(data.test):,} to test, {settings.total_epochs} epochs, "
            f"{seeds} seed{'s' if seeds > 1 else ''}. A code is {groups} groups, each a k-subset "
            f"of {items} items. {sum(len(r.seeds) for r in results)} models were trained"
            + (
                f", and {sum(map(len, grids.values()))} on grids for "
                f"{settings.total_tune_epochs} epochs with {settings.held_out:,} training images "
                "held out to choose by"
                if grids
                else ""
            )
            + f", in {duration}."
            + ("" if seeds > 1 else " One seed gives no verdicts: --seeds 5 does.")
        ),
        claims=claims,
        settings={n: v for n, v in dataclasses.asdict(settings).items() if n not in places},
        environment=environment(),
        command=command_line(
            "python -m experiments.dvae",
            dataclasses.replace(settings, data_dir=None, step_times=None, resume=False),
        ),
    )
    for file, loss, title in (
        ("elbo", lambda r: r.elbo, "Negative test ELBO: exact samples, exact KL"),
        ("own", lambda r: r.own, "Test loss with the methods' own samples, exact KL"),
    ):
        figure = figures.curves(results, loss, title, "nats per image")
        caption = "As the paper's figure, but with the exact KL for all."
        if seeds > 1:
            caption += " Means over seeds; bands are one standard deviation."
        if data.name == "mnist" and not settings.binarize and file == "own":
            logged = ", ".join(f"{value:g} after {epoch}" for epoch, value in PUBLISHED.items())
            caption += (
                f" The published log of SIMPLE at k = 10 reads {logged}; its entropy recurrence "
                "started too late, which makes its KL up to 92 nats too large."
            )
        found.pictures.append(Picture(folder.figure(file, figure), caption, title))
    for k, (who, vae) in shown.items():
        for file, draw, title, caption in (
            (
                f"reconstructions-k{k}", figures.reconstructions,
                f"{who}, k = {k}: test images and what comes back",
                "Codes are random: one sample, the mean over 64, and the most likely code.",
            ),
            (
                f"samples-k{k}", figures.prior_samples, f"{who}, k = {k}: samples from the prior",
                "Codes drawn uniformly: probabilities of pixels.",
            ),
            (
                f"traversals-k{k}", figures.traversals,
                f"{who}, k = {k}: what single bits do",
                "The most likely code of one image, and what changes when in column i item i of a "
                "group is brought in for the least likely item chosen: red is more ink, blue "
                "less, white nothing, as where the item was chosen already. The five groups that "
                "matter most, on a scale of their own.",
            ),
        ):  # fmt: skip
            figure = draw(vae, data, title)
            found.pictures.append(Picture(folder.figure(file, figure), caption, title))
    found.tables += [table(same, bool(grids)) for same in by_shape(results).values()]
    found.tables += comparisons(results, grids, times)
    found.tables += [grid_table(key, tried) for key, tried in grids.items() if len(tried) > 1]
    return found
