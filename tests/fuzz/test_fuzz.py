"""Random rows against the truth in extended precision.

A few hundred rows by default. ``pytest tests/fuzz --cases 100000 -n auto`` is a long run; each test
then prints the worst errors in units of their bounds (``-rP`` shows them), which are those of
:mod:`fuzz.bounds`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fuzz import check as fuzzing
from fuzz.bounds import BOUNDS
from fuzz.check import Report, batches, check, make
from fuzz.exact import Exact

import ksubset
from ksubset import oracle

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
CHUNK = 2500  # rows of a test: the share of a worker
SEEDS_APART = 1_000_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        cases = metafunc.config.getoption("cases", default=400)
        per_type = -(-cases // len(DTYPES))
        chunks = range(0, per_type, CHUNK)
        shares = [
            (dtype, first, min(CHUNK, per_type - first)) for first in chunks for dtype in DTYPES
        ]
        metafunc.parametrize(
            "share", shares, ids=[f"{str(d)[6:]}-{first}" for d, first, _ in shares]
        )


def test_rows_against_extended_precision(
    share: tuple[torch.dtype, int, int], device: torch.device
) -> None:
    dtype, first, cases = share
    report = Report()
    for batch in batches(first * SEEDS_APART // CHUNK, cases, dtype, device):
        check(batch, report)
    print(report)
    assert not report.violations, "\n".join(report.violations)


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="numpy has no extended precision here"
)
def test_the_truth_agrees_with_enumeration() -> None:
    """Two oracles that share nothing."""
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 4, 7))
    p[1, 2], p[2, 0], q[2, 0] = np.inf, -np.inf, -np.inf
    p[3] *= 1e3
    k = np.array([3, 2, 4, 5])
    u, v = rng.normal(size=(2, 4, 7))
    exact, other = Exact(p, k), Exact(q, k)
    for row in range(4):
        logits, size = torch.from_numpy(p[row]), int(k[row])
        against = torch.from_numpy(q[row])
        third = oracle.third_cumulant(logits, size)
        for value, truth in (
            (exact.log_partition[row], oracle.log_partition(logits, size)),
            (exact.marginals[row], oracle.marginals(logits, size)),
            (exact.entropy[row], oracle.entropy(logits, size)),
            (exact.divergence(other)[row], oracle.kl_divergence(logits, against, size)),
            (
                exact.covariance_product(v)[row],
                oracle.covariance(logits, size) @ torch.from_numpy(v[row]),
            ),
            (
                exact.third_cumulant_product(u, v)[row],
                torch.einsum(
                    "ijl,j,l->i", third, torch.from_numpy(u[row]), torch.from_numpy(v[row])
                ),
            ),
        ):
            expected = np.asarray(truth)
            np.testing.assert_allclose(
                np.asarray(value, dtype=np.float64), expected, rtol=1e-12, atol=1e-13
            )


def test_a_defect_of_the_size_of_the_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: each of these was a defect, or is as small as one."""
    right = ksubset.kl_divergence

    def raw_difference(p: torch.Tensor, q: torch.Tensor, k: torch.Tensor, **options: object):
        """The gradient of a divergence by logits that were not tilted."""
        mu = ksubset.marginals(p, k, mask=options["mask_p"])
        gap = (p.float() - q.float()).nan_to_num(0, 0, 0)
        return right(p, q, k, **options).detach() + (gap * (mu - mu.detach())).sum(-1)

    def off_by_a_little(p: torch.Tensor, k: torch.Tensor, **options: object) -> torch.Tensor:
        return (
            ksubset.functional.marginals(p, k, **options) + 2 * BOUNDS[torch.float32]["marginals"]
        )

    batch = next(
        batch
        for batch in (make(seed, torch.float32, torch.device("cpu")) for seed in range(20))
        if "shifted" in batch.families and batch.n > 8
    )
    for name, wrong, word in (
        ("kl_divergence", raw_difference, "kl_divergence'"),
        ("marginals", off_by_a_little, "marginals:"),
    ):
        report = Report()
        with monkeypatch.context() as patch:
            patch.setattr(fuzzing.ksubset, name, wrong)
            check(batch, report)
        assert any(word in violation for violation in report.violations)
