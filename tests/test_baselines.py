"""The rivals in the benchmark are what their authors mean: they get a fair run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import baselines

LOGITS = torch.randn(5, 12)


def test_hard_samples_have_k_ones() -> None:
    for sampler in (baselines.straight_through_gumbel_top_k, baselines.imle):
        z = sampler(LOGITS, 4)
        assert z.sum(-1).allclose(torch.tensor(4.0))
        assert ((z - z.round()).abs() < 1e-5).all()
    relaxed = baselines.softsub(LOGITS, 4)
    assert relaxed.sum(-1).allclose(torch.tensor(4.0))


def test_imle_divides_by_its_strength() -> None:
    """Published code without the 1/lambda has gradients of -1, 0 and 1."""
    logits = LOGITS.clone().requires_grad_()
    z = baselines.imle(logits, 4, strength=10.0)
    (gradient,) = torch.autograd.grad(z, logits, 5 * torch.randn(5, 12))
    values = set(gradient.unique().tolist())
    assert values <= {-0.1, 0.0, 0.1} | {float(torch.tensor(x)) for x in (-0.1, 0.1)}
    assert len(values) == 3


def test_the_log_space_dp_has_the_marginals() -> None:
    import ksubset

    logits = LOGITS.clone().requires_grad_()
    torch.testing.assert_close(
        baselines.log_space_dp(logits, 4), ksubset.marginals(logits, 4), rtol=1e-4, atol=1e-5
    )
