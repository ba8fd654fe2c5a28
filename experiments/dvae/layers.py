"""The layers of a stack of models, with gradients that need no copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.stack import Dense


class StackedDense(Dense):
    """An affine map; in a stack one for every member, with a backward pass of its own.

    Autograd's gradient of a transposed weight is transposed, and is copied into the layout of the
    weight in every step: of a small batch that is a tenth of the bytes moved.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs), or (stack, rows, inputs)."""
        if self.weight.dim() == 2:
            return super().forward(x)
        found: Tensor = _Affine.apply(x, self.weight, self.bias)
        return found


class _Affine(torch.autograd.Function):
    """x (stack, rows, inputs) by weights (stack, outputs, inputs) and biases (stack, outputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        dx = None
        # Mixed precision: products are in that of the output.
        if ctx.needs_input_grad[0]:
            dx = torch.bmm(g, weight.to(g)).to(x)
        dweight = torch.bmm(g.mT, x.to(g)).to(weight)
        return dx, dweight, g.sum(1).to(weight)
