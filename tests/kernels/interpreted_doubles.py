"""Rows of float64 in the Triton kernels, and kernels/cuda/outcome.py in both types: run by
test_triton.py like interpreted_triton.py."""

from __future__ import annotations

import sys
from fractions import Fraction

import torch
import triton
import triton.language as tl
from interpreted_triton import assert_fences, poison, small_leaves
from problems import INF, TOLERANCES, Problem, product_plan, small
from test_exactness import FALSE_ALARM, p_value, p_value_of_part

from ksubset import oracle
from ksubset.kernels import log_outcome
from ksubset.kernels.cuda import outcome, rows
from ksubset.kernels.cuda.random import thresholds
from ksubset.kernels.largest import k_largest

TOLERANCE = TOLERANCES[torch.float64]


def _check_moments(problems: list[Problem]) -> None:
    """Against the bounds of the contract."""
    logits = torch.stack([p.logits for p in problems]).double()
    k = torch.tensor([p.k for p in problems])
    log_partition, marginals, _, _, _, entropy = rows.infer(logits, k)
    assert {x.dtype for x in (log_partition, marginals, entropy)} == {torch.float64}
    for j in range(2):
        v = torch.stack([p.vectors[j] for p in problems]).double()
        product = rows.covariance_product(rows.tilt(logits, k), k, v)
        for i, p in enumerate(problems):
            first, second = TOLERANCE.covariance
            spread = (p.vectors[j] - p.vectors[j].mean()).abs().max()
            bound = first * p.products[j].abs().max() + second * spread
            assert (product[i] - p.products[j]).abs().max() <= bound, p.name
    for i, p in enumerate(problems):
        assert (marginals[i] - p.marginals).abs().max() <= TOLERANCE.marginals, p.name
        for value, truth in ((log_partition, p.log_partition), (entropy, p.entropy)):
            assert abs(value[i] - truth) <= TOLERANCE.scalar * (1 + abs(truth)), p.name


def check_moments_of_doubles() -> None:
    for n in (1, 3, 14):
        problems = [p for p in small() if len(p.logits) == n]
        _check_moments(problems[:: 1 + len(problems) // 20])


def check_a_wider_row_of_doubles() -> None:
    """Of which more nodes count than of float32."""
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(100, generator=generator).double()
    truth = oracle.LogSpaceDP(logits, 30)
    v = torch.randn(100, generator=generator).double()
    product = truth.covariance_product(v)
    _check_moments(
        [
            Problem(
                "n=100", logits, 30, truth.log_partition(), truth.marginals(), truth.entropy(),
                (v, v + 1000), (product, product),
            )
        ]
    )  # fmt: skip


def check_doubles_that_float32_has_no_room_for() -> None:
    """Small differences between large logits; and sums beyond all numbers."""
    close = 1e8 + torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]]).double()
    mu = rows.infer(close, 2)[1]
    assert (mu - oracle.marginals(close[0] - 1e8, 2)).abs().max() < 1e-7  # their own rounding
    huge = 1.7e308
    for logits, k, truth in (
        ([huge] * 3 + [-huge] * 5, 5, huge),
        ([1e308, -1e308] * 4, 3, INF),
        ([huge, -huge] * 4, 8, 0.0),
        ([0.0] + [-1e-300] * 3, 2, 1.791759469228055),
    ):
        value = rows.infer(torch.tensor([logits], dtype=torch.float64), k)[0].item()
        assert value == truth or abs(value - truth) < 1e-12 * max(1.0, abs(truth))


def _check_samples(z: torch.Tensor, logits: torch.Tensor, k: torch.Tensor) -> None:
    assert z.dtype == torch.float64
    for row in range(len(k)):
        assert p_value(z[:, row], logits[row], int(k[row])) > FALSE_ALARM


def check_samples_of_doubles() -> None:
    logits = torch.tensor([[0.5, -1.0, 1.5, -INF], [2.0, -1.0, INF, 0.0]]).double()
    k = torch.tensor([1, 2])
    seeds = torch.randint(1 << 60, (150, 2), generator=torch.Generator().manual_seed(1))
    _check_samples(rows.sample(logits, k, seeds)[0], logits, k)
    _check_samples(rows.sample(logits, k, seeds[:40], rounds=0)[0], logits, k)  # item by item
    bad = torch.tensor([[0.0, torch.nan, 0.0]]).double()
    assert rows.sample(bad, 1, seeds[:1, :1])[0].isnan().all()


def check_doubles_by_leaves() -> None:
    logits = 0.3 * torch.randn(1, 8, generator=torch.Generator().manual_seed(8)).double()
    seeds = torch.randint(1 << 60, (150, 1), generator=torch.Generator().manual_seed(3))
    with small_leaves():
        z = rows.sample(logits, 4, seeds)[0]
    assert (z.sum(-1) == 4).all()
    for j in range(4):
        assert p_value_of_part(z[:, 0], logits[0], 4, torch.arange(8) % 4 == j) > FALSE_ALARM


def check_doubles_drawn_with_replacement() -> None:
    logits = torch.randn(2, 70, generator=torch.Generator().manual_seed(9)).double()
    k = torch.tensor([3, 5])
    z = rows.sample(logits, k, torch.arange(20).reshape(10, 2))[0]
    assert torch.equal(z.sum(-1), k.double().expand(10, 2))
    assert ((z == 0) | (z == 1)).all()


@triton.jit
def _thresholds(p, high, low):
    lane = tl.arange(0, 8)
    h, m = thresholds(tl.load(p + lane))
    tl.store(high + lane, h.to(tl.int64))
    tl.store(low + lane, m.to(tl.int64))


def check_thresholds_of_doubles() -> None:
    """Chances close to 1 too have all their digits."""
    p = [0.0, 1e-19, 0.3, 0.5, 1 - 1e-8, 1 - 1e-12, 1 - 2**-53, 1.0]
    high, low = torch.zeros(2, 8, dtype=torch.int64)
    _thresholds[(1,)](torch.tensor(p, dtype=torch.float64), high, low)
    for chance, h, m in zip(p, high.tolist(), low.tolist(), strict=True):
        assert abs(h * 2**32 + m - int(Fraction(chance) * 2**64)) <= 1


def check_swaps_of_doubles() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = 1.5 * torch.randn(2, 9, generator=generator).double()
    logits[1, 2], logits[1, 3] = INF, -INF
    k = torch.tensor([2, 6])
    z, tilted = rows.sample(logits, k, torch.arange(4).reshape(2, 2))
    v = torch.randn(z.shape, generator=generator).double() + 1000
    v[:, logits.isinf()] = INF
    product = rows.swap_product(tilted, k, z, v)
    for row in range(2):
        mu = oracle.marginals(logits[row], int(k[row]))
        finite = torch.where(logits[row].isinf(), 0, v[:, row])
        truth = sum(product_plan(mu, z[s, row], finite[s]) for s in range(2))
        assert (product[row] - truth).abs().max() < 1e-10 * (1 + truth.abs().max())


def check_modes() -> None:
    """Ties, zeros of both signs, infinities and rows without a subset."""
    for dtype in (torch.float32, torch.float64):
        logits = torch.randn(6, 21, generator=torch.Generator().manual_seed(6)).to(dtype)
        logits[1, ::2] = logits[1, 0]
        logits[2, :9], logits[2, 9:] = -0.0, 0.0
        logits[3, :4], logits[3, 5:] = INF, -INF
        logits[4, 7] = torch.nan
        logits[5] = -1e30 - 1e20 * torch.arange(21)
        for k in (0, 1, 4, 5, 20, 21):
            expected = k_largest(logits, k)
            assert torch.equal(outcome.mode(logits, k).nan_to_num(7), expected.nan_to_num(7))
        k = torch.tensor([3, 20, 5, 4, 2, 21])
        expected = k_largest(logits, k)
        assert torch.equal(outcome.mode(logits, k).nan_to_num(7), expected.nan_to_num(7))
    close = 1 + 2.0**-50 * torch.arange(5).double()  # the same in float32
    assert outcome.mode(close[None], 2)[0].tolist() == [0, 0, 0, 1, 1]


def check_log_outcomes() -> None:
    """Of subsets, of what has more or fewer items, and of what is no subset at all."""
    for dtype, bound in ((torch.float32, 2e-6), (torch.float64, 1e-13)):
        logits = torch.randn(3, 11, generator=torch.Generator().manual_seed(7)).to(dtype)
        logits[1, 2], logits[1, 3], logits[2, 5] = INF, -INF, torch.nan
        k = torch.tensor([4, 4, 4])
        _, _, tilted, log_mass, _, _ = rows.infer(logits, k)
        z = torch.stack([k_largest(logits, 4), torch.zeros(3, 11), torch.full((3, 11), 0.5)]).to(
            dtype
        )
        found = outcome.log_outcome(tilted, log_mass, k, z)
        expected = log_outcome(tilted, log_mass, k, z, "dp")
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=bound, equal_nan=True)
        truth = oracle.log_probabilities(logits[0].double(), 4).max()
        assert abs(found[0, 0] - truth) < 10 * bound


if __name__ == "__main__":
    poison()
    for name in sys.argv[1:]:
        globals()[name]()
        print(name)
    assert_fences()
