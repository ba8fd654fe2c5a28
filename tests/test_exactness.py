"""Samplers draw from the k-subset law, by chi-square against enumeration.

Every test fixes its seed, so it passes or fails for good. Each p-value is compared with
FALSE_ALARM; with some 100 of them, a set of right samplers with fresh seeds would fail once in
about 10,000 runs of the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from problems import DTYPES, INF, METHOD_NAMES
from torch import Tensor

import ksubset
from ksubset import oracle
from ksubset.kernels import halving

FALSE_ALARM = 1e-6
DRAWS = 1_000_000


def p_value(draws: Tensor, logits: Tensor, k: int) -> float:
    """Of Pearson's chi-square statistic; cells with few expected draws are pooled."""
    n = draws.shape[-1]
    assert (draws.sum(-1) == k).all(), "every draw has exactly k ones"
    place = 2.0 ** torch.arange(n, dtype=torch.float64)
    codes = (draws.cpu().double() @ place).long()
    subsets = (oracle.support(n, k) @ place).long()
    observed = torch.bincount(codes, minlength=1 << n)[subsets].double()
    assert observed.sum() == len(draws), "every draw is a subset"
    expected = oracle.log_probabilities(logits, k).exp() * len(draws)
    assert not observed[expected == 0].any(), "impossible subsets are never drawn"
    return _pearson(observed, expected, 20)


def _pearson(observed: Tensor, expected: Tensor, few: float) -> float:
    rare = expected < few
    observed = torch.cat([observed[~rare], observed[rare].sum().unsqueeze(0)])
    expected = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    kept = expected >= 1
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = kept.sum().double() - 1
    if freedom == 0:
        return 1.0
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


def heads(p: Iterable[float]) -> np.ndarray:
    """The probabilities of 0 ... n heads of n coins."""
    law = np.ones(1)
    for one in p:
        law = np.convolve(law, (1 - one, one))
    return law


def lacking(law: np.ndarray, k: int, most: int) -> np.ndarray:
    """The probabilities of k, k - 1, ... k - most heads."""
    counts = k - np.arange(most + 1)
    possible = (counts >= 0) & (counts < len(law))
    return np.where(possible, law[np.clip(counts, 0, len(law) - 1)], 0.0)


def p_value_of_part(draws: Tensor, logits: Tensor, k: int, part: Tensor) -> float:
    """Of how many items of a part are chosen: what samplers get wrong that go part by part."""
    low, high = torch.tensor(-50.0).double(), torch.tensor(50.0).double()
    for _ in range(60):
        shift = (low + high) / 2
        few = torch.sigmoid(logits + shift).sum() < k
        low, high = torch.where(few, shift, low), torch.where(few, high, shift)
    p = torch.sigmoid(logits + low)
    here, there = heads(p[part].tolist()), heads(p[~part].tolist())
    expected = torch.as_tensor(here * lacking(there, k, len(here) - 1))
    expected *= len(draws) / expected.sum()
    observed = torch.bincount(draws[:, part].sum(-1).long().cpu(), minlength=len(here)).double()
    return _pearson(observed, expected, 5)


def logits_for(n: int, scale: float, seed: int = 3) -> Tensor:
    return scale * torch.randn(n, generator=torch.Generator().manual_seed(seed))


CASES = [(8, 3, 1.0), (8, 5, 2.5), (6, 1, 1.0), (10, 5, 0.3), (13, 2, 1.5), (7, 6, 1.0)]


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize(("n", "k", "scale"), CASES)
def test_samples_follow_the_law(
    n: int, k: int, scale: float, method: str, device: torch.device
) -> None:
    logits = logits_for(n, scale)
    z = ksubset.sample(logits.to(device), k, (DRAWS,), method=method)
    assert p_value(z, logits.double(), k) > FALSE_ALARM


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(n, torch.float32) for n in (300, 1000, 8000, 20_000)] + [(1000, torch.float64)],
    ids=str,
)
def test_parts_of_rows_with_a_wide_spread(n: int, dtype: torch.dtype, device: torch.device) -> None:
    """Every so many items, as samplers may part them, and runs of them."""
    k, at, logits = 2 * n // 5, torch.arange(n), logits_for(n, 1.0).to(dtype)
    z = ksubset.sample(logits.to(device), k, (2000,))
    assert (z.sum(-1) == k).all()
    for run, parts in ((1, 4), (4, 4), (16, 4), (1, 8), (256, 8)):
        for j in (0, parts - 1) if run < n // parts else ():
            part = at // run % parts == j
            assert p_value_of_part(z, logits.double(), k, part) > FALSE_ALARM


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_rows_of_a_batch_follow_their_own_laws(
    method: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Per-row k, masks, forced items and infinities side by side."""
    logits = torch.stack([logits_for(9, 1.0, seed) for seed in range(6)]).to(dtype)
    logits[1, 4] = -INF
    logits[2, 4] = INF
    logits[3, :2], logits[3, 7] = INF, -INF
    logits[4, :5] = -INF
    k = torch.tensor([4, 3, 4, 5, 2, 8])
    z = ksubset.sample(logits.to(device), k.to(device), (DRAWS // 5,), method=method).cpu()
    for row in range(6):
        assert p_value(z[:, row], logits[row].double(), int(k[row])) > FALSE_ALARM


def gumbel_top_k(logits: Tensor, k: int) -> Tensor:
    """What published code uses instead: not the k-subset law."""
    noise = -torch.log(-torch.log(torch.rand(DRAWS, len(logits))))
    chosen = (logits + noise).topk(k).indices
    return torch.zeros(DRAWS, len(logits)).scatter_(1, chosen, 1.0)


def now_and_then_uniform(logits: Tensor, k: int) -> Tensor:
    """A subtly wrong sampler: one draw in two hundred ignores the logits."""
    z = ksubset.sample(logits, k, (DRAWS,))
    wrong = torch.rand(DRAWS) < 0.005
    z[wrong] = ksubset.sample(torch.zeros_like(logits), k, (int(wrong.sum()),))
    return z


@pytest.mark.parametrize("sampler", [gumbel_top_k, now_and_then_uniform])
def test_wrong_samplers_fail_the_same_test(sampler: Callable[[Tensor, int], Tensor]) -> None:
    logits = logits_for(8, 1.5)
    assert p_value(sampler(logits, 3), logits.double(), 3) < 1e-12


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_reversed_sample_fails(method: str) -> None:
    """The paper's algorithm 2 yields the items from last to first."""
    logits = logits_for(8, 1.5)
    z = ksubset.sample(logits, 3, (DRAWS // 10,), method=method).flip(-1)
    assert p_value(z, logits.double(), 3) < 1e-12


def test_halving_falls_back_to_an_exact_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one try only, about a third of all tosses end in the fallback."""
    fallbacks = []
    by_tree = halving._by_tree

    def counted(t: Tensor, k: Tensor, seeds: Tensor) -> Tensor:
        fallbacks.append(len(t))
        return by_tree(t, k, seeds)

    monkeypatch.setattr(halving, "_MOST_TRIES", 1)
    monkeypatch.setattr(halving, "_by_tree", counted)
    logits = logits_for(9, 1.0)
    z = ksubset.sample(logits, 4, (DRAWS // 2,), method="spectral")
    assert sum(fallbacks) > DRAWS // 20
    assert p_value(z, logits.double(), 4) > FALSE_ALARM


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize(("n", "k"), [(1000, 10), (1000, 400), (3000, 2500)])
def test_moments_of_large_samples(n: int, k: int, method: str, device: torch.device) -> None:
    """First and second moments where subsets cannot be counted: no z-score beyond 6."""
    draws = 200 if method == "dp" else 2000
    logits = torch.randn(n, device=device)
    z = ksubset.sample(logits, k, (draws,), method=method)
    assert (z.sum(-1) == k).all()
    mu = ksubset.marginals(logits, k)
    score = (z.mean(0) - mu) / (mu * (1 - mu) / draws).sqrt().clamp_min(1e-3)
    assert score.abs().max() < 6
    # A linear statistic has variance v . Cov v
    v = torch.randn(5, n, device=device)
    spread = (v * ksubset.covariance_product(logits, k, v)).sum(-1)
    observed = (z @ v.T).var(0) / spread
    assert ((observed - 1).abs() < 6 * (2 / draws) ** 0.5).all()


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_sorted_and_lopsided_logits(method: str, device: torch.device) -> None:
    """Where all variance stands in one half, by position or by parity."""
    n = 512
    rows = torch.full((3, n), -INF, device=device)
    rows[0] = torch.linspace(-8, 8, n, device=device)
    rows[1, ::2] = 0
    rows[2, 1::2] = 0
    for k in (3, 100):
        z = ksubset.sample(rows, k, (400,), method=method)
        assert (z.sum(-1) == k).all()
        mu = ksubset.marginals(rows, k)
        score = (z.mean(0) - mu) / (mu * (1 - mu) / 400).sqrt().clamp_min(5e-3)
        assert score.abs().max() < 6


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_seeds(method: str, device: torch.device) -> None:
    logits = torch.randn(4, 40, device=device)

    def draw(seed: int, rows: Tensor) -> Tensor:
        generator = torch.Generator(device).manual_seed(seed)
        return ksubset.sample(rows, 7, (6,), generator=generator, method=method)

    assert torch.equal(draw(1, logits), draw(1, logits))
    assert not torch.equal(draw(1, logits), draw(2, logits))
    torch.manual_seed(5)
    first = ksubset.sample(logits, 7, method=method)
    torch.manual_seed(5)
    assert torch.equal(first, ksubset.sample(logits, 7, method=method))


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_sample_does_not_depend_on_the_rest_of_the_batch(method: str) -> None:
    from ksubset import kernels

    rows = 64
    logits, k = torch.randn(rows, 50), torch.randint(0, 51, (rows,))
    seeds = torch.randint(1 << 60, (2, rows))
    together = kernels.sample(logits, k, seeds, method)[0]
    for row in range(rows):
        alone = kernels.sample(
            logits[row : row + 1], k[row : row + 1], seeds[:, row : row + 1], method
        )
        assert torch.equal(alone[0][:, 0], together[:, row])


@pytest.mark.parametrize("method", ["auto", "dp"])  # the kernels', and that of all others
def test_nor_does_the_tilt_of_a_long_row(method: str) -> None:
    """Although torch has several threads add up the items of a row that is alone."""
    from ksubset import kernels

    logits, k = torch.randn(8, 100_000), torch.full((8,), 10_000)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = kernels.tilt(logits, k, method)
        alone = [kernels.tilt(logits[i : i + 1], k[i : i + 1], method) for i in range(8)]
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.cat(alone), together)


def test_indices_are_those_of_the_same_sample(device: torch.device) -> None:
    logits = torch.randn(3, 20, device=device)
    generators = [torch.Generator(device).manual_seed(9) for _ in range(2)]
    z = ksubset.sample(logits, 6, (4,), generator=generators[0])
    chosen = ksubset.sample_indices(logits, 6, (4,), generator=generators[1])
    assert chosen.shape == (4, 3, 6)
    assert torch.equal(torch.zeros_like(z).scatter_(-1, chosen, 1.0), z)
    assert (chosen.diff(dim=-1) > 0).all()


def test_uniforms_are_uniform() -> None:
    """The counter-based generator: moments, correlations over counters and over seeds."""
    from ksubset.kernels import random

    u = random.uniform(random.keys(torch.arange(2000)), 0, 500, torch.float64)
    assert u.min() >= 0
    assert u.max() < 1
    count = u.numel()
    assert abs(u.mean() - 0.5) < 6 * (1 / 12 / count) ** 0.5
    assert abs(u.var() - 1 / 12) < 6 * (1 / 180 / count) ** 0.5
    centred = u - 0.5
    for left, right in (
        (centred[:, 1:], centred[:, :-1]),
        (centred[1:], centred[:-1]),
        (centred[1:, 1:], centred[:-1, :-1]),
    ):
        assert abs((left * right).mean() * 12) < 6 / left.numel() ** 0.5
    cells = torch.bincount((u.flatten() * 1000).long(), minlength=1000).double()
    statistic = ((cells - count / 1000) ** 2 / (count / 1000)).sum()
    assert torch.special.gammaincc(torch.tensor(999 / 2.0).double(), statistic / 2) > FALSE_ALARM
    single = random.uniform(random.keys(torch.arange(4000)), 0, 1000, torch.float32)
    assert single.max() < 1
    # Small values have digits of their own: 2^-24 is not the least step.
    assert 0 < single.min() < 2e-6
    assert len((single[single < 2**-12] * 2**24 % 1).unique()) > 100


def test_items_without_a_chance_are_not_chosen() -> None:
    """20,000 items of probability 1e-22 beside a thousand ordinary ones, in float32."""
    logits = torch.full((20_000,), -50.0)
    logits[::20] = 0
    z = ksubset.sample(logits, 10, (300,), method="spectral")
    assert (z.sum(-1) == 10).all()
    assert not z[:, logits < 0].any()
