"""What an adversary found."""

from __future__ import annotations

import pytest
import torch

from ksubset.estimators import ESTIMATORS, Pathwise, create
from ksubset.estimators.muprop import _slope_of_others

# Except for those of one item of n.
GENERAL = [name for name in ESTIMATORS if name != "reinmax_rao"]
PATHWISE = [name for name in GENERAL if issubclass(ESTIMATORS[name], Pathwise)]


def test_a_fitted_slope_knows_nothing_of_its_own_sample() -> None:
    """Whether there is one example or many."""
    for shape in ((4,), (4, 3), (4, 2, 3)):
        x, y = torch.randn(2, *shape, dtype=torch.float64)
        before = _slope_of_others(x, y)
        assert before.shape == (4, *(1,) * (len(shape) - 1))
        x[2], y[2] = x[2] + 5, y[2] - 7
        after = _slope_of_others(x, y)
        torch.testing.assert_close(before[2], after[2], rtol=0, atol=0)
        assert (before[[0, 1, 3]] != after[[0, 1, 3]]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equal_samples_have_no_slope(dtype: torch.dtype) -> None:
    for seed in range(200):
        a, b, c, d = torch.randn(4, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        assert _slope_of_others(torch.stack([a, a, a, b]), torch.stack([c, c, c, d]))[3] == 1


@pytest.mark.parametrize("name", PATHWISE)
def test_half_precision_zero_logits_and_nothing_to_choose(name: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        for k in (0, 2, 5):
            logits = torch.zeros(3, 5, dtype=dtype, requires_grad=True)
            z = create(name).sample(logits, k)
            assert z.dtype == dtype
            z.float().square().sum().backward()
            assert logits.grad is not None
            assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["softsub", "l2x", "imle", "st_gumbel", "ste", "simple_b"])
def test_arguments_are_checked(name: str) -> None:
    for k, error in ((-1, ValueError), (6, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="k must be"):
            create(name).sample(torch.zeros(3, 5), k)
    with pytest.raises(TypeError, match="mask must be boolean"):
        create(name).sample(torch.zeros(3, 5), 2, mask=torch.ones(5))


def test_nothing_is_learned_from_an_empty_batch() -> None:
    logits = torch.zeros(0, 5, requires_grad=True)
    adaptive, score = create("aimle"), create("score", baseline="moving_average")
    adaptive.sample(logits, 2).sum().backward()
    score.surrogate(lambda z: z.sum(-1), logits, 2).backward()
    for value in (*adaptive.state_dict().values(), *score.state_dict().values()):
        assert value.isfinite().all()
    assert create("exact").surrogate(lambda z: z.sum(-1), logits, 2) == 0


def test_a_loss_that_does_not_see_z() -> None:
    logits = torch.zeros(3, 5, requires_grad=True)
    create("muprop").surrogate(lambda z: z.detach()[..., 0], logits, 2).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
