"""Constraints of the k-subset distribution's arguments and support."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import Transform, identity_transform

from ksubset.sizes import Sizes, admits

__all__ = ["extended_real_vector", "k_hot"]


class _ExtendedReal(Constraint):
    """Real, -inf or +inf, but not NaN."""

    def check(self, value: Tensor) -> Tensor:
        return ~value.isnan()


@biject_to.register(_ExtendedReal)  # type: ignore[untyped-decorator]
@transform_to.register(_ExtendedReal)  # type: ignore[untyped-decorator]
def _from_reals(_: Constraint) -> Transform:
    """Onto the finite ones; an item that is forbidden or forced is so by choice, not by fitting."""
    return identity_transform


extended_real_vector = constraints.independent(_ExtendedReal(), 1)


class k_hot(Constraint):  # noqa: N801 - named like torch's own constraints
    r"""Vectors of zeros with exactly k ones: :math:`z \in \{0, 1\}^n`, :math:`\sum_i z_i = k`;
    or with as many as one of several sizes.

    The constraint that is the support of :class:`KSubset`.

    Args:
        k: integers of a shape that broadcasts with the batch shape of what is checked, or sizes.

    Examples:
        >>> pairs = k_hot(torch.tensor(2))
        >>> pairs.check(torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [2.0, 0.0, 0.0]]))
        tensor([ True, False, False])
        >>> KSubset(2, logits=torch.zeros(3)).support
        k_hot(k=2)
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, k: Tensor | Sizes) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Which vectors are k-hot: (...) of values (..., n)."""
        binary = ((value == 0) | (value == 1)).all(-1)
        # Counted, not summed: half precision cannot count beyond 256.
        ones = (value != 0).sum(-1)
        if isinstance(self.k, Sizes):
            return binary & admits(self.k, ones, value.shape[-1])
        return binary & (ones == self.k)

    def __repr__(self) -> str:
        if isinstance(self.k, Sizes):
            return f"k_hot(k={self.k!r})"
        return f"k_hot(k={self.k.tolist()})"
