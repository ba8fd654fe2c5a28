"""Rows of up to 64 items, which the kernels for CPUs work on side by side."""

from __future__ import annotations

import math

import pytest
import torch
from problems import INF, TOLERANCES

import ksubset
from ksubset import oracle
from ksubset.kernels import cpu, random
from ksubset.kernels.cpu.short.lanes import KEPT, ODD

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@BOTH
@pytest.mark.parametrize("n", [2, 3, 7, 8, 9, 20, 33, 63, 64])
def test_short_rows_against_the_oracle(n: int, dtype: torch.dtype) -> None:
    """All k side by side, and a last group that is not full."""
    generator = torch.Generator().manual_seed(n)
    k = torch.arange(2 * n + 3) % (n + 1)
    logits = (2 * torch.randn(len(k), n, generator=generator)).to(dtype)
    v = torch.randn(len(k), n, generator=generator).to(dtype)
    tolerance = {torch.float32: 5e-7, torch.float64: 1e-15}[dtype]
    drawn, tilted = cpu.sample(logits, k, torch.randint(1 << 60, (30, len(k)), generator=generator))
    assert torch.equal(drawn.sum(-1), k.to(dtype).expand(30, -1))
    assert ((drawn == 0) | (drawn == 1)).all()
    products = cpu.covariance_product(tilted, k, v)
    shifted = cpu.covariance_product(tilted, k, v + 1000)
    log_partition, marginals, again, _, _, entropy = cpu.infer(logits, k)
    assert torch.equal(again, tilted)
    wrong = []
    for row, count in enumerate(k.tolist()):
        if count in (0, n):
            assert not products[row].any()
            continue
        truth = oracle.LogSpaceDP(logits[row].double(), count)
        exact = torch.as_tensor(truth.covariance_product(v[row].double()))
        assert (products[row] - exact).abs().max() <= tolerance * v[row].abs().max()
        digits = torch.finfo(dtype).eps * 1000
        assert (shifted[row] - exact).abs().max() <= digits
        assert (marginals[row] - truth.marginals()).abs().max() <= tolerance
        for found, value in ((log_partition, truth.log_partition()), (entropy, truth.entropy())):
            assert abs(float(found[row]) - value) <= 5 * tolerance * (1 + abs(value))
        # Of a law with one coin a little off, which the bound would notice.
        logits[row, 0] += 100 * tolerance
        truth = oracle.LogSpaceDP(logits[row].double(), count)
        other = torch.as_tensor(truth.covariance_product(v[row].double()))
        wrong.append(float((products[row] - other).abs().max() / v[row].abs().max()))
    assert max(wrong) > tolerance


@BOTH
@pytest.mark.parametrize("n", [2, 5, 20, 64])
def test_what_a_sample_kept_serves_as_well_as_its_tilted_logits(n: int, dtype: torch.dtype) -> None:
    """Also of infinite logits, and of rows that are not worked on side by side: no choice, NaN."""
    generator = torch.Generator().manual_seed(n)
    k = torch.arange(2 * n + 3) % (n + 1)
    logits, v = torch.randn(2, len(k), n, generator=generator, dtype=dtype)
    logits *= 3
    k[-1] = 1
    logits[-1], logits[-2], logits[-3, 0], logits[0, 0] = -INF, 1e6, torch.nan, -INF
    logits[-1, 1] = INF
    seed = torch.tensor((1 << 62) + n)
    drawn, tilted = cpu.sample(logits, k, random.following(seed, (3, len(k))))
    prepared = cpu.prepare(logits, k, tuple(drawn.shape))
    again, kept = prepared.sample(logits, None, seed)
    assert kept.dim() == 1
    torch.testing.assert_close(again, drawn, rtol=0, atol=0, equal_nan=True)
    product = cpu.covariance_product(tilted, k, v)
    each = v.expand(drawn.shape)
    swapped = cpu.swap_product(tilted, k, drawn, each)
    tolerance = {torch.float32: 1e-6, torch.float64: 2e-15}[dtype]
    for right, after in (
        (product, lambda kept: prepared.covariance_product(lambda: logits, None, kept, v)),
        (swapped, lambda kept: prepared.swap_product(lambda: logits, None, kept, drawn, each)),
    ):
        found = after(kept)
        torch.testing.assert_close(found, right, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert found.isnan().any(-1).sum() == 1
        # The coins of one row in place of the next row's.
        moved = after(kept.roll(1))
        assert (moved - right).abs().nan_to_num().max() > 100 * tolerance


@BOTH
def test_a_bad_vector_is_its_own_row_s_business(dtype: torch.dtype) -> None:
    logits, v = torch.randn(2, 24, 20, dtype=dtype)
    k = torch.full((24,), 10)
    tilted = cpu.tilt(logits, k)
    plain = cpu.covariance_product(tilted, k, v)
    v[3, 5], v[4, 0], v[12] = torch.nan, INF, -INF
    other = cpu.covariance_product(tilted, k, v)
    good = [row for row in range(24) if row not in (3, 4, 12)]
    assert torch.equal(other[good], plain[good])
    assert other[[3, 4, 12]].isnan().any(-1).all()


@BOTH
@pytest.mark.parametrize("rare", [True, False])
def test_rare_choices_have_digits_of_their_own(rare: bool, dtype: torch.dtype) -> None:
    """One of two items, the last decided by its number u < p: seeds with u (or 1 - u) about 1e-6,
    and p a little above and below."""
    seeds = torch.arange(4_000_000)
    # The lower 31 bits of two numbers: digits before the point and behind it.
    before, behind = (random._mix(random.keys(seeds) + i * random._GOLDEN) for i in range(2))
    most = (1 << 31) - 1
    before, behind = (((x if rare else ~x) & most).double() for x in (before, behind))
    share = (before + (behind + 0.5) * 2.0**-31) * 2.0**-31
    few = share < 5e-6
    assert few.sum() > 5
    seeds, share = seeds[few].unsqueeze(0), share[few]
    margin = {torch.float32: 5e-6, torch.float64: 1e-11}[dtype]
    k = torch.ones(len(share), dtype=torch.int64)
    for side in (-1, 1):
        p = share * (1 + side * margin)
        logits = torch.zeros(len(share), 2, dtype=dtype)
        logits[:, 1] = (p.log() - torch.log1p(-p)) * (1 if rare else -1)
        chosen = cpu.sample(logits, k, seeds)[0][0, :, 1] == 1
        assert (chosen == ((side > 0) == rare)).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("certain", [8.0, 14.0, 20.0, -8.0, -20.0])
def test_products_of_nearly_certain_items_have_all_digits(
    certain: float, dtype: torch.dtype, tolerance: float
) -> None:
    """Wherever they stand: relative to themselves, not to the largest of the row."""
    others = torch.tensor([0.0, 0.5, -0.5, 1.0, -1.0, 0.2])
    for n in (6, 7):
        for place in range(n):
            logits = others[: n - 1].tolist()
            logits.insert(place, certain)
            x = torch.tensor(logits, dtype=torch.float64)
            v = torch.linspace(-1, 2, n, dtype=torch.float64).roll(place)
            for k in range(2, n - 1):
                found = cpu.covariance_product(
                    cpu.tilt(x.to(dtype).unsqueeze(0), torch.tensor([k])),
                    torch.tensor([k]),
                    v.to(dtype).unsqueeze(0),
                )
                right = oracle.covariance(x.to(dtype).double(), k) @ v.to(dtype).double()
                off = (found[0].double() - right).abs() / right.abs()
                assert off[place] < tolerance


@BOTH
@pytest.mark.parametrize("n", [6, 7, 20])
def test_small_marginals_have_all_digits(n: int, dtype: torch.dtype) -> None:
    """Also beyond where coins of short rows are all alike, and of rows that leave few items out."""
    generator = torch.Generator().manual_seed(n)
    digits = 100 * torch.finfo(dtype).eps
    for rare in (-10.0, -30.0, -75.0, -82.0):
        k = torch.arange(1, n - 1)
        logits = torch.randn(len(k), n, generator=generator).to(dtype)
        logits[:, 1] = rare
        marginals = cpu.infer(logits, k)[1].double()
        for row, count in enumerate(k.tolist()):
            truth = oracle.LogSpaceDP(logits[row].double(), count).marginals()
            assert abs(marginals[row, 1] / truth[1] - 1) < digits * abs(rare)


@BOTH
def test_short_rows_far_from_zero(dtype: torch.dtype) -> None:
    """Where a shift has no room for the digits that matter."""
    tolerance = TOLERANCES[dtype]
    generator = torch.Generator().manual_seed(0)
    for offset in (1e5, -1e6, 1e8):
        for spread in (0.0, 2.0):
            k = torch.tensor([3, 32, 50])
            logits = (offset + spread * torch.randn(3, 64, generator=generator)).to(dtype)
            _, marginals, _, _, _, entropy = cpu.infer(logits, k)
            for row, count in enumerate(k.tolist()):
                truth = oracle.LogSpaceDP(logits[row].double() - offset, count)
                assert (marginals[row] - truth.marginals()).abs().max() <= tolerance.marginals
                bound = tolerance.scalar * (1 + truth.entropy())
                assert abs(float(entropy[row]) - truth.entropy()) <= bound


@BOTH
def test_a_tilt_that_has_not_converged_is_not_used(dtype: torch.dtype) -> None:
    """Two levels of logits; by what needs the tilt to be near: third cumulants."""
    x = torch.zeros(64, dtype=dtype)
    x[47:] = -66
    u = torch.linspace(-1, 1, 64, dtype=dtype)
    results = []
    for method, row in (("auto", x), ("dp", x.double())):
        row = row.clone().requires_grad_()
        v = u.to(row)
        mu = ksubset.marginals(row, 3, method=method)
        (first,) = torch.autograd.grad(mu, row, v, create_graph=True)
        results.append(torch.autograd.grad(first, row, v.flip(-1) ** 2)[0])
    assert (results[0] - results[1]).abs().max() <= 2 * TOLERANCES[dtype].marginals


def test_logarithms_do_not_show_how_many_terms_they_are_of() -> None:
    """Equal terms are all rounded the same way."""
    row = torch.full((63,), -1.2934246063232422)
    truth = oracle.LogSpaceDP(row.double(), 32).log_partition()
    assert abs(float(ksubset.log_partition(row, 32)) - truth) < 1e-6
    row = torch.tensor([-9.1355619430542] * 2 + [12.402650833129883] * 54)
    log_prob = ksubset.log_prob(row, 54, ksubset.mode(row, 54))
    truth = -math.log1p(108 * math.exp(float(row[0].double() - row[2].double())))
    assert abs(float(log_prob) / truth - 1) < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [-1001.0, -1000.0, -995.0, 300.0, 1000.0])
def test_the_item_that_makes_pairs_is_no_coin(offset: float, dtype: torch.dtype) -> None:
    """However far a row of an odd number of items is shifted."""
    for k in (1, 2):
        logits = torch.full((9, 3), offset, dtype=dtype, requires_grad=True)
        ksubset.simple(logits, k).backward(torch.tensor([1.0, 0.0, 0.0], dtype=dtype).expand(9, 3))
        expected = torch.tensor([2 / 9, -1 / 9, -1 / 9], dtype=dtype).expand(9, 3)
        assert logits.grad is not None
        assert torch.allclose(logits.grad, expected, atol=1e-6)


@BOTH
@pytest.mark.parametrize("n", [3, 8, 21, 64])
def test_items_with_infinite_logits_are_no_coins(n: int, dtype: torch.dtype) -> None:
    """Rows with some, between rows with none, side by side: the law of the others."""
    generator = torch.Generator().manual_seed(n)
    rows = 45
    logits, v = (2 * torch.randn(2, rows, n, generator=generator)).to(dtype)
    place = torch.rand(rows, n, generator=generator)
    place[place.argsort(-1).argsort(-1) < 2] = 0.5  # two at least are free
    place[::3] = 0.5
    logits[place < 0.3], logits[place > 0.8] = -INF, INF
    free, forced = logits.isfinite(), (logits == INF).sum(-1)
    k = forced + 1 + (torch.rand(rows, generator=generator) * (free.sum(-1) - 1)).long()
    seed = torch.tensor(n)
    drawn, tilted = cpu.sample(logits, k, random.following(seed, (400, rows)))
    assert torch.equal(drawn.sum(-1), k.to(dtype).expand(400, -1))
    for found in (drawn[0], cpu.infer(logits, k)[1]):
        assert torch.equal(found[~free], (logits[~free] > 0).to(dtype))
    for found in (tilted, cpu.tilt(logits, k), cpu.infer(logits, k)[2]):
        assert torch.equal(found[~free], logits[~free])
    prepared = cpu.prepare(logits, k, tuple(drawn.shape))
    again, kept = prepared.sample(logits, None, seed)
    assert torch.equal(again, drawn)
    lanes = 32 // dtype.itemsize
    odd = kept.reshape(-1, n + n % 2 + KEPT, lanes)[:, n + n % 2 + ODD]
    assert not odd.any()  # nothing is left to others
    log_partition, marginals, _, _, _, entropy = cpu.infer(logits, k)
    tolerance = {torch.float32: 5e-7, torch.float64: 1e-15}[dtype]
    scores = []
    for row in range(rows):
        here = free[row]
        truth = oracle.LogSpaceDP(logits[row, here].double(), int(k[row] - forced[row]))
        exact = torch.zeros(n, dtype=torch.float64)
        exact[here] = torch.as_tensor(truth.covariance_product(v[row, here].double()))
        for product in (
            cpu.covariance_product(tilted, k, v),
            prepared.covariance_product(lambda: logits, None, kept, v),
        ):
            assert (product[row] - exact).abs().max() <= tolerance * v[row].abs().max()
            assert not product[row, ~here].any()
        mu = torch.as_tensor(truth.marginals())
        assert (marginals[row, here] - mu).abs().max() <= tolerance
        for found, value in ((log_partition, truth.log_partition()), (entropy, truth.entropy())):
            assert abs(float(found[row]) - value) <= 5 * tolerance * (1 + abs(value))
        spread = (mu * (1 - mu)).clamp(min=1e-3) / 400
        scores.append((drawn[:, row, here].double().mean(0) - mu) / spread.sqrt())
    assert torch.cat(scores).abs().max() < 5.5


@BOTH
@pytest.mark.parametrize("low", [-2500.0, -1e4, -1e9, None])
def test_logits_far_below_the_others_are_as_good_as_infinite(
    low: float | None, dtype: torch.dtype
) -> None:
    """As written by who has no masks: the same samples, and all else."""
    generator = torch.Generator().manual_seed(0)
    rows, n, seed = 45, 21, torch.tensor(3)
    free = torch.rand(rows, n, generator=generator) < 0.7
    free[:, :2] = True
    logits, v = torch.randn(2, rows, n, generator=generator).to(dtype)
    k = 1 + (torch.rand(rows, generator=generator) * (free.sum(-1) - 1)).long()
    results = []
    for outside in (torch.finfo(dtype).min if low is None else low, -INF):
        there = logits.masked_fill(~free, outside)
        drawn, tilted = cpu.sample(there, k, random.following(seed, (5, rows)))
        prepared = cpu.prepare(there, k, tuple(drawn.shape))
        again, kept = prepared.sample(there, None, seed)
        lanes = 32 // dtype.itemsize
        assert not kept.reshape(-1, n + 1 + KEPT, lanes)[:, n + 1 + ODD].any()
        products = (
            cpu.covariance_product(tilted, k, v),
            prepared.covariance_product(there.detach, None, kept, v),
            cpu.swap_product(tilted, k, drawn, v.expand(drawn.shape)),
            prepared.swap_product(there.detach, None, kept, drawn, v.expand(drawn.shape)),
        )
        assert torch.equal(tilted[~free].isfinite(), there[~free].isfinite())
        log_partition, mu, _, log_mass, shift, entropy = cpu.infer(there, k)
        results.append((drawn, again, *products, log_partition, mu, log_mass, shift, entropy))
    for finite, infinite in zip(*results, strict=True):
        assert torch.equal(finite, infinite)


@BOTH
@pytest.mark.parametrize(("high", "low"), [(990.0, -1015.0), (505.0, -505.0), (1023.0, -980.0)])
def test_far_logits_are_far_beside_any_row(high: float, low: float, dtype: torch.dtype) -> None:
    row = torch.tensor([5 * [high] + 5 * [low]], dtype=dtype)
    seeds = torch.arange(200).unsqueeze(-1).expand(200, 2).contiguous()
    for k in range(1, 6):
        counts, results = torch.tensor([k, 3]), []
        for other in (0.0, -INF):
            logits = torch.cat([row, torch.zeros(1, 10, dtype=dtype)])
            logits[1, 0] = other
            drawn, tilted = cpu.sample(logits, counts, seeds)
            product = cpu.covariance_product(tilted, counts, logits)
            results.append((drawn[:, 0], *(x[0] for x in (product, *cpu.infer(logits, counts)))))
        for left, right in zip(*results, strict=True):
            assert torch.equal(left, right)


@BOTH
@pytest.mark.parametrize("offset", [0.0, 500.0, 2e6])
def test_logits_that_only_seem_to_be_as_good_as_infinite(offset: float, dtype: torch.dtype) -> None:
    """Too close to those that are not, or too many of them are chosen."""
    for row, counts in (
        ((0.0, -500.0, -1999.0, -2001.0, 1.0), (1, 2, 3, 4)),
        ((0.0, -999.0, -1001.0, -9000.0, -9001.0), (1, 2, 3, 4)),
        ((0.0, 1.0, -5000.0, -5001.0, -5000.5), (1, 2, 3, 4)),
        ((INF, 1.0, 2.0, -5000.0, -5001.0), (1, 2, 3, 4)),
        ((0.0, 0.0, -1e4, -1e4, -INF), (1, 2, 3)),
    ):
        logits = offset + torch.tensor([row] * len(counts), dtype=dtype)
        k = torch.tensor(counts)
        truth = ksubset.marginals((logits - offset).double(), k, method="dp")
        found = ksubset.marginals(logits, k)
        digits = 10 * torch.finfo(dtype).eps * (1 + offset)
        assert (found - truth).abs().max() <= digits
        z = ksubset.sample(logits, k, (200,))
        assert torch.equal(z.sum(-1), k.to(dtype).expand(200, -1))
        spread = (truth * (1 - truth) / 200).sqrt()
        assert ((z.double().mean(0) - truth).abs() <= 5 * spread + digits).all()


@BOTH
@pytest.mark.parametrize("shape", [(30, 20), (20,), (1, 20), (30, 1)])
def test_a_mask_is_part_of_the_logits(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(shape, generator=generator) < 0.7
    mask = mask | (shape[-1] == 1)
    logits = torch.randn(30, 20, generator=generator, dtype=dtype)
    logits[:, 5] = torch.where(mask.expand(30, 20)[:, 5], logits[:, 5], torch.nan)
    v = torch.randn(30, 20, generator=generator, dtype=dtype)
    found = []
    for method, given in (
        ({"mask": mask}, logits),
        ({}, torch.where(mask, logits, -INF)),
    ):
        x = given.clone().requires_grad_()
        torch.manual_seed(7)
        z = ksubset.simple(x, 4, (3,), **method)
        (gradient,) = torch.autograd.grad((z * v).sum(), x)
        found.append((z.detach(), gradient))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not found[0][1][~mask.expand(30, 20)].any()
    with pytest.raises(ValueError, match="number of allowed items, 0, got 4 in row"):
        ksubset.simple(logits, 4, mask=torch.zeros_like(mask))
