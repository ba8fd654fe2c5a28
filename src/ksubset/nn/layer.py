"""A k-subset as a layer of a network."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ksubset import estimators, functional
from ksubset.estimators import Estimator, Pathwise
from ksubset.sizes import Sizes

_EVALUATIONS = ("mode", "marginals", "sample")


class KSubsetLayer(nn.Module):
    """Choose k items by logits: samples with a gradient in training, the mode in evaluation.

    Logits (..., n) become a choice (..., n), one k-subset for every row.

    Args:
        k: how many items are chosen, or sizes such as ``between(2, 5)``; :meth:`forward` takes
            another one, or one per row.
        estimator: the name of a pathwise estimator (:data:`ksubset.estimators.ESTIMATORS`), or an
            instance, which can have settings of its own. When to replace the default, "swap":
            docs/estimators.md.
        evaluation: what evaluation mode returns: "mode", the most likely subset; "marginals", the
            exact probabilities of being chosen; "sample", an exact sample.

    The default estimator needs the gradient of the loss for all items, chosen or not; where only
    those of chosen items are computed, as in a router, use "sparse_swap".

    Examples:
        >>> layer = torch.nn.Sequential(torch.nn.Linear(20, 50), KSubsetLayer(5))
        >>> layer(torch.randn(8, 20)).sum(-1)
        tensor([5., 5., 5., 5., 5., 5., 5., 5.], grad_fn=<SumBackward1>)
        >>> choose = KSubsetLayer(2, evaluation="marginals").eval()
        >>> choose(torch.tensor([1.0, 0.0, 0.0, -1.0]))
        tensor([0.7876, 0.5000, 0.5000, 0.2124])
    """

    def __init__(
        self, k: int | Sizes, estimator: str | Estimator = "swap", evaluation: str = "mode"
    ) -> None:
        super().__init__()
        if isinstance(estimator, str):
            estimator = estimators.create(estimator)
        if not isinstance(estimator, Pathwise):
            names = ", ".join(
                name
                for name, kind in estimators.ESTIMATORS.items()
                if isinstance(kind, type) and issubclass(kind, Pathwise)
            )
            raise ValueError(
                f"estimator must give samples a gradient, which {type(estimator).__name__} does "
                f"not; use its surrogate(), or one of {names}"
            )
        if evaluation not in _EVALUATIONS:
            raise ValueError(
                f"evaluation must be one of {', '.join(_EVALUATIONS)}, got {evaluation!r}"
            )
        self.k = k
        self.estimator = estimator
        self.evaluation = evaluation

    def forward(
        self, logits: Tensor, k: int | Tensor | Sizes | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The choice, or its marginals: (..., n).

        Args:
            logits: (..., n).
            k: another one, one per row, or sizes.
            mask: boolean, broadcast to the logits; False forbids an item.
        """
        chosen: Any = self.k if k is None else k
        if self.training:
            return self.estimator.sample(logits, chosen, mask=mask)
        if self.evaluation == "mode":
            return functional.mode(logits, chosen, mask=mask)
        if self.evaluation == "marginals":
            return functional.marginals(logits, chosen, mask=mask)
        return functional.sample(logits, chosen, mask=mask)

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        return f"k={self.k}, evaluation={self.evaluation!r}"
