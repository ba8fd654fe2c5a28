"""Several short rows in a program: run by test_triton.py with TRITON_INTERPRET=1 and the names of
some of the checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from interpreted_triton import TOLERANCE, assert_fences, check_swaps_of, poison
from problems import INF, small
from test_exactness import FALSE_ALARM, p_value

from ksubset import oracle
from ksubset.kernels.cuda import short


@contextmanager
def shape(items: int, warps: int = 1) -> Iterator[None]:
    """So many items to a lane, and 32 lanes to a warp: with many warps, many rows at once."""
    kept = short.ITEMS, short.WARPS, short.THREADS
    given = zip(kept, (items, warps, 0), strict=True)
    short.ITEMS, short.WARPS, short.THREADS = (dict.fromkeys(x, value) for x, value in given)
    yield
    short.ITEMS, short.WARPS, short.THREADS = kept


def check_short_moments() -> None:
    """All problems of a length at once: each row has a k of its own, and neighbours of any kind."""
    _check_moments((1, 8), (3, 2), (8, 8))


def check_short_moments_of_many_lanes() -> None:
    _check_moments((8, 1))


def _check_moments(*shapes: tuple[int, int]) -> None:
    for n, items in shapes:
        problems = [p for p in small() if len(p.logits) == n and (items > 1 or p.k % 3 == 1)]
        logits = torch.stack([p.logits for p in problems]).float()
        k = torch.tensor([p.k for p in problems])
        with shape(items):
            log_partition, marginals, _, _, _, entropy = short.infer(logits, k)
            tilted = short.tilt(logits, k)
            products = []
            for j in range(2):
                v = torch.stack([p.vectors[j] for p in problems]).float()
                products.append(short.covariance_product(tilted, k, v))
        for i, p in enumerate(problems):
            assert (marginals[i] - p.marginals).abs().max() <= TOLERANCE.marginals, p.name
            for value, truth in ((log_partition, p.log_partition), (entropy, p.entropy)):
                assert abs(value[i] - truth) <= TOLERANCE.scalar * (1 + abs(truth)), p.name
            for j in range(2):
                first, second = TOLERANCE.covariance
                spread = (p.vectors[j] - p.vectors[j].mean()).abs().max()
                bound = first * p.products[j].abs().max() + second * spread
                assert (products[j][i] - p.products[j]).abs().max() <= bound, p.name


def check_lengths() -> None:
    """Numbers of items that fill no lane, and of rows that fill no program; items without a choice,
    and scales from equal logits to nearly certain items."""
    generator = torch.Generator().manual_seed(7)
    for n in (2, 7, 9, 16, 17, 33, 64, 65, 127, 128):
        logits = torch.randn(5, n, generator=generator) * torch.tensor([[0.0], [1], [3], [30], [1]])
        logits[3:] += torch.tensor([[1e3], [-60.0]])
        if n > 4:
            logits[1, 2], logits[2, 3], logits[4, 4] = INF, -INF, -1e9
        k = torch.tensor([n // 2, 1, n - 1, n // 3, min(n - 1, 8)])
        v = torch.randn(5, n, generator=generator) + 1000
        log_partition, marginals, _, _, _, entropy = short.infer(logits, k)
        tilted = short.tilt(logits, k)
        product = short.covariance_product(tilted, k, v)
        z, again = short.sample(logits, k, torch.arange(10).reshape(2, 5))
        assert torch.equal(again, tilted)
        assert (z.sum(-1) == k).all()
        assert ((z == 0) | (z == 1)).all()
        assert (z[:, logits == INF] == 1).all()
        assert not z[:, logits == -INF].any()
        for row in range(5):
            free = logits[row].isfinite()
            left = int(k[row] - (logits[row] == INF).sum())
            truth = oracle.LogSpaceDP(logits[row, free].double(), left)
            size = TOLERANCE.scalar * (1 + abs(truth.log_partition()))
            assert abs(log_partition[row] - truth.log_partition()) < size
            assert abs(entropy[row] - truth.entropy()) < TOLERANCE.scalar * (1 + truth.entropy())
            assert (marginals[row, free] - truth.marginals()).abs().max() < TOLERANCE.marginals
            exact = truth.covariance_product(v[row, free].double())
            assert (product[row, free] - exact).abs().max() < 1e-5
            assert not product[row, ~free].any()
        # As a number k gives what it gives as a tensor, and a row what it gives by itself.
        alone = short.sample(logits[1:2], 1, torch.tensor([[1], [6]]))[0]
        assert torch.equal(alone, z[:, 1:2])
        assert torch.equal(short.covariance_product(tilted[1:2], 1, v[1:2]), product[1:2])
        assert torch.equal(short.infer(logits[1:2], 1)[1], marginals[1:2])


def _check_samples(items: int, rounds: int, draws: int) -> None:
    """Against enumeration: items with infinite logits, nearly certain ones, more chosen than not,
    and nothing to choose; the samples of a row stand beside those of others."""
    logits = torch.tensor(
        [
            [0.5, -1.0, 1.5, -INF, 0.2, 0.1],
            [2.0, -1.0, INF, 0.0, -0.5, 3.0],
            [8.0, -6.0, 0.1, 0.3, -0.2, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [1.0, -2.0, 0.5, -1e9, 0.5, 0.0],
        ]
    )
    k = torch.tensor([2, 4, 3, 1, 5])
    generator = torch.Generator().manual_seed(items + rounds)
    seeds = torch.randint(1 << 60, (1, draws * len(k)), generator=generator)
    with shape(items, warps=64 if rounds else 1):
        z = short.sample(logits.repeat(draws, 1), k.repeat(draws), seeds, rounds)[0]
        z = z.reshape(draws, len(k), -1)
        for row in range(len(k)):
            assert p_value(z[:, row], logits[row].double(), int(k[row])) > FALSE_ALARM
        if items == 8:
            for same in (0, 2, 3, 6):  # other states of the table
                z = short.sample(logits[3].repeat(draws, 1), same, seeds[:, :draws], rounds)[0]
                assert (z.sum(-1) == same).all()
                if 0 < same < 6:
                    assert p_value(z[0], logits[3].double(), same) > FALSE_ALARM


def check_short_samples_of_one_leaf() -> None:
    _check_samples(items=8, rounds=1024, draws=3000)


def check_short_samples_of_two_leaves() -> None:
    _check_samples(items=3, rounds=1024, draws=1000)


def check_short_samples_of_many_leaves() -> None:
    _check_samples(items=1, rounds=1024, draws=500)


def check_short_fallback() -> None:
    _check_samples(items=2, rounds=0, draws=20)


def check_items_of_short_samples() -> None:
    """How often each item, and each pair of neighbours, is chosen in rows with many leaves."""
    generator = torch.Generator().manual_seed(8)
    draws = 500
    for n, k in ((20, 10), (64, 8), (128, 70)):
        logits = 1.5 * torch.randn(n, generator=generator)
        seeds = torch.randint(1 << 60, (1, draws), generator=generator)
        with shape(8, warps=128):
            z = short.sample(logits.repeat(draws, 1), k, seeds)[0][0].double()
        assert (z.sum(-1) == k).all()
        truth = oracle.LogSpaceDP(logits.double(), k)
        mu = torch.as_tensor(truth.marginals())
        error = (z.mean(0) - mu) / (mu * (1 - mu) / draws).sqrt()
        assert 0.4 < error.square().mean() < 1.8
        # Var of v z for several v, against the exact covariance.
        for step in (2, 3, 8):
            v = (torch.arange(n) % step == 0).double()
            variance = float(v @ torch.as_tensor(truth.covariance_product(v)))
            found = float((z @ v).var())
            assert abs(found / variance - 1) < 6 * (2 / draws) ** 0.5


def check_bad_short_rows() -> None:
    """Among others, which do not notice."""
    logits = torch.zeros(5, 20)
    logits[0, 11] = torch.nan
    logits[3, :3], logits[4, :19] = INF, -INF
    k = torch.tensor([2, 21, 2, 2, 2])
    z, tilted = short.sample(logits, k, torch.arange(5).unsqueeze(0))
    mu = short.infer(logits, k)[1]
    product = short.covariance_product(tilted, k, logits * 0 + 1)
    for value in (z[0], mu, tilted, product):
        assert value[[0, 1, 3, 4]].isnan().all()
        assert not value[2].isnan().any()
    assert abs(mu[2].sum() - 2) < 1e-5
    assert z[0, 2].sum() == 2


def check_no_short_rows() -> None:
    none = torch.zeros(0, 20)
    z, tilted = short.sample(none, 2, torch.zeros(3, 0).long())
    assert z.shape == (3, 0, 20)
    assert short.covariance_product(tilted, 2, none).shape == (0, 20)
    assert short.infer(none, 2)[1].shape == (0, 20)
    assert short.swap_product(tilted, 2, z, z).shape == (0, 20)
    assert short.tilt(torch.zeros(1, 20), 2).shape == (1, 20)


def check_levels_far_apart_in_short_rows() -> None:
    """More items are chosen than stand on the upper level, and no number tilts the lower one."""
    far = torch.finfo(torch.float32).min
    logits = torch.tensor([[0.0, far, far, 0.0, far, far, far], [0.0, *6 * [-1e30]]])
    k = torch.tensor([3, 2])
    expected = torch.where(logits == 0, 1.0, torch.tensor([[1 / 5], [1 / 6]]))
    for items in (8, 2):
        with shape(items):
            assert (short.infer(logits, k)[1] - expected).abs().max() <= TOLERANCE.marginals
            z, _ = short.sample(logits, k, torch.arange(4).reshape(2, 2))
        assert torch.equal(z.sum(-1), k.float().expand(2, 2))
        assert (z[:, logits == 0] == 1).all()


def check_short_swaps() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = 1.5 * torch.randn(4, 9, generator=generator)
    logits[1, 2], logits[1, 3] = INF, -INF
    for items in (16, 2):
        with shape(items):
            check_swaps_of(short, logits, torch.tensor([2, 8, 9, 0]))
    z = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(1, 2, 4)
    tilted = torch.tensor([[torch.nan] * 4, [0.0] * 4])
    product = short.swap_product(tilted, 2, z, torch.full((1, 2, 4), 7.0))
    assert product[0].isnan().all()
    assert not product[1].any()


if __name__ == "__main__":
    poison()
    for name in sys.argv[1:]:
        globals()[name]()
        print(name)
    assert_fences()
