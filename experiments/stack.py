"""Layers of several models at once: every member of a stack has its own weights, and all are one
batched product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class StackedLayer(nn.Module):
    """Glorot's uniform weights and zero biases, as in the framework the paper used."""

    weight: nn.Parameter
    bias: nn.Parameter
    inputs: int
    outputs: int

    @torch.no_grad()
    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the weights of every member by its own generator."""
        bound = math.sqrt(6 / (self.inputs + self.outputs))
        stacked = self.bias.dim() == 2
        weights = self.weight if stacked else self.weight.unsqueeze(0)
        for weight, generator in zip(weights, generators, strict=True):
            drawn = torch.empty(weight.shape).uniform_(-bound, bound, generator=generator)
            weight.copy_(drawn)
        self.bias.zero_()


def reset_weights(module: nn.Module, seeds: Sequence[int]) -> None:
    """Fresh weights of all layers, those of a member from its seed alone."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for layer in module.modules():
        if isinstance(layer, StackedLayer):
            layer.reset(generators)


class Dense(StackedLayer):
    """An affine map; in a stack, one for every member."""

    def __init__(self, inputs: int, outputs: int, stack: int | None) -> None:
        super().__init__()
        members = () if stack is None else (stack,)
        self.inputs, self.outputs = inputs, outputs
        self.weight = nn.Parameter(torch.empty(*members, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(*members, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs), or (stack, rows, inputs)."""
        if self.weight.dim() == 2:
            return F.linear(x, self.weight, self.bias)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.mT)


# What a layer adds to every channel at a position of padding: nothing is left of them after a ReLU.
_NOTHING = -1e4


def channels_of_texts(channels: int) -> int:
    """How many channels texts have in a stack: at least one more, up to a multiple of eight, as
    GPUs multiply aligned matrices of halves several times as fast. The first of those that are
    added is one for padding and zero for words, the others are zero."""
    return (channels // 8 + 1) * 8


class TextDense(Dense):
    """The same for every position of a text, in a stack: x (stack, texts, positions, inputs), with
    channels as in :func:`channels_of_texts`; the outputs' added channels are zero."""

    def forward(self, x: Tensor) -> Tensor:
        """(stack, texts, positions, outputs)."""
        inputs, outputs = x.shape[-1] - self.weight.shape[2], _spare(self.outputs)
        weight = F.pad(self.weight.mT, (0, outputs, 0, inputs)).to(x.dtype)
        bias = F.pad(self.bias, (0, outputs)).to(x.dtype)
        # In groups of texts: see the gradient of the convolution.
        groups = math.gcd(x.shape[1], _GROUPS)
        grouped = x.unflatten(1, (groups, -1)).flatten(2, 3).flatten(0, 1)
        weight = weight.unsqueeze(1).expand(-1, groups, -1, -1).flatten(0, 1)
        found = torch.bmm(grouped, weight).reshape(*x.shape[:-1], -1)
        return found + bias[:, None, None]


class Convolution(StackedLayer):
    """Over positions of texts, of width 3; channels are as in :func:`channels_of_texts`.

    x (stack, texts, positions, inputs) to (stack, texts, positions, outputs). Padding must be zero
    but for the channel that says so, and is again after a ReLU. The last position of every text
    must be padding, and its gradient zero: texts follow each other in one product.
    """

    def __init__(self, inputs: int, outputs: int, stack: int) -> None:
        super().__init__()
        # Glorot counts what a position sees and what sees it.
        self.inputs, self.outputs = 3 * inputs, 3 * outputs
        self.weight = nn.Parameter(torch.empty(stack, 3, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(stack, outputs))
        # What every position does to itself because it is padding.
        flag = torch.zeros(3, channels_of_texts(inputs), channels_of_texts(outputs))
        flag[1, inputs, :outputs] = _NOTHING
        flag[1, inputs, outputs] = 1
        self.register_buffer("flag", flag, persistent=False)
        self.flag: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Nothing stands before the first position and behind the last."""
        inputs, outputs = self.weight.shape[2:]
        outside = (0, _spare(outputs), 0, _spare(inputs))
        weight = (F.pad(self.weight, outside) + self.flag).to(x.dtype)
        bias = F.pad(self.bias, (0, _spare(outputs))).to(x.dtype)
        found: Tensor = _Width3.apply(x, weight, bias.unsqueeze(1))
        return found


def _spare(channels: int) -> int:
    return channels_of_texts(channels) - channels


# Texts of a member are put into so many groups, at most, for products over all positions.
_GROUPS = 8


class _Width3(torch.autograd.Function):
    """Three products of shifted views: no copies of the input side by side, as unfolding makes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        before, here, after = weight.unbind(1)
        rows = x.flatten(1, 2)
        out = torch.baddbmm(bias, rows, here)
        out[:, 1:].baddbmm_(rows[:, :-1], before)
        out[:, :-1].baddbmm_(rows[:, 1:], after)
        return out.unflatten(1, x.shape[1:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        g = gradients[0].contiguous()
        x, weight = ctx.saved_tensors
        before, here, after = weight.mT.unbind(1)
        dx, rows = None, g.flatten(1, 2)
        if ctx.needs_input_grad[0]:
            dx = torch.bmm(rows, here)
            dx[:, :-1].baddbmm_(rows[:, 1:], before)
            dx[:, 1:].baddbmm_(rows[:, :-1], after)
            dx = dx.unflatten(1, x.shape[1:3])
        # In groups, then added: one small product of many rows per member would leave most of a
        # GPU idle. Groups end with padding, which has no gradient, as texts do.
        groups = math.gcd(x.shape[1], _GROUPS)
        texts, of_texts = (y.reshape(len(y) * groups, -1, y.shape[-1]) for y in (x, g))
        parts = (
            torch.bmm(texts[:, :-1].mT, of_texts[:, 1:]),
            torch.bmm(texts.mT, of_texts),
            torch.bmm(texts[:, 1:].mT, of_texts[:, :-1]),
        )
        dweight = torch.stack([part.unflatten(0, (-1, groups)).sum(1) for part in parts], dim=1)
        return dx, dweight, rows.sum(1, keepdim=True)
