"""Sizes as they are written, and what is said about wrong ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch

import ksubset
from ksubset import at_least, at_most, between, exactly, marginals, random_sizes, weighted_sizes

INF = float("inf")
ROWS = torch.randn(3, 6)


def test_sizes_read_as_they_are_written() -> None:
    shown = (
        exactly(3),
        between(2, 5),
        at_most(4),
        at_least(1),
        weighted_sizes({1: 0.5, 3: -1.0}),
        random_sizes({7: 0.25, 8: 0.75}),
    )
    for sizes, text in zip(
        shown,
        (
            "exactly(3)",
            "between(2, 5)",
            "at_most(4)",
            "at_least(1)",
            "weighted_sizes({1: 0.5, 3: -1.0})",
            "random_sizes({7: 0.25, 8: 0.75})",
        ),
        strict=True,
    ):
        assert repr(sizes) == text
        assert repr(eval(text, vars(ksubset))) == text
        assert repr(pickle.loads(pickle.dumps(copy.deepcopy(sizes)))) == text
    assert repr(between(torch.tensor([1, 2]), 3)) == "between(tensor([1, 2]), 3)"
    assert repr(at_most(torch.ones(20, 2).long())) == "at_most(tensor of shape (20, 2))"
    assert repr(weighted_sizes(torch.zeros(3))) == "weighted_sizes(tensor([0.0, 0.0, 0.0]))"


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: between(5, 2), ValueError, r"a must be at most b, got a = 5 and b = 2"),
    (
        lambda: between(torch.tensor([1, 4]), 3),
        ValueError,
        r"a must be at most b, got a = tensor\(\[1, 4\]\) and b = 3",
    ),
    (lambda: between(-1, 2), ValueError, "a must be at least 0, got -1"),
    (lambda: at_most(2.5), TypeError, "k must be an int or an integer tensor, got 2.5"),
    (lambda: at_most(torch.ones(2)), TypeError, "k must be .* got torch.float32"),
    (
        lambda: between(torch.ones(2).long(), torch.ones(3).long()),
        ValueError,
        r"the shapes of a and b must broadcast, got \(2,\) and \(3,\)",
    ),
    (lambda: weighted_sizes([1.0]), TypeError, "log_weights must be a mapping or a tensor"),
    (lambda: weighted_sizes({}), ValueError, "log_weights must have sizes"),
    (lambda: weighted_sizes({-1: 0.0}), ValueError, "all at least 0"),
    (lambda: weighted_sizes({1: INF}), ValueError, "log_weights must be below"),
    (lambda: weighted_sizes({1: -INF}), ValueError, "a size that is not -inf"),
    (lambda: random_sizes({1: 0.5, 2: 0.4}), ValueError, "must sum to 1, got .* whose sum is"),
    (lambda: random_sizes({1: 1.5, 2: -0.5}), ValueError, "must be at least 0"),
    (
        lambda: marginals(ROWS, between(2, 7)),
        ValueError,
        r"k must not go beyond the number of items n = 6, got between\(2, 7\)",
    ),
    (
        lambda: marginals(ROWS, between(torch.tensor([1, 2, 3]), torch.tensor([4, 5, 9]))),
        ValueError,
        r"k must not go beyond the number of items n = 6, .* with 9",
    ),
    (lambda: marginals(ROWS, weighted_sizes({9: 0.0})), ValueError, "whose largest size is 9"),
    (
        lambda: marginals(ROWS, between(torch.zeros(4).long(), 5)),
        ValueError,
        "the batch shapes of the arguments must broadcast: logits .3,., k .*4",
    ),
    (
        lambda: marginals(ROWS, between(4, 5), mask=torch.arange(6) < 3),
        ValueError,
        r"k must have a size between the number of items with a logit of \+inf, 0, and the number "
        r"of allowed items, 3, got between\(4, 5\) in row \(0,\) \(3 of 3 rows\)",
    ),
    (
        lambda: marginals(ROWS, random_sizes({2: 0.5, 4: 0.5}), mask=torch.arange(6) < 3),
        ValueError,
        r"k must have only sizes between .* allowed items, 3, got random_sizes",
    ),
    (
        lambda: marginals(ROWS.masked_fill(torch.arange(6) < 3, INF), at_most(2)),
        ValueError,
        r"logit of \+inf, 3, .* got at_most\(2\)",
    ),
    (lambda: marginals(ROWS * torch.nan, at_most(2)), ValueError, "logits must not be NaN"),
    (
        lambda: ksubset.log_prob(ROWS, at_most(2), torch.ones(6)),
        ValueError,
        r"value must have as many ones as one of the sizes at_most\(2\) .* got 6",
    ),
    (
        lambda: ksubset.log_prob(ROWS, at_most(2), torch.full((6,), 0.5)),
        ValueError,
        "value must be 0 or 1 everywhere",
    ),
    (
        lambda: ksubset.log_partition(ROWS, random_sizes({2: 1.0})),
        TypeError,
        "k must not be sizes of given probabilities in log_partition",
    ),
    (
        lambda: ksubset.log_prob_indices(ROWS, at_most(2), torch.tensor([1, 1])),
        ValueError,
        "indices must be different",
    ),
    (
        lambda: ksubset.kl_divergence(ROWS, torch.randn(5), at_most(2)),
        ValueError,
        "the same number of items, got 6 and 5",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_rows_that_are_not_checked_give_nan() -> None:
    logits = ROWS.clone()
    logits[1, 2] = torch.nan
    logits[2, :5] = -INF
    mu = ksubset.marginals(logits, between(2, 4), validate_args=False)
    z = ksubset.sample(logits, between(2, 4), validate_args=False)
    assert mu[0].isfinite().all()
    assert mu[1:].isnan().all()
    assert z[1:].isnan().all()
    given = random_sizes({2: 1.0, 3: 0.0})
    assert ksubset.marginals(logits, given, validate_args=False)[2].isnan().all()


def test_a_mask_ends_a_range() -> None:
    """Between 2 and 5 of three allowed items: two or three of them."""
    mask = torch.tensor([True, True, True, False, False, False])
    found = ksubset.size_probabilities(torch.zeros(6), between(2, 5), mask=mask)
    torch.testing.assert_close(found, torch.tensor([0, 0, 0.75, 0.25, 0, 0, 0]))
