"""Results at the ends of the range of floating point numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fuzz.exact import Exact
from problems import INF, METHOD_NAMES

import ksubset


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("method", ["auto", "dp"])
@pytest.mark.parametrize("gap", [5.0, 12.0, 16.0, 20.0, 40.0, 60.0])
def test_small_marginals_keep_their_digits(gap: float, method: str, dtype: torch.dtype) -> None:
    """Two small numbers multiplied: an item's own, and that of another which makes room for it."""
    for n, k in ((20, 5), (65, 10), (200, 100), (200, 199), (1000, 30)):
        logits = torch.randn(n, dtype=dtype)
        logits[torch.randperm(n)[:k]] += gap
        truth = Exact(logits.double().numpy()[None], np.array([k])).marginals[0].astype(np.float64)
        mu = ksubset.marginals(logits, k, method=method).double().numpy()
        small = (truth < 0.1) & (truth > 1e-37)
        error = np.abs(mu / np.where(small, truth, 1) - 1)[small]
        assert error.max(initial=0) < (1e-11 if dtype == torch.float64 else 2e-5)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_sums_of_large_logits_do_not_overflow(method: str) -> None:
    huge = 1.7e308
    for logits, k, truth in (
        ([huge, huge, huge], 1, huge),
        ([huge, -huge, -huge, -huge], 2, 0.0),  # of such numbers
        ([huge] * 3 + [-huge] * 70, 5, huge),
        ([1e308, -1e308] * 40, 30, INF),
        ([1e308, -1e308] * 40, 70, 1e309),
        ([-1e308] * 5, 3, -INF),
        ([huge, -huge] * 40, 80, 0.0),
    ):
        row = torch.tensor(logits, dtype=torch.float64)
        value = ksubset.log_partition(row, k, method=method).item()
        assert value == pytest.approx(truth, rel=1e-12, abs=1e-12 * huge if truth == 0 else 0)
        mu = ksubset.marginals(row, k, method=method)
        assert abs(float(mu.sum()) - k) < 1e-9
        for function in (ksubset.entropy, ksubset.kl_to_uniform, ksubset.log_prob_exactly_k):
            assert not function(row, k, method=method).isnan()


def test_coins_that_never_show_k_heads() -> None:
    logits = torch.tensor([1.79e308, -1.79e308] * 2, dtype=torch.float64)
    assert ksubset.log_prob_exactly_k(logits, 1).item() == -1.79e308
