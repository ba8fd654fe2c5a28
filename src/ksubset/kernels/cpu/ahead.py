"""All kernels compiled before somebody waits for them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

from ksubset.kernels import cpu
from ksubset.kernels.cpu import nested, ragged, size_rows, size_samples, sizes, supports
from ksubset.kernels.cpu.compile import folders
from ksubset.kernels.cpu.rows import NARROW_ITEMS


def compile_for(dtype: torch.dtype) -> set[str | None]:
    """By calling each kernel once. Returns where they are kept; None is among it if one is not."""
    # Short rows, one of which admits no choice and is left by all kernels; long and longer ones,
    # the last of which have too few coins that fall heads rarely.
    for n, counts in ((3, (1, 5)), (NARROW_ITEMS, (1, 1)), (NARROW_ITEMS + 1, (1, NARROW_ITEMS))):
        logits, k = torch.zeros(2, n, dtype=dtype), torch.tensor(counts)
        drawn, tilted = cpu.sample(logits, k, torch.zeros(1, 2, dtype=torch.int64))
        cpu.covariance_product(tilted, k, logits)
        cpu.swap_product(tilted, k, drawn, drawn)
        cpu.infer(logits, k)
        cpu.tilt(logits, k)
    weights = torch.zeros(1, 2, dtype=dtype)
    known, _ = sizes.infer(torch.zeros(1, 3, dtype=dtype), weights, 1)
    tilted, own, centre = known[3:6]
    sizes.covariance_product(tilted, own, centre, 1, torch.zeros(1, 3, dtype=dtype), weights)
    size_samples.draw(logits[:1, :3], 1, 2, torch.tensor(0), 1, True)
    for n in (3, NARROW_ITEMS + 1):
        rows = torch.zeros(1, n, dtype=dtype)
        law = size_rows.draw(rows, weights, 1, True, torch.zeros(1, 1, dtype=torch.int64), True)
        size_rows.covariance_product(law.tilted, law.weights, law.centre, 1, rows, None)
        size_rows.infer(rows, weights, 1, True)
    starts, lengths, ends = torch.tensor([0]), torch.tensor([3]), torch.tensor([0, 4])
    places = ragged.spread(torch.zeros(3, dtype=dtype), True, starts, lengths, ends, 4)
    ragged.collect(places, starts, lengths, ends, 3)
    nested.order(torch.zeros(1, 3, dtype=dtype), 2, torch.zeros(1, 1, dtype=torch.int64))
    if dtype == torch.float64:
        _supports()
    return folders()


def _supports() -> None:
    """One of two columns."""
    gram, moments, support = np.eye(2), np.ones((1, 2)), np.zeros(1, np.int64)
    room = supports.room(2, 1, 1)
    supports.climb(gram, moments, 3.0, 0, 0.0, 1, support, *room)
    best, marginals = support.copy(), np.zeros(2)
    supports.walk(
        gram, moments, 3.0, 1.0, 0.0, 0.0, np.zeros(1), 0, support, best, marginals, *room
    )  # fmt: skip


def compile_all() -> set[str | None]:
    """For both types, in a process each: the compiler takes one core."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        return set().union(*pool.map(compile_for, (torch.float32, torch.float64)))
