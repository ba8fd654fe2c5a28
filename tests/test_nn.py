from __future__ import annotations

import pytest
import torch
from torch import nn

import ksubset
from ksubset.estimators import create
from ksubset.nn import KSubsetLayer


def test_a_network_finds_planted_features() -> None:
    """Ten of two hundred make y, not linearly; the layer has to choose ten."""
    generator = torch.Generator().manual_seed(0)
    planted = torch.randperm(200, generator=generator)[:10]
    x = torch.randn(2000, 200, generator=generator)
    signs = torch.tensor([1.0, -1.0]).repeat(5)
    y = (x[:, planted] * signs).sum(-1) + 0.5 * x[:, planted].square().sum(-1)
    y = (y - y.mean()) / y.std()
    torch.manual_seed(0)
    logits = nn.Parameter(torch.zeros(200))
    layer = KSubsetLayer(10)
    network = nn.Sequential(nn.Linear(200, 64), nn.ReLU(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(
        [{"params": [logits], "lr": 0.1}, {"params": network.parameters(), "lr": 3e-3}]
    )
    for _ in range(600):
        rows = torch.randint(2000, (128,))
        z = layer(logits.expand(128, 200))
        loss = (network(x[rows] * z).squeeze(-1) - y[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    layer.eval()
    assert set(layer(logits).nonzero().flatten().tolist()) == set(planted.tolist())


@pytest.mark.parametrize("name", ["simple", "reinmax", "imle", "st_gumbel"])
def test_training_and_evaluation(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 9), KSubsetLayer(3, name), nn.Linear(9, 1))
    x = torch.randn(5, 4)
    model(x).sum().backward()
    assert model[0].weight.grad.isfinite().all()
    model.eval()
    hidden = model[0](x)
    assert torch.equal(model[1](hidden), ksubset.mode(hidden, 3))
    layer = KSubsetLayer(3, name, evaluation="marginals").eval()
    assert torch.equal(layer(hidden), ksubset.marginals(hidden, 3))
    layer = KSubsetLayer(3, name, evaluation="sample").eval()
    mask = torch.arange(9) < 4
    chosen = layer(hidden, k=torch.tensor([1, 2, 3, 4, 0]), mask=mask)
    assert torch.equal(chosen.sum(-1), torch.tensor([1.0, 2, 3, 4, 0]))
    assert not chosen[:, ~mask].any()


def test_under_compile() -> None:
    model = nn.Sequential(nn.Linear(4, 9), KSubsetLayer(3), nn.Linear(9, 1))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 4)
    compiled(x).sum().backward()
    assert model[0].weight.grad.abs().sum() > 0
    model.eval()
    torch.testing.assert_close(compiled(x), model(x))


def test_buffers_are_only_those_an_estimator_needs() -> None:
    assert not KSubsetLayer(3).state_dict()
    layer = KSubsetLayer(3, "aimle")
    assert set(layer.state_dict()) == {"estimator.alpha", "estimator.average"}
    other = KSubsetLayer(3, create("aimle", start=0.2))
    other.load_state_dict(layer.state_dict())
    assert float(other.estimator.alpha) == 1
    assert "k=3" in repr(layer)


def test_what_cannot_be_a_layer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"which Score does not; use its surrogate\(\), or one of"):
        KSubsetLayer(3, "score")
    with pytest.raises(ValueError, match="evaluation must be one of mode, marginals, sample"):
        KSubsetLayer(3, evaluation="map")
