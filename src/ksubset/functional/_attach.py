"""Values from one formula, derivatives from another."""

from torch import Tensor


def attach(value: Tensor, surrogate: Tensor) -> Tensor:
    """``value``, with all derivatives of ``surrogate``.

    For quantities whose accurate formula in the tilted parameters is not the one that has the
    simple derivative. The two must be equal in exact arithmetic, up to a constant.
    """
    return value.detach() + (surrogate - surrogate.detach())
