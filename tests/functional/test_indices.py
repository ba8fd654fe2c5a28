"""log_prob of subsets given by their indices, and as k-hot vectors."""

from __future__ import annotations

import pytest
import torch
from problems import INF, METHOD_NAMES, TOLERANCES, small
from torch import Tensor

import ksubset
from ksubset import KSubset, oracle


def k_hot(indices: Tensor, logits: Tensor) -> Tensor:
    shape = (*indices.shape[:-1], logits.shape[-1])
    return torch.zeros(shape, dtype=logits.dtype, device=logits.device).scatter(-1, indices, 1)


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_every_subset(method: str, dtype: torch.dtype) -> None:
    """Forced, forbidden and tied items, large logits, k = 0 and k = n."""
    bound = TOLERANCES[dtype].scalar
    for n, k in [(1, 0), (1, 1), (3, 2), (5, 0), (5, 5), *((8, k) for k in (1, 4, 7))]:
        rows = [p.logits for p in small() if len(p.logits) == n and p.k == k]
        logits = torch.stack(rows).to(dtype)
        indices = torch.combinations(torch.arange(n), k) if k else torch.empty(1, 0).long()
        indices = indices.unsqueeze(1)
        found = ksubset.log_prob_indices(logits, k, indices, method=method)
        dense = ksubset.log_prob(logits, k, k_hot(indices, logits), method=method)
        expected = torch.stack([oracle.log_probabilities(row.double(), k) for row in logits], 1)
        sure = expected > -INF
        for values in (found, dense):
            assert values.dtype == dtype
            assert torch.equal(values > -INF, sure)
            error = (values.double() - expected)[sure].abs()
            assert (error <= bound * (1 + expected[sure].abs())).all()


def test_long_rows_without_cancellation() -> None:
    """A sum over all tails, less that of the chosen, would lose 4 digits here."""
    logits = 3000 * torch.randn(5, 10_000, dtype=torch.float64)
    indices = ksubset.sample_indices(logits, 2000, (3,))
    found = ksubset.log_prob_indices(logits, 2000, indices)
    expected = ksubset.log_prob(logits, 2000, k_hot(indices, logits))
    assert ((found - expected).abs() <= 1e-12 * (1 + expected.abs())).all()


def test_gradient_and_order(device: torch.device) -> None:
    logits = torch.randn(3, 9, dtype=torch.float64, device=device, requires_grad=True)
    indices = ksubset.sample_indices(logits, 4, (5,))
    shuffled = indices[..., torch.randperm(4, device=device)]
    found = ksubset.log_prob_indices(logits, 4, shuffled)
    assert torch.equal(found, ksubset.log_prob_indices(logits, 4, indices))
    z = k_hot(indices, logits)
    torch.testing.assert_close(found, ksubset.log_prob(logits, 4, z))
    seed = torch.randn(5, 3, dtype=torch.float64, device=device)
    (gradient,) = torch.autograd.grad(found, logits, seed)
    mu = ksubset.marginals(logits, 4)
    torch.testing.assert_close(gradient, (seed.unsqueeze(-1) * (z - mu)).sum(0))
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(ksubset.log_prob_indices(logits, 4, indices.to(dtype)), found)


def test_shapes_broadcast_and_masks_forbid() -> None:
    logits = torch.randn(2, 1, 6)
    mask = torch.tensor([True, True, True, True, True, False])
    indices = torch.tensor([[0, 1], [2, 5], [3, 4]])
    found = ksubset.log_prob_indices(logits, 2, indices, mask=mask)
    assert found.shape == (2, 3)
    torch.testing.assert_close(
        found, ksubset.log_prob(logits, 2, k_hot(indices, logits), mask=mask)
    )
    assert (found[:, 1] == -INF).all()
    assert ksubset.log_prob_indices(logits.half(), 2, indices).dtype == torch.float32


def test_vmap_and_compile() -> None:
    logits = torch.randn(3, 6)
    indices = ksubset.sample_indices(logits, 2)
    expected = ksubset.log_prob_indices(logits, 2, indices)
    for dims in ((0, 0), (None, 0), (0, None)):
        found = torch.func.vmap(lambda x, i: ksubset.log_prob_indices(x, 2, i), dims)
        values = found(
            logits if dims[0] == 0 else logits[0], indices if dims[1] == 0 else indices[0]
        )
        assert values.shape == (3,)
        torch.testing.assert_close(values[0], expected[0])
    function = torch.compile(
        lambda x, i: ksubset.log_prob_indices(x, 2, i), backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(function(logits, indices), expected)


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (torch.tensor([1, 1]), ValueError, "indices must be different in each set, got 1 twice"),
        (
            torch.tensor([[0, 3], [2, 4]]),
            ValueError,
            "indices must be between 0 and n - 1 = 3, got 4",
        ),
        (torch.tensor([-1, 2]), ValueError, "indices must be between 0 and n - 1 = 3, got -1"),
        (torch.tensor([0, 1, 2]), ValueError, r"indices must have shape .* k = 2, got \(3,\)"),
        (
            torch.tensor(1),
            ValueError,
            r"indices must have shape \(\.\.\., k\) with k = 2, got \(\)",
        ),
        (
            torch.zeros(3, 2).long(),
            ValueError,
            r"of indices, \(3,\), must broadcast with .* \(2,\)",
        ),
        (
            torch.tensor([0.0, 1.0]),
            TypeError,
            "indices must be an integer tensor, got torch.float32",
        ),
        (torch.tensor([True, False]), TypeError, "must be an integer tensor, got torch.bool"),
        (torch.zeros(2, device="meta").long(), ValueError, "device of the logits, cpu, got meta"),
        ([0, 1], TypeError, "indices must be a tensor, got list"),
    ],
)
def test_bad_indices(indices: Tensor, error: type[Exception], message: str) -> None:
    logits = torch.zeros(2, 4)
    with pytest.raises(error, match=message):
        ksubset.log_prob_indices(logits, 2, indices)
    with pytest.raises(error, match=message):
        KSubset(2, logits=logits, validate_args=True).log_prob_indices(indices)


def test_unchecked_indices_have_no_probability() -> None:
    d = KSubset(2, logits=torch.randn(4), validate_args=False)
    indices = torch.tensor([[1, 1], [0, 4], [-1, 2], [0, 1]])
    found = d.log_prob_indices(indices)
    assert (found == -INF).tolist() == [True, True, True, False]
    assert torch.equal(ksubset.log_prob_indices(d.logits, 2, indices, validate_args=False), found)
    impossible = KSubset(2, logits=torch.full((4,), torch.nan), validate_args=False)
    assert impossible.log_prob_indices(impossible.sample_indices()).isnan()


def test_sizes() -> None:
    with pytest.raises(TypeError, match="k must be an int in log_prob_indices, got a tensor"):
        ksubset.log_prob_indices(torch.zeros(4), torch.tensor(2), torch.tensor([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="log_prob_indices is not supported for a k that"):
        KSubset(torch.tensor([1, 2]), logits=torch.zeros(2, 4)).log_prob_indices(torch.tensor([0]))
    same = KSubset(torch.tensor([2, 2]), logits=torch.randn(2, 4))
    z = same.sample_indices((3,))
    torch.testing.assert_close(same.log_prob_indices(z), same.log_prob(k_hot(z, same.logits)))
