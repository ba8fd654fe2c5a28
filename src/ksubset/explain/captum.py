"""An explainer as one of Captum's attributions: what takes those takes it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ksubset.explain.explainer import KSubsetExplainer

try:
    from captum.attr import Attribution
    from captum.log import log_usage
except ImportError as error:
    raise ImportError(
        "ksubset.explain.captum needs Captum: pip install captum, or ksubset[captum]"
    ) from error

__all__ = ["KSubsetAttribution"]


class KSubsetAttribution(Attribution):
    r"""Attributions that are probabilities: of every item to be among the k that are chosen,
    :math:`\mu_i = P(z_i = 1)` under the distribution of the explainer's logits.

    They are not negative and add up to k for every input; they do not depend on the prediction's
    size, and there is no convergence delta.

    Args:
        explainer: a fitted one.

    Examples:
        >>> from ksubset.explain import KSubsetExplainer, MaskedInput
        >>> from ksubset.explain.captum import KSubsetAttribution
        >>> scorer, network = torch.nn.Linear(10, 10), torch.nn.Linear(10, 1)
        >>> explainer = KSubsetExplainer(scorer, MaskedInput(network), k=3)
        >>> attribution = KSubsetAttribution(explainer)
        >>> attribution.attribute(torch.randn(4, 10)).sum(-1).round()
        tensor([3., 3., 3., 3.])
    """

    def __init__(self, explainer: KSubsetExplainer) -> None:
        if not isinstance(explainer, KSubsetExplainer):
            raise TypeError(f"explainer must be a KSubsetExplainer, got {type(explainer).__name__}")
        super().__init__(explainer)
        self.explainer = explainer

    # Captum's own signature: inputs may be a tensor or a tuple of them, and its meta-algorithms
    # hand on a target and further arguments of the model. They also expect its decorator.
    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self,
        inputs: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        *,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
    ) -> Any:
        """Marginals in the shape of the inputs (batch, n, ...): of an item with several components
        every one has an equal share, so that their sum is the item's marginal.

        Args:
            inputs: a tensor (batch, n, ...), or a tuple with one; the answer is of the same kind.
            target: there is one explanation for all outputs of a model: it makes no difference.
            additional_forward_args: the mask, for what hands on nothing else.
            mask: (batch, n), False for what must not be chosen.
            k: another one than the explainer's, or one per input (batch,).

        Returns:
            (batch, n, ...), as the inputs are given.
        """
        alone = isinstance(inputs, Tensor)
        if not alone and (not isinstance(inputs, tuple) or len(inputs) != 1):
            raise ValueError(
                f"inputs must be a tensor or a tuple with one, got {type(inputs).__name__}"
                + (f" with {len(inputs)}" if isinstance(inputs, tuple) else "")
            )
        x: Tensor = inputs if alone else inputs[0]
        if mask is None:
            mask = _mask_among(additional_forward_args)
        marginals = self.explainer.explain(x, mask=mask, k=k).marginals
        if marginals.shape != x.shape[:2]:
            raise ValueError(
                f"inputs must be (batch, n, ...) with the items that are scored, got "
                f"{tuple(x.shape)} with scores {tuple(marginals.shape)}"
            )
        more = x.dim() - marginals.dim()
        if more:
            components = x[0, 0].numel() if x.numel() else 1
            marginals = marginals.reshape(*marginals.shape, *(1,) * more) / components
            marginals = marginals.expand(x.shape).clone()
        return marginals if alone else (marginals,)

    def has_convergence_delta(self) -> bool:
        """No: attributions do not add up to a difference of predictions."""
        return False

    @property
    def multiplies_by_inputs(self) -> bool:
        """No."""
        return False


def _mask_among(more: Any) -> Tensor | None:
    if isinstance(more, tuple):
        if len(more) > 1:
            raise ValueError(
                f"additional_forward_args must be a mask or nothing, got {len(more)} arguments"
            )
        more = more[0] if more else None
    if more is not None and not isinstance(more, Tensor):
        raise TypeError(f"additional_forward_args must be a mask, got {type(more).__name__}")
    return more
