"""Stacked layers against torch's own, member by member."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.stack import Convolution, Dense, TextDense, channels_of_texts, reset_weights

STACK, POSITIONS = 3, 7


def of_texts(x: Tensor, lengths: Tensor) -> Tensor:
    """With the channels that texts have: zeros and the flag behind their ends."""
    words = torch.arange(x.shape[2]) < lengths.unsqueeze(-1)
    x = x * words.unsqueeze(-1)
    more = channels_of_texts(x.shape[-1]) - x.shape[-1]
    flag = F.pad((~words).unsqueeze(-1).to(x), (0, more - 1))
    return torch.cat([x, flag], -1)


@pytest.mark.parametrize(("inputs", "outputs"), [(5, 3), (8, 16), (10, 10)])
@pytest.mark.parametrize("texts", [1, 6, 8])
def test_convolution(inputs, outputs, texts):
    torch.manual_seed(0)
    layer = Convolution(inputs, outputs, STACK).double()
    reset_weights(layer, range(STACK))
    nn.init.normal_(layer.bias)
    lengths = torch.randint(1, POSITIONS, (STACK, texts))
    x = torch.randn(STACK, texts, POSITIONS, inputs, dtype=torch.float64, requires_grad=True)
    found = layer(of_texts(x, lengths)).relu()
    assert found.shape == (STACK, texts, POSITIONS, channels_of_texts(outputs))
    words = (torch.arange(POSITIONS) < lengths.unsqueeze(-1)).unsqueeze(-1)
    # Padding stays padding.
    torch.testing.assert_close(found[..., outputs : outputs + 1], (~words).double())
    assert not found[..., outputs + 1 :].any()
    found = found[..., :outputs]
    expected = torch.zeros_like(found)
    for member in range(STACK):
        weight, bias = layer.weight[member].permute(2, 1, 0), layer.bias[member]
        for text in range(texts):
            alone = x[member, text, : lengths[member, text]]
            expected[member, text, : len(alone)] = F.conv1d(alone.mT, weight, bias, padding=1).mT
    expected = expected.relu()
    torch.testing.assert_close(found, expected)
    g = torch.randn_like(expected)
    wanted = [x, layer.weight, layer.bias]
    ours = torch.autograd.grad(found, wanted, g)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, wanted, g))


def test_text_dense_is_dense():
    layer, plain = TextDense(5, 3, STACK), Dense(5, 3, STACK)
    reset_weights(layer, [1, 2, 3])
    nn.init.normal_(layer.bias)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(STACK, 6, POSITIONS, 5)
    found = layer(of_texts(x, torch.full((STACK, 6), POSITIONS)))
    torch.testing.assert_close(found[..., :3].flatten(1, 2), plain(x.flatten(1, 2)))
    assert not found[..., 3:].any()


def test_weights_of_a_member_come_from_its_seed():
    both, alone = Convolution(4, 4, 2), Convolution(4, 4, 1)
    reset_weights(both, [7, 8])
    reset_weights(alone, [8])
    torch.testing.assert_close(both.weight[1], alone.weight[0])
    assert not torch.equal(both.weight[0], both.weight[1])
