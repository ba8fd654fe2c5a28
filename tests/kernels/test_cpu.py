"""What only the compiled kernels for CPUs could get wrong. The contract and exactness suites run
them as ``"auto"``."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from problems import INF, TOLERANCES
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.kernels import cpu, random
from ksubset.kernels.cpu.series import powers_for
from ksubset.kernels.spectral import PRECISIONS

SHAPES = [(70, 20, 7), (40, 1000, 10), (40, 1000, 400)]  # in lanes, with replacement, by halves


def everything(logits: Tensor, k: Tensor) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    seeds = torch.randint(1 << 60, (3, len(logits)), generator=generator)
    v = torch.randn(logits.shape, generator=generator)
    drawn, tilted = cpu.sample(logits, k, seeds)
    product = cpu.covariance_product(tilted, k, v)
    sample_and_keep, product_after = cpu.prepare(logits, k, (3, *logits.shape))
    again, kept = sample_and_keep(logits, torch.tensor(7))
    after = product_after(logits, kept, v)
    return [drawn, tilted, cpu.tilt(logits, k), product, again, after, *cpu.infer(logits, k)]


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_results_do_not_depend_on_the_number_of_threads(
    rows: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    monkeypatch.setattr(cpu, "_SHARE", 1)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(everything(logits, counts))
    for one, three in zip(*results, strict=True):
        assert torch.equal(one, three)


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_a_row_does_not_depend_on_its_neighbours(rows: int, n: int, k: int) -> None:
    """Strange ones included: infinite logits, no choice, NaN, logits far from zero."""
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    before = everything(logits, counts)
    logits[1, 2], logits[2, 2], logits[3, 2] = INF, -INF, torch.nan
    logits[4] += 1e6
    counts[5], counts[6], counts[7] = 0, n, n + 1
    after = everything(logits, counts)
    for one, other in zip(before, after, strict=True):
        rows_first = (x.movedim(1, 0) if x.dim() == 3 else x for x in (one, other))
        one, other = (x[8:] for x in rows_first)
        assert torch.equal(one, other)
    for result in after:
        bad = result.movedim(1, 0)[[3, 7]] if result.dim() == 3 else result[[3, 7]]
        assert bad.isnan().all()


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_nothing_is_read_before_it_is_written(
    rows: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    plain = everything(logits, counts)
    empty_like, new_empty = torch.empty_like, Tensor.new_empty
    monkeypatch.setattr(torch, "empty_like", lambda x: empty_like(x).fill_(torch.nan))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **b: new_empty(*a, **b).fill_(torch.nan))
    for one, other in zip(plain, everything(logits, counts), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize(("n", "k"), [(200, 10), (200, 60), (200, 190), (300, 150)])
def test_frequencies_are_the_marginals(n: int, k: int, scale: float) -> None:
    """Of items, and the variance in one direction, where subsets are too many to count."""
    generator = torch.Generator().manual_seed(n + k)
    draws = 40_000
    logits = scale * torch.randn(1, n, generator=generator)
    seeds = torch.randint(1 << 60, (draws, 1), generator=generator)
    z = cpu.sample(logits, torch.tensor([k]), seeds)[0][:, 0].double()
    assert (z.sum(-1) == k).all()
    law = oracle.LogSpaceDP(logits[0].double(), k)
    mu = torch.as_tensor(law.marginals())
    unsure = mu * (1 - mu) > 1e-3
    error = (z.mean(0) - mu)[unsure] / (mu * (1 - mu) / draws)[unsure].sqrt()
    assert error.abs().max() < 5.5
    assert abs(error.square().mean() - 1) < 5 * (2 / len(error)) ** 0.5
    # A direction's variance is what the covariance says.
    v = torch.randn(n, generator=generator).double()
    variance = float(v @ torch.as_tensor(law.covariance_product(v)))
    values = (z - mu) @ v
    assert abs(values.square().mean() / variance - 1) < 5 * (2.5 / draws) ** 0.5


def test_compiled_code_is_found_again(tmp_path: Path) -> None:
    """By the next process; what it compiles for itself it would write too."""
    script = (
        "import torch; from ksubset.kernels import cpu; "
        "cpu.tilt(torch.zeros(1, 5), torch.tensor([2]))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    kept = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)
        kept.append({file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nb?")})
    assert kept[0]
    assert kept[0] == kept[1]


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
    """Also for rows that are not worked on side by side: infinite logits, no choice, NaN."""
    generator = torch.Generator().manual_seed(n)
    k = torch.arange(2 * n + 3) % (n + 1)
    logits, v = torch.randn(2, len(k), n, generator=generator, dtype=dtype)
    logits *= 3
    k[-1] = 1
    logits[-1], logits[-2], logits[-3, 0], logits[0, 0] = -INF, 1e6, torch.nan, -INF
    logits[-1, 1] = INF
    seed = torch.tensor((1 << 62) + n)
    drawn, tilted = cpu.sample(logits, k, random.following(seed, (3, len(k))))
    sample_and_keep, product_after = cpu.prepare(logits, k, tuple(drawn.shape))
    again, kept = sample_and_keep(logits, seed)
    assert kept.dim() == 1
    torch.testing.assert_close(again, drawn, rtol=0, atol=0, equal_nan=True)
    product = cpu.covariance_product(tilted, k, v)
    after = product_after(logits, kept, v)
    tolerance = {torch.float32: 1e-6, torch.float64: 2e-15}[dtype]
    torch.testing.assert_close(after, product, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert after.isnan().any(-1).sum() == 1
    # The coins of one row in place of the next row's.
    moved = product_after(logits, kept.roll(1), v)
    assert (moved - product).abs().nan_to_num().max() > 100 * tolerance


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


@BOTH
def test_as_few_powers_as_their_bound_allows_are_enough(dtype: torch.dtype) -> None:
    """From rows that need three to rows that need more than there may be, against the oracle."""
    generator = torch.Generator().manual_seed(0)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-13}[dtype]
    needed = set()
    for n, k in ((400, 2), (300, 10), (200, 30), (300, 150), (400, 390)):
        for scale in (0.1, 0.5, 1.0, 1.5):
            row = (scale * torch.randn(n, generator=generator)).to(dtype)
            row[0], row[1] = INF, -INF
            counts = torch.tensor([k])
            tilted = cpu.tilt(row.unsqueeze(0), counts)
            p = tilted[tilted.isfinite()].double().sigmoid()
            variance = float((p * (1 - p)).sum())
            decay = PRECISIONS[dtype].decay
            needed.add(powers_for.py_func(float(p.max()), float(p.sum()), variance, decay))
            truth = oracle.LogSpaceDP(row[1:].double()[1:], k - 1)
            v = torch.randn(n, generator=generator).to(dtype)
            product = cpu.covariance_product(tilted, counts, v.unsqueeze(0))[0, 2:]
            exact = truth.covariance_product(v[2:].double())
            assert (product - exact).abs().max() <= tolerance
            assert (
                cpu.infer(row.unsqueeze(0), counts)[1][0, 2:] - truth.marginals()
            ).abs().max() <= tolerance
    # All ways were gone: few powers, many, and none.
    assert min(needed - {0}) <= 5 + 6 * (dtype == torch.float64)
    assert max(needed) >= 15
    assert 0 in needed


def test_the_bound_of_powers_is_not_far_from_what_is_needed() -> None:
    """The logarithm of the characteristic function, in plain numbers."""
    p = torch.full((200,), 0.05, dtype=torch.float64)
    variance = float((p * (1 - p)).sum())
    decay = PRECISIONS[torch.float32].decay
    powers = powers_for.py_func(0.05, float(p.sum()), variance, decay)
    omega = torch.linspace(0, 3, 200, dtype=torch.float64)
    a = torch.exp(1j * omega) - 1
    weight = torch.exp(-2 * variance * torch.sin(omega / 2) ** 2)
    exact = 200 * torch.log(1 + 0.05 * a)

    def error(most: int) -> float:
        series = sum(200 * (-1) ** (m + 1) * (0.05 * a) ** m / m for m in range(1, most + 1))
        return float((weight * (exact - series).abs()).max())

    assert error(powers) < 1e-7
    assert error(powers - 3) > 1e-7


@pytest.mark.parametrize("k", [60, 999_940])
def test_long_rows_of_equal_terms(k: int) -> None:
    """Rounded all the same way when added up one by one; in closed form log C(n, k) + 0.1 k."""
    n = 1_000_000
    row = torch.full((1, n), 0.1, dtype=torch.float64)
    log_partition, *_, entropy = cpu.infer(row, torch.tensor([k]))
    subsets = math.fsum(math.log((n - i) / (i + 1)) for i in range(min(k, n - k)))
    for value, truth in ((entropy, subsets), (log_partition, subsets + 0.1 * k)):
        assert abs(float(value) - truth) <= 1e-12 * (1 + abs(truth))


def test_who_waits_for_the_compiler_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of a kernel, once, and of nothing else that Numba compiles."""
    from numba.core import event

    from ksubset.kernels.cpu import compile as compiling

    for dispatcher in (compiling._KERNELS[0], compiling.part(lambda x: x)):
        with event.trigger_event("numba:compile", data={"dispatcher": dispatcher}):
            pass
    (record,) = caplog.records
    assert record.name == "ksubset"
    assert "compiling tilt for this processor" in record.message


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
