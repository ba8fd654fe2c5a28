"""The product tree's own traps."""

from __future__ import annotations

import torch

import ksubset
from ksubset import oracle


def test_long_polynomials_do_not_spoil_short_ones() -> None:
    """Rows with few and many heads in one batch share the length of the polynomials, and so the
    FFT, whose rounding is relative to the largest coefficient."""
    logits = torch.randn(2, 3000)
    bits = ksubset.entropy(logits, torch.tensor([1, 700]), method="tree")
    truth = oracle.LogSpaceDP(logits[0].double(), 1).entropy()
    assert abs(float(bits[0]) - truth) < 5e-6 * (1 + truth)
