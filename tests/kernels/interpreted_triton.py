"""Run by test_triton.py with TRITON_INTERPRET=1 and the names of some of the checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from problems import INF, TOLERANCES, product_plan, small
from test_exactness import FALSE_ALARM, p_value, p_value_of_part

from ksubset import oracle
from ksubset.kernels.cpu.series import powers_for
from ksubset.kernels.cuda import long, moments, rows
from ksubset.kernels.cuda.long import sampling
from ksubset.kernels.cuda.long.sampling import accept

TOLERANCE = TOLERANCES[torch.float32]


_FENCE = 64
_made: list[torch.Tensor] = []


def poison() -> None:
    """What is not written yet is NaN, and so is what lies before and behind it."""
    plain = torch.Tensor.new_empty

    def new_empty(like: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
        shape = torch.Size(sizes if isinstance(sizes[0], int) else sizes[0])
        dtype = options.get("dtype", like.dtype)
        if not (dtype.is_floating_point and shape.numel()):  # the interpreter's own
            return plain(like, shape, **options)
        fenced = plain(like, shape.numel() + 2 * _FENCE, **options).fill_(torch.nan)
        _made.append(fenced)
        return fenced[_FENCE : fenced.numel() - _FENCE].view(shape)

    torch.Tensor.new_empty = new_empty  # type: ignore[assignment]


def assert_fences() -> None:
    """Nobody wrote outside of what was made for them."""
    assert _made
    for fenced in _made:
        assert fenced[:_FENCE].isnan().all()
        assert fenced[-_FENCE:].isnan().all()


def check_moments() -> None:
    names = ("scale 1.0", "scale 30.0, -60", "ties", "forbidden", "forced", "both", "equal")
    for n in (1, 3, 8):
        problems = [
            p for p in small() if len(p.logits) == n and p.name.endswith(names) and p.k % 2 != n % 3
        ]
        logits = torch.stack([p.logits for p in problems]).float()
        k = torch.tensor([p.k for p in problems])
        log_partition, marginals, _, _, _, entropy = rows.infer(logits, k)
        for j in range(2):
            v = torch.stack([p.vectors[j] for p in problems]).float()
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


@contextmanager
def without(name: str) -> Iterator[None]:
    """Without a function of moments.py: a row that needs it fails."""
    function = getattr(moments, name)
    setattr(moments, name, None)
    yield
    setattr(moments, name, function)


def check_power_sums() -> None:
    """Light coins and many go by power sums, few and heavy ones node by node."""
    generator = torch.Generator().manual_seed(7)
    cases = (
        (90, 3, 0.2, "_over_nodes"),
        (300, 135, 0.1, "_over_nodes"),  # some likely show heads
        (60, 8, 1.5, "_from_power_sums"),
    )
    for n, count, scale, unused in cases:
        logits = scale * torch.randn(2, n, generator=generator)
        logits[1, 3], logits[1, 5] = INF, -INF
        k = torch.tensor([count, count + 1])
        v = torch.randn(2, n, generator=generator) + 1000
        with without(unused):
            log_partition, marginals, tilted, _, _, entropy = rows.infer(logits, k)
            product = rows.covariance_product(tilted, k, v)
            if n < 100:
                check_swaps_of(rows, logits, k)
        for row in range(2):
            free = logits[row].isfinite()
            truth = oracle.LogSpaceDP(logits[row, free].double(), count)
            for value, exact in (
                (log_partition, truth.log_partition()), (entropy, truth.entropy()),
            ):  # fmt: skip
                assert abs(value[row] - exact) <= TOLERANCE.scalar * (1 + abs(exact))
            error = (marginals[row, free] - truth.marginals()).abs().max()
            assert error <= TOLERANCE.marginals
            exact = truth.covariance_product(v[row, free].double())
            first, second = TOLERANCE.covariance
            bound = first * exact.abs().max() + second * (v[row] - v[row].mean()).abs().max()
            assert (product[row, free] - exact).abs().max() <= bound


def _check_samples(logits: torch.Tensor, k: torch.Tensor, rounds: int, draws: int) -> None:
    """Few draws: the interpreter takes milliseconds for each. On CUDA there are millions."""
    seeds = torch.randint(1 << 60, (draws, len(k)), generator=torch.Generator().manual_seed(1))
    z, _ = rows.sample(logits, k, seeds, rounds)
    for row in range(len(k)):
        assert p_value(z[:, row], logits[row].double(), int(k[row])) > FALSE_ALARM


SAMPLED = torch.tensor([[0.5, -1.0, 1.5, -INF], [2.0, -1.0, INF, 0.0]])


def check_samples_without_an_item() -> None:
    _check_samples(SAMPLED[:1], torch.tensor([1]), rounds=1024, draws=300)


def check_samples_with_an_item() -> None:
    _check_samples(SAMPLED[1:], torch.tensor([2]), rounds=1024, draws=300)


def check_fallback_of_samples() -> None:
    """Two rows at once, with a k each."""
    _check_samples(SAMPLED, torch.tensor([1, 2]), rounds=0, draws=60)


def check_bad_rows() -> None:
    logits = torch.zeros(3, 5)
    logits[0, 1] = torch.nan
    k = torch.tensor([2, 6, 2])
    z, _ = rows.sample(logits, k, torch.arange(3).unsqueeze(0))
    mu = rows.infer(logits, k)[1]
    for value in (z[0], mu):
        assert value[:2].isnan().all()
        assert abs(value[2].sum() - 2) < 1e-5


def check_long_samples() -> None:
    """Draws with replacement, halves, and their fallback, by the frequencies of items."""
    generator = torch.Generator().manual_seed(1)
    for n, k, draws in ((100, 5, 40), (200, 100, 10)):
        logits = torch.randn(1, n, generator=generator)
        seeds = torch.randint(1 << 60, (draws, 1), generator=generator)
        z, _ = rows.sample(logits, torch.tensor([k]), seeds)
        assert (z.sum(-1) == k).all()
        assert ((z == 0) | (z == 1)).all()
        mu = torch.as_tensor(oracle.LogSpaceDP(logits[0].double(), k).marginals())
        error = (z[:, 0].double().mean(0) - mu) / (mu * (1 - mu) / draws).sqrt()
        assert 0.6 < error.square().mean() < 1.5


@contextmanager
def small_leaves() -> Iterator[None]:
    """Leaves of two items, so that a short row has many of them."""
    items, rows.ITEMS = rows.ITEMS, 2
    yield
    rows.ITEMS = items


def _logits_of_leaves(n: int) -> torch.Tensor:
    return 0.3 * torch.randn(1, n, generator=torch.Generator().manual_seed(n))


def _check_half_of_leaves(n: int, k: int, draws: slice) -> None:
    """Half of the draws of one check, to half the digits of its threshold: a difference that all of
    them would show, one half does."""
    seeds = torch.randint(1 << 60, (300, 1), generator=torch.Generator().manual_seed(3))
    logits = _logits_of_leaves(n)
    with small_leaves():
        z, _ = rows.sample(logits, k, seeds[draws])
    assert (z.sum(-1) == k).all()
    for leaves in (4, 8):  # of eight items, those of one leaf, and every one
        for j in range(leaves):
            part = torch.arange(n) % leaves == j
            assert p_value_of_part(z[:, 0], logits[0].double(), k, part) > FALSE_ALARM**0.5


def check_first_leaves_of_8() -> None:
    _check_half_of_leaves(8, 4, slice(0, 150))


def check_last_leaves_of_8() -> None:
    _check_half_of_leaves(8, 4, slice(150, 300))


def check_first_leaves_of_30() -> None:
    _check_half_of_leaves(30, 14, slice(0, 150))


def check_last_leaves_of_30() -> None:
    _check_half_of_leaves(30, 14, slice(150, 300))


def check_leaves_without_a_choice() -> None:
    logits = _logits_of_leaves(30)
    logits[0, :8], logits[0, 29] = INF, -INF
    with small_leaves():
        z, _ = rows.sample(logits, 14, torch.arange(5).unsqueeze(1))
    assert (z.sum(-1) == 14).all()
    assert (z[:, 0, :8] == 1).all()
    assert not z[:, 0, 29].any()


def check_fallback_of_wide_rows() -> None:
    """Whose nodes are placed anew on the way."""
    z, _ = rows.sample(torch.zeros(1, 340), 170, torch.tensor([[5], [6]]), 0)
    assert (z.sum(-1) == 170).all()
    for part in (z[..., -85:], z[..., -170:]):
        size = part.shape[-1]
        spread = (size * (340 - size) / (4 * 340)) ** 0.5
        assert ((part.sum(-1) - size / 2).abs() < 5 * spread).all()


def check_many_draws() -> None:
    """As many draws with replacement as a try takes side by side, and more."""
    k = torch.tensor([64, 65, 128, 140])
    z, _ = rows.sample(torch.zeros(4, 4096), k, torch.arange(4).unsqueeze(0))
    assert torch.equal(z[0].sum(-1), k.float())
    z, _ = long.sample(torch.zeros(1, 9000), torch.tensor([200]), torch.zeros(1, 1).long())
    assert int(z.sum()) == int((z == 1).sum()) == 200


def small_tiles() -> None:
    """Tiles of four items, with which rows of forty are long ones, and leaves of two."""
    long.MOMENTS = long.Shape(tile=4, wide=4, warps=1)
    long.SAMPLES, long.ITEMS = long.Shape(tile=4, wide=2, warps=1), 2


def check_long_rows() -> None:
    """The lighter ones among them are served by power sums."""
    small_tiles()
    generator = torch.Generator().manual_seed(2)
    for n, scale, counts in ((40, 1.5, (31, 8)), (80, 0.1, (3, 4))):
        logits = scale * torch.randn(2, n, generator=generator)
        logits[1, 3], logits[1, 5] = INF, -INF
        k = torch.tensor(counts)
        log_partition, marginals, _, _, _, entropy = long.infer(logits, k)
        v = torch.randn(2, n, generator=generator) + 1000
        product = long.covariance_product(long.tilt(logits, k), k, v)
        for row in range(2):
            free = logits[row].isfinite()
            truth = oracle.LogSpaceDP(logits[row, free].double(), counts[row] - row)
            mu = truth.marginals()
            mean, variance = float(mu.sum()), float((mu * (1 - mu)).sum())
            powers = powers_for.py_func(float(mu.max()), mean, variance, 16.0)
            assert (0 < powers < 8) == (scale < 1)
            assert abs(log_partition[row] - truth.log_partition()) < 1e-5
            assert abs(entropy[row] - truth.entropy()) < 1e-5
            assert (marginals[row, free] - mu).abs().max() < TOLERANCE.marginals
            exact = truth.covariance_product(v[row, free].double())
            assert (product[row, free] - exact).abs().max() < 1e-5
        if scale > 1:
            z, _ = long.sample(logits, k, torch.arange(12).reshape(6, 2))
            assert (z.sum(-1) == k).all()
            assert ((z == 0) | (z == 1)).all()
            assert (z[:, 1, 3] == 1).all()
            assert (z[:, 1, 5] == 0).all()


def check_swaps_of(kernels: Any, logits: torch.Tensor, k: torch.Tensor) -> None:
    """Two samples added up, and one, with large gradients, infinite for items without a choice."""
    seeds = torch.arange(2 * len(k)).reshape(2, -1)
    generator = torch.Generator().manual_seed(4)
    tilted = kernels.tilt(logits, k)
    z = kernels.sample(logits, k, seeds)[0]
    v = torch.randn(z.shape, generator=generator) + 1000
    v[:, logits.isinf()] = INF
    both, first = (
        kernels.swap_product(tilted, k, z, v),
        kernels.swap_product(tilted, k, z[:1], v[:1]),
    )
    for row in range(len(k)):
        free = logits[row].isfinite()
        mu = (logits[row] == INF).double()
        count = int(k[row]) - int(mu.sum())
        mu[free] = oracle.LogSpaceDP(logits[row, free].double(), count).marginals()
        finite = torch.where(logits[row].isinf(), 0, v[:, row]).double()
        truths = [product_plan(mu, z[s, row].double(), finite[s]) for s in range(2)]
        first_truth, both_truth = truths[0], truths[0] + truths[1]
        for found, truth in ((first, first_truth), (both, both_truth)):
            assert (found[row] - truth).abs().max() < 2e-5 * (1 + truth.abs().max())


def check_swaps() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = 1.5 * torch.randn(4, 9, generator=generator)
    logits[1, 2], logits[1, 3] = INF, -INF
    check_swaps_of(rows, logits, torch.tensor([2, 8, 9, 0]))
    z = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(1, 2, 4)
    tilted = torch.tensor([[torch.nan] * 4, [0.0] * 4])
    product = rows.swap_product(tilted, 2, z, torch.full((1, 2, 4), 7.0))
    assert product[0].isnan().all()
    assert not product[1].any()


def check_swaps_of_long_rows() -> None:
    small_tiles()
    generator = torch.Generator().manual_seed(6)
    # By nodes, and by power sums
    for n, scale, counts, served in ((20, 1.5, (8, 3), False), (90, 0.2, (3, 4), True)):
        logits = scale * torch.randn(2, n, generator=generator)
        logits[1, 3], logits[1, 5] = INF, -INF
        check_swaps_of(long, logits, torch.tensor(counts))
        mu = oracle.LogSpaceDP(logits[0].double(), counts[0]).marginals()
        powers = powers_for.py_func(*(float(x) for x in (mu.max(), mu.sum(), mu @ (1 - mu))), 16.0)
        assert (0 < powers < 8) == served


def _check_long_samples(logits: torch.Tensor, k: int, draws: int, parts: list[slice]) -> None:
    seeds = torch.randint(1 << 60, (draws, 1), generator=torch.Generator().manual_seed(2))
    z, _ = long.sample(logits, k, seeds)
    assert (z.sum(-1) == k).all()
    for part in parts:
        chosen = torch.zeros(logits.shape[-1], dtype=torch.bool)
        chosen[part] = True
        assert p_value_of_part(z[:, 0], logits[0].double(), k, chosen) > FALSE_ALARM**0.5


def check_samples_of_chunks() -> None:
    """Three chunks of four items, of which one accepts what the others leave it."""
    small_tiles()
    long.SAMPLES = long.Shape(tile=2, wide=2, warps=1)
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(8))
    _check_long_samples(logits, 5, 60, [slice(4 * i, 4 * i + 4) for i in range(3)])


def check_samples_of_units() -> None:
    """Units of two chunks, and then one; not all of the last chunk is there."""
    small_tiles()
    long.SAMPLES, long.MOST = long.Shape(tile=2, wide=1, warps=1), 2
    assert [unit for _, unit, _ in long._levels(6, 1)] == [2, 1]
    logits = torch.randn(1, 11, generator=torch.Generator().manual_seed(9))
    _check_long_samples(logits, 4, 24, [slice(0, 4), slice(4, 8), slice(8, 11)])


def check_samples_of_light_chunks() -> None:
    """The one that accepts knows its chances from power sums."""
    small_tiles()
    long.SAMPLES, long.ITEMS = long.Shape(tile=16, wide=4, warps=1), 8
    logits = 0.2 * torch.randn(1, 150, generator=torch.Generator().manual_seed(9))
    by_nodes, sampling.spectrum = sampling.spectrum, None
    _check_long_samples(logits, 6, 20, [slice(0, 64), slice(64, 128), slice(100, 150)])
    sampling.spectrum = by_nodes


def check_levels_far_apart() -> None:
    """More items are chosen than stand on the upper level, and no number tilts the lower one."""
    small_tiles()
    far = torch.finfo(torch.float32).min
    logits = torch.tensor([[0.0, far, far, 0.0, far, far, far], [0.0, *6 * [-1e30]]])
    k = torch.tensor([3, 2])
    expected = torch.where(logits == 0, 1.0, torch.tensor([[1 / 5], [1 / 6]]))
    for kernels in (rows, long):
        assert (kernels.infer(logits, k)[1] - expected).abs().max() <= TOLERANCE.marginals
        z, _ = kernels.sample(logits, k, torch.arange(4).reshape(2, 2))
        assert torch.equal(z.sum(-1), k.float().expand(2, 2))
        assert (z[:, logits == 0] == 1).all()


def check_one_k_for_all_rows() -> None:
    """As a number, it gives what it gives as a tensor."""
    small_tiles()
    logits = torch.randn(2, 20, generator=torch.Generator().manual_seed(4))
    seeds = torch.arange(2).unsqueeze(0)
    for kernels in (rows, long):
        for k in (1, 16):  # which Triton would make a constant, or a multiple of 16
            z, tilted = kernels.sample(logits, k, seeds)
            assert (z.sum(-1) == k).all()
            counts = torch.full((2,), k)
            again = (*kernels.sample(logits, counts, seeds), kernels.tilt(logits, k))
            for left, right in zip((z, tilted, tilted), again, strict=True):
                assert torch.equal(left, right)
        product, marginals = (kernels.covariance_product, kernels.infer)
        assert torch.equal(product(tilted, 16, logits), product(tilted, counts, logits))
        assert torch.equal(marginals(logits, 16)[1], marginals(logits, counts)[1])


@triton.jit
def _fail(tilted, place, k, key, n, NODES: tl.constexpr):  # noqa: N803
    tl.store(place, float("nan"))


def check_no_choice_left() -> None:
    """Long rows of which all items that are allowed have to be chosen, or none: without the
    fallback, which goes item by item."""
    small_tiles()
    logits = torch.randn(4, 20, generator=torch.Generator().manual_seed(5))
    logits[1, ::3], logits[2, 4], logits[3, 1:3] = -INF, INF, INF
    k = torch.tensor([20, 13, 20, 2])
    fallback, sampling.one_by_one = sampling.one_by_one, _fail
    z, _ = long.sample(logits, k, torch.arange(8).reshape(2, 4))
    sampling.one_by_one = fallback
    assert torch.equal(z[0], z[1])
    assert torch.equal(z[0, :3], (logits[:3] > -INF).float())
    assert torch.equal(z[0, 3], (logits[3] == INF).float())


@triton.jit
def _accept(heads, real, imag, keys, taken):
    """Four coins of which two are counted from, N = 5, and three heads to show with the others."""
    lane, node = tl.arange(0, 4), tl.arange(0, 4)
    number = tl.full([], 5.0, tl.float64)
    which = accept(
        number - 4 - tl.load(heads + lane), number * 0, number - 7, number - 1,
        tl.load(real + node), tl.load(imag + node), number,
        tl.load(keys + tl.program_id(0)), tl.program_id(0) * 0, lane >= 0, 4, 4,
    )  # fmt: skip
    tl.store(taken + tl.program_id(0), which)


def check_impossible_counts() -> None:
    """Four coins cannot show -1 heads, nor 5, though these are aliases of 4 and 0."""
    likely = torch.tensor([0.5, 0.5, 0.5, 0.5], dtype=torch.float64)
    omega = 2 * torch.pi * torch.arange(4, dtype=torch.float64) / 5
    phi = (1 - likely + likely * torch.exp(1j * omega)[:, None]).prod(-1) * torch.exp(-2j * omega)
    phi = phi * torch.tensor([1, 2, 2, 0])
    taken = torch.zeros(60, dtype=torch.int32)
    for shown, possible in (((4, 4, -2, -2), ()), ((4, -1, 3, -2), (1, 2))):
        heads = torch.tensor(shown, dtype=torch.float64)
        _accept[(60,)](heads, phi.real.contiguous(), phi.imag.contiguous(), torch.arange(60), taken)
        assert set(taken.tolist()) == {*possible, 4}


if __name__ == "__main__":
    poison()
    for name in sys.argv[1:]:
        globals()[name]()
        print(name)
    assert_fences()
