"""Rows of different lengths are what each of them is alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ksubset
from ksubset import Ragged
from ksubset.ragged import _groups

LENGTHS = (5, 0, 1, 40, 7, 300, 33, 5)


def rows(device: torch.device) -> tuple[Ragged, Tensor, list[Tensor]]:
    logits = torch.randn(sum(LENGTHS), dtype=torch.float64, device=device)
    offsets = torch.tensor([0, *LENGTHS], device=device).cumsum(0)
    return Ragged(logits, offsets), offsets, list(logits.split(LENGTHS))


KINDS = {
    "k": torch.tensor([2, 0, 1, 10, 7, 30, 5, 3]),
    "at most": ksubset.at_most(4),
    "by row": ksubset.between(
        torch.tensor([2, 0, 0, 10, 7, 30, 5, 3]), torch.tensor([3, 0, 1, 12, 7, 300, 5, 5])
    ),
    "weights": ksubset.weighted_sizes({0: 0.0, 1: 0.5, 3: 1.0}),
}


def of_row(k: object, row: int) -> object:
    if isinstance(k, Tensor):
        return int(k[row])
    if isinstance(k, ksubset.Sizes) and repr(k).startswith("at_most"):
        return ksubset.at_most(min(4, LENGTHS[row]))
    if isinstance(k, ksubset.Sizes) and repr(k).startswith("between"):
        return ksubset.between(int(k.low[row]), int(k.high[row]))
    weights = torch.tensor([0.0, 0.5, -torch.inf, 1.0])
    return ksubset.weighted_sizes(weights[: LENGTHS[row] + 1])


def on(k: object, device: torch.device) -> object:
    if isinstance(k, Tensor):
        return k.to(device)
    low = getattr(k, "low", None)
    return ksubset.between(low.to(device), k.high.to(device)) if isinstance(low, Tensor) else k


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_itself(kind: str, device: torch.device) -> None:
    ragged, _, alone = rows(device)
    k = on(KINDS[kind], device)
    v = torch.randn_like(ragged.logits)
    mu, product = ragged.marginals(k), ragged.covariance_product(k, v)
    entropy, total, mode = ragged.entropy(k), ragged.log_partition(k), ragged.mode(k)
    z = ragged.sample(k, (7,))
    log_prob = ragged.log_prob(k, z)
    assert z.shape == (7, len(v))
    assert log_prob.shape == (7, len(LENGTHS))
    for row, own in enumerate(alone):
        if not LENGTHS[row]:
            continue
        size = of_row(KINDS[kind], row)
        piece = slice(int(ragged.offsets[row]), int(ragged.offsets[row + 1]))
        torch.testing.assert_close(mu[piece], ksubset.marginals(own, size))
        torch.testing.assert_close(product[piece], ksubset.covariance_product(own, size, v[piece]))
        torch.testing.assert_close(entropy[row], ksubset.entropy(own, size))
        torch.testing.assert_close(total[row], ksubset.log_partition(own, size))
        assert torch.equal(mode[piece], ksubset.mode(own, size))
        torch.testing.assert_close(log_prob[:, row], ksubset.log_prob(own, size, z[:, piece]))


def test_batch_vectors_offsets_and_nested_tensors_are_one(device: torch.device) -> None:
    ragged, offsets, _ = rows(device)
    k = KINDS["k"].to(device)
    batch = torch.repeat_interleave(torch.arange(len(LENGTHS), device=device), ragged.lengths)
    by_batch = Ragged(ragged.logits, batch=batch)
    assert torch.equal(by_batch.offsets, offsets)
    assert len(Ragged(ragged.logits, batch=batch, rows=11).lengths) == 11
    nested = torch.nested.nested_tensor_from_jagged(ragged.logits, offsets)
    by_nested = Ragged(nested)
    mu = by_nested.marginals(k)
    assert torch.equal(mu, ragged.marginals(k))
    assert torch.equal(ragged.nested(mu).values(), mu)
    v = torch.nested.nested_tensor_from_jagged(torch.randn_like(mu), offsets)
    assert torch.equal(by_nested.covariance_product(k, v), ragged.covariance_product(k, v.values()))


def test_gradients(device: torch.device) -> None:
    logits = torch.randn(12, dtype=torch.float64, device=device, requires_grad=True)
    offsets = torch.tensor([0, 4, 12], device=device)
    ragged, v = Ragged(logits, offsets), torch.randn(12, dtype=torch.float64, device=device)
    k = torch.tensor([2, 3], device=device)
    product = ragged.covariance_product(k, v)
    for found in (ragged.marginals(k), ragged.simple(k)):
        (gradient,) = torch.autograd.grad(found, logits, v)
        torch.testing.assert_close(gradient, product)
    (gradient,) = torch.autograd.grad(ragged.swap(k, (3,)).sum(), logits)
    assert gradient.isfinite().all()


def test_groups_waste_little() -> None:
    lengths = torch.randint(20, 2001, (2000,))
    groups = _groups(lengths)
    padded = sum(len(group.rows) * group.width for group in groups)
    assert padded < 1.07 * int(lengths.sum())
    assert len(groups) < 60
    assert torch.equal(torch.cat([g.rows for g in groups]).sort().values, torch.arange(2000))


MISTAKES = [
    ({}, "exactly one of offsets and batch must be given, got neither"),
    ({"offsets": torch.tensor([0, 5, 3, 6])}, "offsets must ascend, got 5 and then 3 at row 1"),
    ({"offsets": torch.tensor([0, 5])}, r"offsets must go from 0 to the number of items 6, got"),
    ({"offsets": torch.tensor([1, 6])}, r"offsets must go from 0 .* got \[1, 6\]"),
    ({"batch": torch.tensor([0, 1, 0, 1, 1, 1])}, "batch must ascend from 0"),
    ({"batch": torch.zeros(3).long()}, "batch must have an integer for each of the 6 items"),
    (
        {"batch": torch.arange(6), "rows": 3},
        "rows must be at least 6, the last row of batch, got 3",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ragged(torch.randn(6), **arguments)  # type: ignore[arg-type]


def test_rows_that_are_too_short() -> None:
    ragged = Ragged(torch.randn(6), torch.tensor([0, 4, 6]))
    with pytest.raises(
        ValueError, match="got 3 with 1 rows that are shorter, the first of them row 1 with 2"
    ):
        ragged.marginals(3)
    with pytest.raises(ValueError, match=r"got at_least\(3\) with 1 rows"):
        ragged.marginals(ksubset.at_least(3))
    with pytest.raises(
        ValueError, match="k must be a number or have an entry for each of the 2 rows"
    ):
        ragged.marginals(torch.tensor([1, 1, 1]))
    with pytest.raises(ValueError, match=r"v must have shape .* with 6 items, got"):
        ragged.covariance_product(1, torch.randn(5))
