"""Adam with a learning rate for every member of a stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

# TensorFlow's, with which the paper trained.
_EPSILON = 1e-7


class StackedAdam:
    """Adam for stacked parameters (members, ...).

    It is torch's fused Adam on slices of the parameters, members with the same rate in one
    parameter group. Slices share the storage of the parameters and of their gradients: nothing is
    copied, every tensor is read and written once, and every member is updated exactly as if it
    were trained alone. A fused Adam takes no tensor of rates, and one written with `torch._foreach`
    operations moves almost three times as many bytes.

    Args:
        parameters: with their names.
        rates: one for every member.
        capturable: whether steps are captured as a CUDA graph.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        rates: Sequence[float],
        capturable: bool = False,
    ) -> None:
        self._parameters = list(parameters)
        # Runs of members with the same rate: names, whole parameters, bounds and slices.
        self._slices: list[tuple[str, nn.Parameter, slice, Tensor]] = []
        groups: dict[float, list[Tensor]] = {rate: [] for rate in rates}
        for rate, run in groupby(enumerate(rates), key=lambda pair: pair[1]):
            members = [member for member, _ in run]
            bounds = slice(members[0], members[-1] + 1)
            for name, parameter in self._parameters:
                part = parameter.detach()[bounds].requires_grad_()
                self._slices.append((f"{name}.{bounds.start}", parameter, bounds, part))
                groups[rate].append(part)
        self._adam = torch.optim.Adam(
            [{"params": parts, "lr": rate} for rate, parts in groups.items()],
            eps=_EPSILON, fused=True, capturable=capturable,
        )  # fmt: skip
        self._make_state()

    def _make_state(self) -> None:
        """A step with no gradient moves nothing, and leaves the moments to load into."""
        for _, parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.step()
        for state in self._adam.state.values():
            state["step"].zero_()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for _, parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """One update of all members."""
        for _, parameter, bounds, part in self._slices:
            assert parameter.grad is not None
            part.grad = parameter.grad[bounds]
        self._adam.step()

    def state(self) -> dict[str, Tensor]:
        """What it remembers, to be saved or loaded in place."""
        return {
            f"{key}.{name}": value
            for name, _, _, part in self._slices
            for key, value in self._adam.state[part].items()
        }
