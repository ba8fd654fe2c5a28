"""SIMPLE as a distribution: the honest base, with reparametrised samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset import functional
from ksubset.distributions.ksubset import KSubset

__all__ = ["SimpleKSubset"]


class SimpleKSubset(KSubset):
    r"""A :class:`KSubset` whose :meth:`rsample` carries SIMPLE's gradient.

    The samples are exact; their gradient is that of the marginals, :math:`\mathrm{Cov}(z)\, g`, an
    estimate: biased in general, exact for a loss that is linear in the sample.

    Args:
        k: the number of chosen items: an int, an integer tensor broadcast over the batch, or sizes
            such as ``between(2, 5)``.
        logits: (..., n); -inf forbids an item, +inf forces it.
        probs: the probabilities of the independent coins, instead of logits.
        mask: boolean, broadcast to the logits; False forbids an item.
        method: "auto", "spectral", "dp" or "tree": the ways to compute the same.
        validate_args: as in ``torch.distributions``: check values of arguments and samples.

    Examples:
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = SimpleKSubset(2, logits=logits).rsample()
        >>> (z @ torch.tensor([1.0, 0.0, 0.0, 0.0])).backward()
        >>> logits.grad
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """

    has_rsample = True

    def rsample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Exact samples with SIMPLE's gradient, (*sample_shape, *batch_shape, n).

        Args:
            sample_shape: the leading shape of several samples per row.
            generator: the source of randomness; the same seed gives the same samples.
        """
        return functional.simple(
            self.logits, self._size, sample_shape, generator=generator, **self._options()
        )
