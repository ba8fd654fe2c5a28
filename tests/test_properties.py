"""Adversarial logits: never NaN, never a hang, the symmetries of the law."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from problems import DTYPES, METHOD_NAMES, TOLERANCES
from torch import Tensor

import ksubset
from ksubset.kernels import coins

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
values = st.one_of(
    st.floats(-5, 5, width=32),
    st.sampled_from([0.0, 1e4, -1e4, 1e-30, -1e-30, 37.5, 1e9, -1e9, 1e30, -1e30]),
    st.floats(-1e4, 1e4, width=32),
)
shapes = st.sampled_from(["any", "equal", "dominant", "clusters", "tiny", "sorted", "ramp"])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, int]:
    n = draw(st.integers(1, 40))
    k = draw(st.integers(0, n))
    match draw(shapes):
        case "equal":
            row = torch.full((n,), draw(values))
        case "dominant":
            row = torch.zeros(n)
            row[draw(st.integers(0, n - 1))] = draw(values)
        case "clusters":
            size = draw(st.integers(0, n))
            row = torch.full((n,), draw(values))
            row[:size] = draw(values)
        case "tiny":
            row = torch.arange(n) * 1e-30
        case "sorted":
            row = torch.tensor(sorted(draw(st.lists(values, min_size=n, max_size=n))))
        case "ramp":
            row = torch.linspace(-1, 1, n) * draw(st.sampled_from([1e-3, 1.0, 50.0, 1e4]))
        case _:
            row = torch.tensor(draw(st.lists(values, min_size=n, max_size=n)))
    return row.float(), k


methods = st.sampled_from(METHOD_NAMES)
dtypes = st.sampled_from(DTYPES)


@SETTINGS
@given(problems(), methods, dtypes)
def test_every_answer_is_finite_and_consistent(
    problem: tuple[Tensor, int], method: str, dtype: torch.dtype
) -> None:
    row, k = problem
    logits = row.to(dtype).requires_grad_()
    n, tolerance = len(row), TOLERANCES[dtype]
    mu = ksubset.marginals(logits, k, method=method)
    assert ((mu >= 0) & (mu <= 1)).all()
    assert abs(float(mu.detach().double().sum()) - k) <= tolerance.total * max(k, 1)
    entropy = ksubset.entropy(logits, k, method=method)
    bound = float(ksubset.entropy(torch.zeros(n, dtype=torch.float64), k))
    assert -tolerance.scalar <= entropy <= bound * (1 + tolerance.scalar) + tolerance.scalar
    z = ksubset.simple(logits, k, (3,), method=method)
    assert (z.sum(-1) == k).all()
    assert not ksubset.log_prob(logits, k, z, method=method).isnan().any()
    assert (ksubset.log_prob(logits, k, z, method=method) <= tolerance.scalar * (1 + bound)).all()
    assert ksubset.kl_divergence(logits, logits, k, method=method) == 0
    (mu.square().sum() + entropy + (z * torch.arange(n, dtype=dtype)).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@SETTINGS
@given(problems(), methods, dtypes, st.sampled_from([64.0, -1024.0, 2.0**14]))
def test_shifts_change_nothing(
    problem: tuple[Tensor, int], method: str, dtype: torch.dtype, shift: float
) -> None:
    row, k = problem
    # Exactly representable: multiples of 1/16 of moderate size.
    row = (row.clamp(-256, 256) * 16).round() / 16
    shifted = row + shift
    assert torch.equal(shifted - shift, row)
    tolerance = TOLERANCES[dtype]
    row, shifted = row.to(dtype), shifted.to(dtype)
    for function, bound in ((ksubset.marginals, tolerance.marginals), (ksubset.entropy, None)):
        before, after = function(row, k, method=method), function(shifted, k, method=method)
        if bound is None:
            bound = 2 * tolerance.scalar * (1 + float(before))
        assert (after - before).abs().max() <= bound


@SETTINGS
@given(problems(), methods, dtypes, st.randoms(use_true_random=False))
def test_permutations_permute(
    problem: tuple[Tensor, int], method: str, dtype: torch.dtype, random: object
) -> None:
    row, k = problem
    order = list(range(len(row)))
    random.shuffle(order)  # type: ignore[attr-defined]
    row = row.to(dtype)
    mu = ksubset.marginals(row, k, method=method)
    permuted = ksubset.marginals(row[order], k, method=method)
    assert (permuted - mu[order]).abs().max() <= TOLERANCES[dtype].marginals


@SETTINGS
@given(problems(), dtypes)
def test_complement(problem: tuple[Tensor, int], dtype: torch.dtype) -> None:
    """Choosing n - k items by -theta is leaving k out by theta."""
    row, k = problem
    row = row.to(dtype)
    mu = ksubset.marginals(row, k)
    rest = ksubset.marginals(-row, len(row) - k)
    assert (1 - mu - rest).abs().max() <= TOLERANCES[dtype].marginals


@SETTINGS
@given(problems(), dtypes)
def test_the_tilt_brings_the_mean_near(problem: tuple[Tensor, int], dtype: torch.dtype) -> None:
    row, k = problem
    size = torch.tensor([k])
    tilted, _ = coins.tilt(row.to(dtype).unsqueeze(0), size)
    tossed = coins.Coins.from_tilted(tilted, size)
    assert tossed.excess.abs() <= 0.06 * tossed.variance.sqrt().clamp_min(1)


def test_a_bad_row_does_not_harm_the_others() -> None:
    logits = torch.randn(5, 8)
    k = torch.tensor([3, 3, 9, -1, 3])
    logits[1, 2] = torch.nan
    good = torch.tensor([True, False, False, False, True])
    for method in METHOD_NAMES:
        options = {"method": method, "validate_args": False}
        z = ksubset.sample(logits, k, (4,), **options)
        for value in (
            ksubset.marginals(logits, k, **options),
            ksubset.entropy(logits, k, **options),
            ksubset.log_partition(logits, k, **options),
            ksubset.covariance_product(logits, k, torch.randn(8), **options),
            ksubset.kl_to_uniform(logits, k, **options),
            ksubset.log_prob_exactly_k(logits, k, **options),
            ksubset.kl_divergence(logits, torch.zeros(8), k, **options),
            ksubset.mode(logits, k, validate_args=False),
            z[0],
        ):
            flat = value.reshape(5, -1)
            assert flat[good].isfinite().all()
            assert flat[~good].isnan().all()
        whole = ksubset.marginals(logits[good], 3, method=method)
        torch.testing.assert_close(ksubset.marginals(logits, k, **options)[good], whole)
    indices = ksubset.sample_indices(logits, 3, validate_args=False)
    assert (indices[1] == -1).all()
    assert (indices[[0, 2, 3, 4]] >= 0).all()
