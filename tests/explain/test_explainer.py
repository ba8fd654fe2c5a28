"""The explainer: what it chooses, what it says about it, and what it learns."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from ksubset import oracle
from ksubset.explain import Explanation, KSubsetExplainer, MaskedInput, fit
from ksubset.explain.fitting import squared_error


class Scores(nn.Module):
    """Logits that are the inputs themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Total(nn.Module):
    """The sum of the chosen inputs."""

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return (x * z).sum(-1)


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def test_an_explanation_is_exact() -> None:
    x = torch.randn(5, 7, dtype=torch.float64)
    found = KSubsetExplainer(Scores(), Total(), 3).explain(x)
    assert isinstance(found, Explanation)
    for row, chosen, marginals, probability, prediction in zip(
        x, found.chosen, found.marginals, found.probability, found.prediction, strict=True
    ):
        assert set(chosen.nonzero().flatten().tolist()) == set(row.topk(3).indices.tolist())
        torch.testing.assert_close(marginals, oracle.marginals(row, 3))
        exact = (row[chosen].sum() - oracle.log_partition(row, 3)).exp()
        torch.testing.assert_close(probability, exact)
        torch.testing.assert_close(prediction, row[chosen].sum())
    assert found.indices() == x.argsort(-1, descending=True)[:, :3].tolist()


def test_padding_and_a_k_of_its_own_for_every_example() -> None:
    x = torch.randn(4, 6)
    x[:, 4:] = 50.0  # padding that a scorer would love
    mask = torch.arange(6) < torch.tensor([[4], [2], [1], [4]])
    explainer = KSubsetExplainer(Scores(), Total(), 3)
    found = explainer.explain(x, mask=mask)
    assert found.chosen.sum(-1).tolist() == [3, 2, 1, 3]
    assert not found.chosen[~mask].any()
    assert not found.marginals[~mask].any()
    assert [len(row) for row in found.indices()] == [3, 2, 1, 3]
    found = explainer.explain(x, mask=mask, k=torch.tensor([1, 1, 1, 4]))
    assert found.chosen.sum(-1).tolist() == [1, 1, 1, 4]
    explainer.train()
    for _ in range(20):
        value = explainer.loss(x, torch.zeros(4), lambda p, y: p - y, mask=mask)
        assert abs(float(value)) < 10  # nothing of the padding


def switch(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which of two pairs of features counts, the first feature says: it and they are the truth."""
    x = torch.randn(count, 8)
    first = x[:, 0] > 0
    y = torch.where(first, x[:, 1] + x[:, 2], x[:, 3] - x[:, 4])
    truth = torch.zeros(count, 8, dtype=torch.bool)
    truth[first, 1] = truth[first, 2] = True
    truth[~first, 3] = truth[~first, 4] = True
    return x, y, truth


@pytest.mark.parametrize("estimator", ["simple", "reinmax"])
def test_what_decides_is_found(estimator: str) -> None:
    x, y, truth = switch(3000)
    scorer, predictor = network(8, 8), MaskedInput(network(8, 1))
    explainer = KSubsetExplainer(scorer, predictor, 2, estimator, num_samples=4)
    history = fit(explainer, x, y, epochs=30, learning_rate=5e-3, seed=1)
    assert len(history.training) == len(history.validation) == 30
    assert min(history.validation) == history.validation[history.best_epoch - 1]
    assert not explainer.training
    x, y, truth = switch(1000)
    found = explainer.explain(x)
    hits = (found.chosen & truth).sum(-1).float().mean() / 2
    assert hits > 0.9
    assert found.marginals[truth].mean() > 2 * found.marginals[~truth].mean()


def test_a_black_box_is_explained() -> None:
    x = torch.randn(1500, 6)

    def black_box(x: Tensor) -> Tensor:
        return torch.softmax(torch.stack([3 * x[:, 2], -3 * x[:, 5]], -1), -1)

    explainer = KSubsetExplainer(network(6, 6), MaskedInput(network(6, 2)), 2)
    history = fit(
        explainer, x, model=black_box, loss="cross_entropy", epochs=12, learning_rate=5e-3, clip=1.0
    )
    assert history.best_epoch > 0
    found = explainer.explain(x)
    assert found.chosen[:, [2, 5]].float().mean() > 0.9
    agrees = found.prediction.argmax(-1) == black_box(x).argmax(-1)
    assert agrees.float().mean() > 0.9


def test_the_same_seed_gives_the_same_explainer() -> None:
    x, y, _ = switch(200)
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(5)
        explainer = KSubsetExplainer(network(8, 8), MaskedInput(network(8, 1)), 2)
        fit(explainer, x, y, epochs=2, seed=seed)
        found.append(explainer.explain(x).marginals)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_estimators_without_a_pathwise_gradient() -> None:
    x, y, _ = switch(100)
    explainer = KSubsetExplainer(network(8, 8), MaskedInput(network(8, 1)), 2, "score")
    fit(explainer, x, y, epochs=1, validation=0)
    explainer.train()
    with pytest.raises(TypeError, match=r"samples of Score have no gradient: train with loss\(\)"):
        explainer(x)
    explainer.eval()
    assert explainer(x).shape == (100, 1)


def test_clear_errors() -> None:
    x, y = torch.randn(10, 4), torch.randn(10)
    explainer = KSubsetExplainer(Scores(), Total(), 2)
    for arguments, message in (
        ({"y": y, "model": Total()}, "either y or model must be given"),
        ({}, "either y or model must be given"),
        ({"y": y[:5]}, "y must be of 10 examples, got 5"),
        ({"y": y, "mask": torch.ones(3, 4, dtype=torch.bool)}, "mask must be of 10 examples"),
        ({"y": y, "loss": "hinge"}, "loss must be one of mse, cross_entropy"),
        ({"y": y, "validation": 1.0}, r"validation must be in \[0, 1\), got 1.0"),
        ({"y": y, "epochs": 0}, "epochs and batch_size must be positive, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(explainer, x, **arguments)
    with pytest.raises(ValueError, match="k must be an int of at least 1, got 0"):
        KSubsetExplainer(Scores(), Total(), 0)
    with pytest.raises(ValueError, match=r"scorer must return logits \(10, n\), got \(10, 4, 1\)"):
        KSubsetExplainer(nn.Unflatten(1, (4, 1)), Total(), 2).explain(x)
    with pytest.raises(ValueError, match=r"mask must be boolean of the shape \(10, 4\)"):
        explainer.explain(x, mask=torch.ones(10, 4))
    with pytest.raises(ValueError, match="must have the same shape"):
        fit(KSubsetExplainer(nn.Linear(4, 4), MaskedInput(nn.Linear(4, 3)), 2), x, y)


class Told(nn.Module):
    """A predictor that reads nothing but the choice."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.read = network(n, 1)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return self.read(z)


@pytest.mark.parametrize("honest", [False, True])
def test_an_honest_predictor_cannot_be_told_the_outcome(honest: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 6)
    y = (x[:, 0] > 0).float()
    explainer = KSubsetExplainer(network(6, 6), Told(6), 2, honest=honest)
    history = fit(explainer, x, y, epochs=8, batch_size=100, learning_rate=5e-3)
    # Without a code, one half is all that can be said: an error of a quarter.
    if honest:
        assert min(history.validation) > 0.2
    else:
        assert min(history.validation) < 0.05


@pytest.mark.parametrize("estimator", ["simple", "l2x", "score"])
def test_honest_lessons_leave_the_scorer_and_the_predictor_to_themselves(estimator: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 6), torch.randn(8)
    explainer = KSubsetExplainer(
        nn.Linear(6, 6), MaskedInput(nn.Linear(6, 1)), 2, estimator, num_samples=4, honest=True
    )
    criterion = squared_error
    explainer.loss(x, y, criterion).backward()
    assert all(p.grad is not None and p.grad.any() for p in explainer.parameters())
    # Where the lesson is taken away, the predictor learns nothing at all.
    explainer.zero_grad()
    explainer._lesson = lambda *given: torch.zeros(8, 6)  # type: ignore[method-assign]
    explainer.predictor.network.bias.requires_grad_(False)  # type: ignore[union-attr]
    explainer.loss(x, y, criterion).backward()
    weight = explainer.predictor.network.weight  # type: ignore[union-attr]
    assert not weight.grad.any()
    assert explainer.scorer.weight.grad.any()  # type: ignore[union-attr]


def test_lessons_say_nothing_about_their_inputs() -> None:
    torch.manual_seed(0)
    explainer = KSubsetExplainer(Scores(), Total(), 2, honest=True)
    n, rows = 6, 60_000
    logits = torch.zeros(rows, n)
    first = torch.arange(rows) < rows // 2
    logits[first, 0], logits[~first, 5] = 4.0, 4.0
    z = explainer._lesson(logits, 2, None, None)
    assert (z.sum(-1) == 2).all()
    torch.testing.assert_close(z[first].mean(0), z[~first].mean(0), rtol=0, atol=0.02)
    # They are of the law of all inputs together, a quarter of them uniform.
    both = torch.stack([oracle.marginals(row, 2) for row in logits[[0, -1]].double()])
    expected = 0.75 * both.mean(0) + 0.25 * 2 / n
    torch.testing.assert_close(z.mean(0).double(), expected, rtol=0, atol=0.02)
    mask = torch.arange(n) < 4
    z = explainer._lesson(logits, 2, mask.expand(rows, n), None)
    torch.testing.assert_close(z.mean(0), torch.tensor([0.5] * 4 + [0.0] * 2), rtol=0, atol=0.02)
    counts = torch.arange(rows) % 3
    assert torch.equal(explainer._lesson(logits, counts, None, None).sum(-1), counts.float())


def test_masked_input_with_the_choice() -> None:
    seen = MaskedInput(nn.Identity(), with_choice=True)
    x, z = torch.tensor([[3.0, 0.0, 5.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert seen(x, z).tolist() == [[3.0, 0.0, 0.0, 1.0, 1.0, 0.0]]
    vectors = torch.ones(1, 3, 2)
    assert seen(vectors, z).tolist() == [[[1, 1, 1], [1, 1, 1], [0, 0, 0]]]


def test_the_learning_rate_falls() -> None:
    rates: list[float] = []

    class Watched(torch.optim.Adam):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])
            super().step()

    explainer = KSubsetExplainer(nn.Linear(6, 6), MaskedInput(nn.Linear(6, 1)), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.optim.Adam", Watched)
        fit(
            explainer, torch.randn(90, 6), torch.randn(90), epochs=2, batch_size=20, decay=True,
            learning_rate=0.1, validation=0,
        )  # fmt: skip
    assert len(rates) == 10
    assert rates[0] == pytest.approx(0.1)
    assert all(a > b for a, b in pairwise(rates))
    assert rates[-1] < 0.01
