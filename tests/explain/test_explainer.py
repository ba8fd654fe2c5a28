"""The explainer: what it chooses, what it says about it, and what it learns."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from ksubset import oracle
from ksubset.explain import Explanation, KSubsetExplainer, MaskedInput, fit, from_numpy
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
        ({"y": y, "epochs": 0}, "epochs must be at least 1, got 0"),
        ({"y": y, "clip": -1.0}, "clip must be positive, or None, got -1.0"),
        ({"model": lambda x: x[:3]}, "model must return 10 outcomes"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(explainer, x, **arguments)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
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


def test_wrong_types() -> None:
    x, y = torch.randn(10, 4), torch.randn(10)
    explainer = KSubsetExplainer(Scores(), Total(), 2)
    with pytest.raises(ValueError, match=r"must return losses \(10,\), one per example"):
        explainer.loss(x, y, lambda p, t: (p - t).square().mean())
    for arguments, message in (
        ({"epochs": 2.5}, "epochs must be an int, got 2.5"),
        ({"seed": None}, "seed must be an int, got None"),
        ({"loss": 5}, "loss must be a name or a function, got 5"),
        ({"k": 2.0}, "k must be an int or a tensor of them, got float"),
        ({"mask": [True]}, "mask must be a tensor, got list"),
        ({"y": [1.0]}, "y must be a tensor"),
    ):
        with pytest.raises(TypeError, match=message):
            fit(explainer, x, **{"y": y, **arguments})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="estimator must be a name or an Estimator, got int"):
        KSubsetExplainer(Scores(), Total(), 2, estimator=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"k must be an int or a tensor of them, got 2\.0"):
        explainer.explain(x, k=2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one for each of 10 inputs, got shape \(10, 1\)"):
        explainer.explain(x, k=torch.ones(10, 1, dtype=torch.int64))
    with pytest.raises(TypeError, match="mask must be a boolean tensor, got list"):
        explainer.explain(x, mask=[True])  # type: ignore[arg-type]


def test_explaining_leaves_every_module_as_it_was() -> None:
    frozen = nn.BatchNorm1d(4)
    explainer = KSubsetExplainer(nn.Sequential(nn.Linear(4, 4), frozen), Total(), 2)
    explainer.train()
    frozen.eval()
    explainer.explain(torch.randn(6, 4))
    assert explainer.training
    assert not frozen.training


def test_the_best_weights_are_kept_when_training_diverges() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(100, 4), torch.randn(100)
    explainer = KSubsetExplainer(nn.Linear(4, 4), MaskedInput(nn.Linear(4, 1)), 2)
    seen = []

    def breaks_in_the_third(p: Tensor, t: Tensor) -> Tensor:
        broken = len(seen) >= 2 and explainer.training
        return (p.squeeze(-1) - t).square() * (torch.nan if broken else 1.0)

    with pytest.raises(FloatingPointError, match="training diverged in epoch 3"):
        fit(
            explainer, x, y, loss=breaks_in_the_third, epochs=5,
            on_epoch=lambda *told: seen.append(copy.deepcopy(explainer.state_dict())),
        )  # fmt: skip
    assert not explainer.training
    kept = explainer.state_dict()
    assert any(all(torch.equal(kept[n], v) for n, v in state.items()) for state in seen)
    with pytest.raises(FloatingPointError, match="no epoch had a finite validation loss"):
        fit(
            explainer,
            x,
            y,
            loss=lambda p, t: (p.squeeze(-1) - t) * (1 if p.requires_grad else torch.nan),
        )


@pytest.mark.parametrize("estimator", ["l2x", "softsub", "st_gumbel"])
def test_inputs_without_anything_to_choose(estimator: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 4), torch.randn(8)
    mask = torch.ones(8, 4, dtype=torch.bool)
    mask[3] = False
    explainer = KSubsetExplainer(nn.Linear(4, 4), MaskedInput(nn.Linear(4, 1)), 2, estimator)
    explainer.loss(x, y, squared_error, mask=mask).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in explainer.parameters())


def test_honest_with_weights_that_are_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            return self.second(self.first(x * z)).sum(-1)

    explainer = KSubsetExplainer(nn.Linear(4, 4), Tied(), 2, honest=True)
    explainer.loss(torch.randn(6, 4), torch.randn(6), squared_error).backward()


def test_no_input_learns_from_its_own_choice() -> None:
    explainer = KSubsetExplainer(Scores(), Total(), 1, honest=True)
    # Of 40 inputs each chooses the item of its own number.
    logits = 100 * torch.eye(40)
    uniform = 0
    for _ in range(50):
        z = explainer._lesson(logits, 1, None, None)
        uniform += int(z.diagonal().sum())
    assert uniform < 50 * 40 * 0.25 / 40 * 3  # by chance alone
    assert explainer._lesson(torch.tensor([[50.0, 0.0]]), 1, None, None).sum() == 1


def test_a_classifier_that_speaks_numpy() -> None:
    """As scikit-learn's do; whatever the type and the device of the inputs."""
    x = torch.randn(300, 6).double()
    classes = (x[:, 2] > x[:, 5]).long().numpy()
    classifier = LogisticRegression().fit(x.numpy(), classes)
    weights = np.array([0.0, 0.0, 3.0, 0.0, 0.0, -3.0])

    def black_box(a: object) -> np.ndarray:  # only of arrays
        assert isinstance(a, np.ndarray)
        return a @ weights

    for model, loss, outputs in (
        (classifier.predict_proba, "cross_entropy", 2),
        (classifier.predict, "cross_entropy", 2),
        (from_numpy(classifier.predict_proba), "cross_entropy", 2),
        (from_numpy(black_box), "mse", 1),
    ):
        for dtype in (torch.float32, torch.float64):
            predictor = MaskedInput(network(6, outputs))
            explainer = KSubsetExplainer(network(6, 6), predictor, 2).to(dtype)
            history = fit(explainer, x.to(dtype), model=model, loss=loss, epochs=1, k=3)
            assert math.isfinite(history.training[0])


def test_an_explanation_is_one_line() -> None:
    explainer = KSubsetExplainer(nn.Linear(400, 400), MaskedInput(nn.Linear(400, 1)), 2)
    x = torch.randn(300, 400)
    found = explainer.explain(x, k=torch.arange(300) % 3 + 1)
    assert "\n" not in repr(found)
    assert "of 300 inputs of 400 items: 1 to 3 chosen" in repr(found)
    assert "0 inputs" in repr(explainer.explain(x[:0]))


def test_a_text_without_words_is_named() -> None:
    """Where the predictor takes a mean over what is chosen."""

    class Mean(nn.Module):
        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return (x * z).sum(-1) / z.sum(-1)

    x, mask = torch.randn(40, 5), torch.ones(40, 5, dtype=torch.bool)
    mask[[7, 9]] = False
    explainer = KSubsetExplainer(nn.Linear(5, 5), Mean(), 2)
    with pytest.raises(
        FloatingPointError, match="mask allows nothing in 2 examples, the first is 7"
    ):
        fit(explainer, x, x[:, 0], mask=mask, epochs=2)
