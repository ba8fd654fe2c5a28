"""Values from one formula, derivatives from another."""

import torch
from torch import Tensor


def attach(value: Tensor, surrogate: Tensor) -> Tensor:
    """``value``, with all derivatives of ``surrogate``.

    For quantities whose accurate formula in the tilted parameters is not the one that has the
    simple derivative. The two must be equal in exact arithmetic, up to a constant. A surrogate
    that overflowed has no derivative to give.
    """
    zero = torch.where(surrogate.isfinite(), surrogate - surrogate.detach(), 0)
    return value.detach() + zero
