"""What only a CUDA device can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_exactness import FALSE_ALARM, p_value, p_value_of_part

import ksubset
from ksubset import kernels
from ksubset.functional import _eager

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("function", [ksubset.simple, ksubset.swap])
@pytest.mark.parametrize(("rows", "n", "k"), [(64, 350, 10), (4, 20_000, 300)])
def test_a_captured_step_equals_the_eager_one_cuda(
    rows: int, n: int, k: int, function: Callable[..., torch.Tensor]
) -> None:
    logits = torch.randn(rows, n, device="cuda", requires_grad=True)
    weights = torch.randn(rows, n, device="cuda")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        z = function(logits, k)
        (gradient,) = torch.autograd.grad((z * weights).sum(), logits)
        return z.detach(), gradient

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    # A graph outlives the plan of its calls, and whatever memory the plan may have had.
    _eager._PLANS.clear()
    spoilt = [torch.full((rows,), -(2**40), device="cuda") for _ in range(100)]
    for seed in (1, 2):
        torch.cuda.manual_seed(seed)
        graph.replay()
        torch.cuda.manual_seed(seed)
        eager = step()
        torch.cuda.synchronize()
        for left, right in zip(captured, eager, strict=True):
            assert torch.equal(left, right)
    del spoilt


@pytest.mark.parametrize(("rows", "n", "k"), [(4, 20_000, 300), (2, 200_000, 5000)])
def test_programs_of_a_row_agree_every_time_cuda(rows: int, n: int, k: int) -> None:
    """Several wait for each other at a barrier: who did not would go on with other numbers."""
    from ksubset.kernels.cuda import long

    logits = torch.randn(rows, n, device="cuda")
    seeds = torch.randint(1 << 62, (3, rows), device="cuda")
    z, tilted = long.sample(logits, k, seeds)
    vectors = torch.randn_like(z)

    def products() -> tuple[torch.Tensor, torch.Tensor]:
        swapped = long.swap_product(tilted, k, z, vectors)
        return long.covariance_product(tilted, k, logits), swapped

    once = (z, tilted, *products())
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(300):
        again = (*long.sample(logits, k, seeds), *products())
        for left, right in zip(once, again, strict=True):
            different += (left != right).sum()
    assert int(different) == 0
    assert (z.sum(-1) == k).all()


def test_the_compiled_kernels_serve_auto_cuda() -> None:
    from ksubset.kernels.cuda import long, rows
    from ksubset.kernels.device import device_kernels

    assert device_kernels(torch.zeros(2, 300, device="cuda"), "auto") is rows
    assert device_kernels(torch.zeros(2, 30_000, device="cuda"), "auto") is long
    assert device_kernels(torch.zeros(2, 300, device="cuda"), "spectral") is None
    assert device_kernels(torch.zeros(2, 300, device="cuda").double(), "auto") is rows
    assert device_kernels(torch.zeros(2, 9000, device="cuda").double(), "auto") is None


@pytest.mark.parametrize("most", [32, 2])
@pytest.mark.parametrize("k", [2, 6])
def test_long_rows_follow_the_law_cuda(k: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With chunks of four items a row of eleven is a long one, of one level or two."""
    from ksubset.kernels.cuda import long

    size = 4 if most > 2 else 2
    monkeypatch.setattr(long, "SAMPLES", long.Shape(tile=2, wide=size // 2, warps=1))
    monkeypatch.setattr(long, "ITEMS", 2)
    monkeypatch.setattr(long, "WARPS", 1)
    monkeypatch.setattr(long, "MOST", most)
    assert len(long._levels(-(-11 // size), 1)) == (1 if most > 2 else 2)
    logits = 1.5 * torch.randn(1, 11, generator=torch.Generator().manual_seed(k)).cuda()
    seeds = torch.randint(1 << 62, (100, 3000), device="cuda")
    counts = torch.full((3000,), k, device="cuda")
    z, _ = long.sample(logits.expand(3000, 11).contiguous(), counts, seeds)
    assert p_value(z.reshape(-1, 11).cpu(), logits[0].cpu().double(), k) > FALSE_ALARM


@pytest.mark.parametrize(("n", "k"), [(20_000, 5000), (100_000, 300)])
def test_parts_of_long_rows_follow_the_law_cuda(n: int, k: int) -> None:
    """How many items of each chunk, and of parts of chunks, with chunks that weigh much and
    little."""
    from ksubset.kernels.cuda import long

    generator = torch.Generator().manual_seed(n)
    logits = torch.randn(n, generator=generator) + torch.linspace(0, 2, n)
    logits[torch.randperm(n, generator=generator)[:50]] = -torch.inf
    seeds = torch.arange(2000, device="cuda").unsqueeze(0)
    z, _ = long.sample(logits.cuda().expand(2000, n).contiguous(), k, seeds)
    assert (z.sum(-1) == k).all()
    at = torch.arange(n)
    for part in (at < 2048, at >= n - 1000, at // 2048 == 4, at % 16 == 3, at >= n // 2):
        assert p_value_of_part(z[0], logits.double(), k, part) > FALSE_ALARM


@pytest.mark.parametrize("n", [500, 6000, 20_000])
def test_the_fallback_of_wide_rows_follows_the_law_cuda(n: int) -> None:
    """Without tries, item by item: early and late items, in rows that need many nodes."""
    from ksubset.kernels.cuda import long, rows

    kernels, k = (rows if n <= rows.MAX_ITEMS else long), 2 * n // 5
    logits = torch.randn(n, generator=torch.Generator().manual_seed(n))
    seeds = torch.arange(1000, device="cuda").unsqueeze(0)
    z, _ = kernels.sample(logits.cuda().expand(1000, n).contiguous(), k, seeds, 0)
    assert (z.sum(-1) == k).all()
    for part in (torch.arange(n) < n // 4, torch.arange(n) >= n - 64, torch.arange(n) % 2 == 0):
        assert p_value_of_part(z[0], logits.double(), k, part) > FALSE_ALARM


def test_draws_with_replacement_follow_the_law_cuda() -> None:
    """One item of 64, of which six have a chance worth counting."""
    from ksubset.kernels.cuda import rows

    logits = torch.full((1, 64), -30.0, device="cuda")
    logits[0, ::11] = torch.tensor([0.0, 0.4, -0.3, 0.8, -1.0, 0.2], device="cuda")
    seeds = torch.randint(1 << 62, (100, 3000), device="cuda")
    z, _ = rows.sample(logits.repeat(3000, 1), torch.ones(3000, dtype=int, device="cuda"), seeds)
    place = z.reshape(-1, 64)[:, ::11].cpu()
    assert (place.sum(-1) == 1).all()
    assert p_value(place, logits[0, ::11].cpu().double(), 1) > FALSE_ALARM


@pytest.mark.parametrize("n", [4096, 8192, 10_000, 30_000])
def test_draws_with_replacement_have_k_items_cuda(n: int) -> None:
    """Equal odds, for which k up to sqrt(6 n) items are drawn so; and each as often as another."""
    counts = torch.tensor([1, 16, 17, 32, 33, 64, 65, 100, 128, 129, 150], device="cuda")
    logits = torch.zeros(len(counts), n, device="cuda")
    z = ksubset.sample(logits, counts, (300,))
    assert torch.equal(z.sum(-1), counts.float().expand(300, -1))
    assert ((z == 0) | (z == 1)).all()
    mean = 300 * float(counts.sum()) / n
    scores = (z.sum((0, 1)) - mean) / (300 * (counts / n * (1 - counts / n)).sum()).sqrt()
    assert abs(float(scores.square().mean()) - 1) < 7 * (2 / n) ** 0.5


def test_what_a_distribution_keeps_is_not_in_a_captured_graph_cuda() -> None:
    """Nor the other way round: a graph's memory holds nothing before it runs."""
    logits = torch.randn(64, 350, device="cuda")
    d, known = (ksubset.KSubset(10, logits=logits, validate_args=False) for _ in range(2))
    z = known.mode
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        before = known.mean, known.log_prob(z)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = d.mean, known.mean, known.log_prob(z)
    with torch.cuda.stream(stream):
        eager = d.mean
    torch.cuda.synchronize()
    assert torch.equal(eager, before[0])
    logits.copy_(torch.randn_like(logits))
    graph.replay()
    torch.cuda.synchronize()
    fresh = ksubset.KSubset(10, logits=logits, validate_args=False)
    for left, right in zip(captured, (fresh.mean, fresh.mean, fresh.log_prob(z)), strict=True):
        assert torch.equal(left, right)


def test_what_a_distribution_keeps_is_for_one_stream_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another may not have waited for it."""
    passes: list[str] = []
    infer = kernels.infer

    def counted(logits: torch.Tensor, k: torch.Tensor, method: str) -> object:
        passes.append(method)
        return infer(logits, k, method)

    monkeypatch.setattr(kernels, "infer", counted)
    d = ksubset.KSubset(10, logits=torch.randn(64, 350, device="cuda"))
    first = d.mean, d.mean
    assert len(passes) == 1
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        second = d.mean, d.mean
    assert len(passes) == 2
    torch.cuda.synchronize()
    for mean in (*first, *second):
        assert torch.equal(mean, first[0])
