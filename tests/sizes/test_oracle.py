"""Two oracles of weighted sizes that share nothing."""

from __future__ import annotations

import pytest
import torch

from ksubset import oracle


@pytest.mark.parametrize("n", [1, 4, 9])
def test_enumeration_and_the_dp_agree(n: int) -> None:
    for scale in (0.3, 3.0):
        logits = scale * torch.randn(n, dtype=torch.float64)
        weights = torch.randn(n + 1, dtype=torch.float64)
        weights[n // 2] = -torch.inf
        listed = oracle.SizedEnumeration(logits, weights)
        table = oracle.LogSpaceDP(logits, n, weights)
        v = torch.randn(n, dtype=torch.float64)
        for one, other in (
            (listed.log_partition(), table.log_partition()),
            (listed.marginals(), table.marginals()),
            (listed.size_probabilities(), table.size_probabilities()),
            (listed.entropy(), table.entropy()),
            (listed.covariance() @ v, table.covariance_product(v)),
        ):
            torch.testing.assert_close(one, torch.as_tensor(other, dtype=one.dtype))


def test_one_size_is_the_k_subset_law() -> None:
    logits = torch.randn(7, dtype=torch.float64)
    weights = torch.full((8,), -torch.inf)
    weights[3] = 2.5
    listed = oracle.SizedEnumeration(logits, weights)
    torch.testing.assert_close(listed.marginals(), oracle.marginals(logits, 3))
    torch.testing.assert_close(listed.log_partition(), oracle.log_partition(logits, 3) + 2.5)
    torch.testing.assert_close(listed.third_cumulant(), oracle.third_cumulant(logits, 3))


def test_given_probabilities_of_sizes() -> None:
    logits = torch.randn(6, dtype=torch.float64)
    logits[2] = -torch.inf
    given = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0, 0.0], dtype=torch.float64)
    listed = oracle.SizedEnumeration.with_probabilities(logits, given)
    torch.testing.assert_close(listed.size_probabilities(), given)
    within = sum(p * oracle.marginals(logits, k) for k, p in enumerate(given) if p > 0)
    torch.testing.assert_close(listed.marginals(), within)
