"""What only the compiled kernels for CPUs could get wrong. The contract and exactness suites run
them as ``"auto"``."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from problems import INF
from test_exactness import FALSE_ALARM, p_value
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.kernels import cpu
from ksubset.kernels.cpu import left, openmp
from ksubset.kernels.cpu import threads as sharing
from ksubset.kernels.cpu.rows import LEFT, TRIED
from ksubset.kernels.cpu.series import powers_for
from ksubset.kernels.spectral import PRECISIONS

SHAPES = [(70, 20, 7), (40, 1000, 10), (40, 1000, 400)]  # in lanes, with replacement, tossed


def everything(logits: Tensor, k: Tensor) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    seeds = torch.randint(1 << 60, (3, len(logits)), generator=generator)
    v = torch.randn(logits.shape, generator=generator)
    drawn, tilted = cpu.sample(logits, k, seeds)
    product = cpu.covariance_product(tilted, k, v)
    swapped = cpu.swap_product(tilted, k, drawn, drawn + v)
    prepared = cpu.prepare(logits, k, (3, *logits.shape))
    again, kept = prepared.sample(logits, None, torch.tensor(7))
    after = prepared.covariance_product(lambda: logits, None, kept, v)
    swapped_after = prepared.swap_product(lambda: logits, None, kept, drawn, drawn + v)
    products = [product, after, swapped, swapped_after]
    return [drawn, tilted, cpu.tilt(logits, k), again, *products, *cpu.infer(logits, k)]


TEAMS = pytest.mark.parametrize("team", ["torch's", "ours"])


def share_among(threads: int, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do."""
    monkeypatch.setattr(sharing, "_SHARE", 1)
    monkeypatch.setattr(sharing, "_ENOUGH", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if team == "ours":
        monkeypatch.setattr(openmp, "share", lambda *_: None)
    elif openmp._parallel() is None:
        pytest.skip("torch has no team of OpenMP's threads here")


@TEAMS
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_results_do_not_depend_on_the_number_of_threads(
    rows: int, n: int, k: int, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, counts = torch.randn(rows, n), torch.full((rows,), k)
    counts[rows // 2] = n + 1  # left by all
    results = []
    for threads in (1, 3):
        share_among(threads, team, monkeypatch)
        results.append(everything(logits, counts))
    for one, three in zip(*results, strict=True):
        torch.testing.assert_close(one, three, rtol=0, atol=0, equal_nan=True)


@TEAMS
def test_several_python_threads_at_once(team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with rows of its own, of which some are left to the next kernel."""
    problems = [(torch.randn(40, n), torch.full((40,), k)) for n, k in ((20, 7), (90, 3), (90, 60))]
    problems[0][1][::3] = 0
    expected = [everything(*problem) for problem in problems]
    share_among(3, team, monkeypatch)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda problem: everything(*problem), problems * 20))
    for results, truth in zip(found, expected * 20, strict=True):
        for one, other in zip(results, truth, strict=True):
            assert torch.equal(one, other)


FORK = """
import os, sys, torch
from ksubset.kernels import cpu
from ksubset.kernels.cpu import openmp
torch.set_num_threads(2)
logits, k = torch.randn(1000, 200), torch.full((1000,), 10)
seeds = torch.arange(1000).unsqueeze(0)
before = cpu.sample(logits, k, seeds)[0].numpy().tobytes()
child = os.fork()
after = cpu.sample(logits, k, seeds)[0].numpy().tobytes()
if child == 0:
    os._exit(0 if before == after and openmp._in_child else 1)
assert before == after
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork() -> None:
    """The child has none of its parent's threads; where torch's own operators wait for them for
    ever, samples do not."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=300)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n", "k", "light", "scale", "seed"),
    [
        (66, 5, -45.0, 1.0, 66),
        (150, 6, -45.0, 1.0, 150),
        (1100, 7, -45.0, 1.0, 1100),
        # Of what is kept, most might as well be certain.
        (150, 3, -1e4, 3.0, 2150),
        (1100, 7, -1e4, 1.0, 2100),
    ],
)
def test_tossed_coins_follow_the_law(
    n: int, k: int, light: float, scale: float, seed: int, dtype: torch.dtype
) -> None:
    """All items but ten have no chance worth counting, and are not left out: so coins are tossed,
    in one to three rounds, and subsets can be counted."""
    generator = torch.Generator().manual_seed(seed)
    heavy = torch.randperm(n, generator=generator)[:10]
    logits = torch.full((1, n), light, dtype=dtype)
    logits[0, heavy] = scale * torch.randn(10, generator=generator).to(dtype)
    seeds = torch.randint(1 << 62, (100_000, 1), generator=generator)
    z = cpu.sample(logits, torch.tensor([k]), seeds)[0][:, 0]
    assert p_value(z[:, heavy], logits[0, heavy].double(), k) > FALSE_ALARM


def test_forbidden_items_at_the_end_of_a_block_are_not_drawn() -> None:
    """With these seeds they were, when what rounding had added to the block fell to its last."""
    logits = 0.3 * torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    logits[:, 31::32] = -INF
    for row, seed in ((46, 24347566), (42, 41764522)):
        z, _ = cpu.sample(logits[row : row + 1], torch.tensor([12]), torch.tensor([[seed]]))
        assert not z[0, 0, 31::32].any()
        assert z.sum() == 12


@pytest.mark.parametrize("method", ["auto", "dp", "tree", "spectral"])
@pytest.mark.parametrize("n", [7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [1.0, 1e-3])
def test_levels_far_apart(n: int, dtype: torch.dtype, share: float, method: str) -> None:
    """More items are chosen than stand on the upper level, and no number tilts the lower one."""
    far = share * torch.finfo(dtype).min
    logits = torch.full((n,), far, dtype=dtype)
    logits[[0, n - 2]] = 0
    marginals = ksubset.marginals(logits, 3, method=method)
    expected = torch.where(logits == 0, 1.0, 1 / (n - 2)).to(dtype)
    assert torch.allclose(marginals, expected, rtol=1e-5)
    assert torch.allclose(
        ksubset.entropy(logits, 3, method=method), torch.tensor(n - 2.0).log().to(dtype)
    )
    z = ksubset.sample(logits, 3, (50,), method=method)
    assert (z.sum(-1) == 3).all()
    assert (z[:, logits == 0] == 1).all()


def test_without_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that ends gives none."""

    class Closed:
        def submit(self, *_: object) -> None:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    logits, k = torch.randn(4000, 20), torch.full((4000,), 3)
    expected = cpu.infer(logits, k)
    share_among(3, "ours", monkeypatch)
    monkeypatch.setattr(sharing, "_pool", lambda *_: Closed())
    for one, other in zip(expected, cpu.infer(logits, k), strict=True):
        assert torch.equal(one, other)


BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


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
    assert "compiling tilt_groups for this processor, a few seconds, once" in record.message


def test_lists_of_rows_are_blank_again() -> None:
    """After kernels have left rows, and whoever takes the next list."""
    logits, k = torch.randn(2, 100), torch.tensor([101, 5])
    one, other = left.take(2), left.take(2)
    assert one.address != other.address
    left.give_back(one, False)
    left.give_back(other, False)
    drawn, _ = cpu.sample(logits, k, torch.tensor([[3, 4]]))
    assert drawn[0, 0].isnan().all()
    assert drawn[0, 1].sum() == 5
    assert left._blank
    assert not any(each.flags.any() for each in left._blank)
    again, _ = cpu.sample(logits[1:], k[1:], torch.tensor([[4]]))
    assert torch.equal(again[0], drawn[0, 1:])


def test_rows_after_vain_tries_use_other_numbers() -> None:
    """Those of the tries are known to have failed."""
    logits, k, seeds = torch.zeros(1, 100), torch.tensor([60]), torch.arange(500)
    tilted = cpu.tilt(logits, k)
    kernel, drawn = cpu._KERNELS[torch.float32].sample, []
    for flag in (LEFT, TRIED):
        flags, z = torch.tensor([flag], dtype=torch.uint8), torch.empty(500, 100)
        addresses = [x.data_ptr() for x in (k, seeds, tilted, z)]
        assert kernel(0, 1, 1, 100, flags.data_ptr(), 500, 500, *addresses) == 0
        assert (z.sum(-1) == 60).all()
        drawn.append(z)
    assert (drawn[0] != drawn[1]).any(-1).all()
    # 12,000 independent pairs of coins at 0.6: equal with probability 0.52.
    assert abs(float((drawn[0] == drawn[1]).double().mean()) - 0.52) < 0.02
