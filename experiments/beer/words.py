"""A page of reviews with the words that every method chose, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from experiments.beer.results import Entry
from experiments.datasets.beer import Annotated
from experiments.report import render

_SHOWN = 12


@dataclass(frozen=True)
class Word:
    """As it is shown.

    Attributes:
        marked: whether people marked it as a reason.
        weight: its marginal if it was chosen, else zero.
    """

    text: str
    marked: bool
    weight: float


@dataclass(frozen=True)
class Reading:
    """A review as one method reads it."""

    label: str
    words: list[Word]

    @property
    def chosen(self) -> int:
        """How many words."""
        return sum(word.weight > 0 for word in self.words)

    @property
    def right(self) -> int:
        """Of these, those that are marked."""
        return sum(word.weight > 0 and word.marked for word in self.words)


@dataclass(frozen=True)
class Review:
    """One review, read by every method."""

    number: int
    rating: float
    readings: list[Reading]


def reading(entry: Entry, annotated: Annotated, number: int) -> Reading:
    """Words as the first split's model chose them."""
    member = entry.members[0]
    # A marginal that rounds to zero is still a choice.
    weights = {
        position: max(weight, 1e-4)
        for position, weight in zip(
            member["chosen"][number], member["weights"][number], strict=True
        )
    }
    marked = annotated.marked[number].tolist()
    words = [
        Word(text, i < len(marked) and marked[i], weights.get(i, 0.0))
        for i, text in enumerate(annotated.words[number])
    ]
    return Reading(entry.label, words)


def page(aspect: str, k: int, found: Sequence[Entry], annotated: Annotated, seed: int = 0) -> str:
    """HTML: some annotated reviews, drawn at random among those with a mark, not picked."""
    some = annotated.marked.any(-1).nonzero().flatten()
    order = torch.randperm(len(some), generator=torch.Generator().manual_seed(seed))
    readable = [e for e in found if e.members and "chosen" in e.members[0]]
    reviews = [
        Review(
            number,
            float(annotated.reviews.ratings[number]),
            [reading(entry, annotated, number) for entry in readable],
        )
        for number in some[order[:_SHOWN]].tolist()
    ]
    return render("words.html", aspect=aspect, k=k, reviews=reviews)
