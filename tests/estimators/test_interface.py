"""What every estimator accepts and returns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ksubset import estimators
from ksubset.estimators import ESTIMATORS, Pathwise, create

SAMPLES = 3
# Except for those of one item of n.
GENERAL = [name for name in ESTIMATORS if name != "reinmax_rao"]
PATHWISE = [name for name in GENERAL if issubclass(ESTIMATORS[name], Pathwise)]
HARD = [name for name in PATHWISE if name not in ("marginals", "softsub", "l2x")]


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("name", GENERAL)
def test_groups_share_a_loss(name: str, vectorized: bool) -> None:
    """Two examples with two rows each: a decoder sees both rows; per-row k and a mask."""
    torch.manual_seed(0)
    logits = torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True)
    decoder = torch.randn(10, dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[1, 2], [2, 1]])
    mask = torch.ones(2, 2, 5, dtype=torch.bool)
    mask[0, 0, 3] = False

    def loss(z: Tensor) -> Tensor:
        return (z.flatten(-2) @ decoder).square()  # (..., 2)

    value = create(name).surrogate(loss, logits, k, SAMPLES, mask=mask, vectorized=vectorized)
    assert value.shape == ()
    value.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 0, 3] == 0
    assert decoder.grad is not None
    assert decoder.grad.abs().sum() > 0


@pytest.mark.parametrize("name", GENERAL)
def test_the_decoder_gets_the_gradient_of_the_value(name: str) -> None:
    """The value is the loss averaged over samples, and linear in this decoder."""
    torch.manual_seed(0)
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    decoder = torch.randn(6, dtype=torch.float64, requires_grad=True)
    value = create(name).surrogate(lambda z: z @ decoder, logits, 2, SAMPLES)
    (gradient,) = torch.autograd.grad(value, decoder)
    torch.testing.assert_close(gradient @ decoder, value.detach())


@pytest.mark.parametrize("name", GENERAL)
def test_the_same_seed_gives_the_same_estimate(name: str) -> None:
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    found = []
    for seed in (1, 1, 2):
        value = create(name).surrogate(
            lambda z: (z * torch.arange(6)).sum(-1).square(), logits, 2, SAMPLES,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        found.append(torch.autograd.grad(value, logits)[0])
    assert torch.equal(found[0], found[1])
    if name not in ("exact", "marginals"):
        assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", PATHWISE)
def test_samples(name: str) -> None:
    logits = torch.randn(3, 7, requires_grad=True)
    mask = torch.arange(7) < torch.tensor([[4], [7], [5]])
    k = torch.tensor([4, 0, 2])
    z = create(name).sample(logits, k, (2, 5), mask=mask)
    assert z.shape == (2, 5, 3, 7)
    assert z.requires_grad
    assert not z.detach()[:, :, ~mask].any()
    if name in HARD:
        assert torch.equal(z.detach().round(), z.detach())
        assert torch.equal(z.detach().sum(-1), k.float().expand(2, 5, 3))
    assert create(name).sample(torch.zeros(0, 4), 2).shape == (0, 4)


@pytest.mark.parametrize("name", ["softsub", "l2x"])
def test_hardened_samples(name: str) -> None:
    logits = torch.randn(3, 7, requires_grad=True)
    mask = torch.arange(7) < torch.tensor([[4], [7], [5]])
    k = torch.tensor([4, 0, 2])
    z = create(name, hard=True).sample(logits, k, (50,), mask=mask).detach()
    assert torch.equal(z.sum(-1), k.float().expand(50, 3))
    assert not z[:, ~mask].any()


def test_clear_errors() -> None:
    logits = torch.zeros(3, 4, requires_grad=True)
    with pytest.raises(ValueError, match="num_samples must be an int of at least 1, got 0"):
        create("simple").surrogate(lambda z: z.sum(-1), logits, 2, 0)
    with pytest.raises(ValueError, match="num_samples must be an int of at least 2, got 1"):
        create("score", baseline="leave_one_out").surrogate(lambda z: z.sum(-1), logits, 2)
    with pytest.raises(ValueError, match="num_samples must be an int of at least 3, got 2"):
        create("muprop", scale="leave_one_out").surrogate(lambda z: z.sum(-1), logits, 2, 2)
    with pytest.raises(ValueError, match=r"prefix of \(3,\), got shape \(4,\)"):
        create("simple").surrogate(lambda z: z.sum(0), logits, 2)
    with pytest.raises(TypeError, match="loss_fn must return a tensor, got float"):
        create("simple").surrogate(lambda z: 1.0, logits, 2)
    with pytest.raises(ValueError, match="most_subsets = 1000000"):
        create("exact").surrogate(lambda z: z.sum(-1), torch.zeros(40), 20)
    with pytest.raises(ValueError, match="strength must be positive and finite, got 0"):
        create("imle", strength=0)
    with pytest.raises(ValueError, match=r"noise must be one of .*, got 'normal'"):
        create("imle", noise="normal")
    with pytest.raises(ValueError, match="temperature must be positive and finite, got tensor"):
        create("softsub", temperature=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="terms must be an int of at least 1, got 0"):
        create("imle", terms=0)
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\), got 2"):
        create("score", baseline="moving_average", decay=2)


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("imle", "strength", (0.5, 20.0)),
        ("imle", "temperature", (0.5, 20.0)),
        ("softsub", "temperature", (0.3, 1.5)),
        ("l2x", "temperature", (0.3, 1.5)),
        ("st_gumbel", "temperature", (0.3, 1.5)),
        ("st_decoupled", "backward_temperature", (0.3, 1.5)),
        ("st_gapped", "temperature", (0.3, 1.5)),
        ("st_gapped", "gap", (0.3, 1.5)),
        ("simple_b", "strength", (0.5, 20.0)),
        ("simple_f", "strength", (0.5, 20.0)),
    ],
)
def test_a_setting_of_its_own_for_every_model_of_a_stack(
    name: str, setting: str, values: tuple[float, float]
) -> None:
    logits, weights = torch.randn(2, 6, 8), torch.randn(8)

    def gradient(value: float | torch.Tensor) -> torch.Tensor:
        leaf = logits.clone().requires_grad_()
        estimator = create(name, **{setting: value})
        generator = torch.Generator().manual_seed(3)
        z = estimator.sample(leaf, 3, (2,), generator=generator)
        (z @ weights).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    both = gradient(torch.tensor(values).reshape(2, 1, 1))
    for i, value in enumerate(values):
        torch.testing.assert_close(both[i], gradient(value)[i])
    assert not torch.allclose(gradient(values[0]), gradient(values[1]))


@pytest.mark.parametrize(
    ("name", "setting"),
    [("imle", "strength"), ("imle", "temperature"), ("softsub", "temperature"),
     ("l2x", "temperature"), ("st_gumbel", "temperature"), ("simple_f", "strength"),
     ("simple_b", "strength")],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(7, 1, 1), (4,), (2, 1), (3, 4)])
def test_settings_that_do_not_fit(name: str, setting: str, shape: tuple[int, ...]) -> None:
    estimator = create(name, **{setting: torch.ones(shape)})
    logits = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(ValueError, match="must broadcast over rows"):
        estimator.surrogate(lambda z: z.sum(-1), logits, 2).backward()


@pytest.mark.parametrize("name", GENERAL)
def test_nothing_again_and_again(name: str) -> None:
    if name in ("exact",):
        return
    estimator = create(name)
    for _ in range(3):
        logits = torch.zeros(0, 2, 4, requires_grad=True)
        estimator.surrogate(lambda z: z.sum(-1), logits, 2).backward()
        assert logits.grad is not None
        assert logits.grad.shape == (0, 2, 4)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_settings_are_shown(name: str) -> None:
    estimator = create(name)
    again = eval(repr(estimator), vars(estimators))
    assert type(again) is type(estimator)
    assert repr(again) == repr(estimator)
    assert repr(create("softsub", temperature=0.25)) == "SoftSub(temperature=0.25, hard=False)"


def test_a_setting_named_like_a_method_is_not_shown() -> None:
    class Named(estimators.Simple):
        def __init__(self, forward: int = 1) -> None:
            super().__init__()

    assert repr(Named()) == "Named()"
