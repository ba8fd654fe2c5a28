"""Captum's conventions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

captum = pytest.importorskip("captum.attr")

from ksubset.explain import KSubsetExplainer, MaskedInput  # noqa: E402
from ksubset.explain.captum import KSubsetAttribution  # noqa: E402


@pytest.fixture
def explainer():
    torch.manual_seed(0)
    return KSubsetExplainer(nn.Linear(6, 6), MaskedInput(nn.Linear(6, 2)), k=2)


def test_is_an_attribution_of_marginals(explainer):
    x = torch.randn(5, 6)
    attribution = KSubsetAttribution(explainer)
    assert isinstance(attribution, captum.Attribution)
    assert not attribution.has_convergence_delta()
    assert not attribution.multiplies_by_inputs
    found = attribution.attribute(x, target=1)
    torch.testing.assert_close(found, explainer.explain(x).marginals)
    (again,) = attribution.attribute((x,))
    torch.testing.assert_close(again, found)


def test_mask_and_k(explainer):
    x, mask = torch.randn(3, 6), torch.ones(3, 6, dtype=torch.bool)
    mask[:, 4:] = False
    attribution = KSubsetAttribution(explainer)
    found = attribution.attribute(x, mask=mask, k=torch.tensor([1, 2, 3]))
    assert not found[:, 4:].any()
    torch.testing.assert_close(found.sum(-1), torch.tensor([1.0, 2.0, 3.0]))
    for given in (mask, (mask,)):
        handed_on = attribution.attribute(x, additional_forward_args=given)
        torch.testing.assert_close(handed_on, attribution.attribute(x, mask=mask))


def test_items_with_components():
    class Scorer(nn.Module):
        def forward(self, x):
            return x.sum(-1)

    class Predictor(nn.Module):
        def forward(self, x, z):
            return (x * z.unsqueeze(-1)).sum((1, 2))

    explainer = KSubsetExplainer(Scorer(), Predictor(), k=2)
    x = torch.randn(3, 5, 4)
    found = KSubsetAttribution(explainer).attribute(x)
    assert found.shape == x.shape
    torch.testing.assert_close(found.sum(-1), explainer.explain(x).marginals)


def test_inside_a_noise_tunnel(explainer):
    tunnel = captum.NoiseTunnel(KSubsetAttribution(explainer))
    found = tunnel.attribute(torch.randn(4, 6), nt_samples=3, stdevs=0.1, target=0)
    assert found.shape == (4, 6)
    torch.testing.assert_close(found.sum(-1), torch.full((4,), 2.0))


def test_errors(explainer):
    with pytest.raises(TypeError, match="explainer must be a KSubsetExplainer, got Linear"):
        KSubsetAttribution(nn.Linear(2, 2))
    attribution = KSubsetAttribution(explainer)
    x = torch.randn(2, 6)
    with pytest.raises(ValueError, match="inputs must be a tensor or a tuple with one"):
        attribution.attribute((x, x))
    fewer = KSubsetExplainer(nn.Linear(6, 4), MaskedInput(nn.Linear(6, 2)), k=2)
    fewer.predictor = nn.Bilinear(6, 4, 1)
    with pytest.raises(ValueError, match=r"got \(2, 6\) with scores \(2, 4\)"):
        KSubsetAttribution(fewer).attribute(x)
    with pytest.raises(TypeError, match="additional_forward_args must be a mask, got str"):
        attribution.attribute(x, additional_forward_args="mask")
