"""A scorer, a choice of exactly k items, and a predictor that sees nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ksubset import estimators, functional
from ksubset.estimators import Estimator, Pathwise
from ksubset.estimators.base import check_samples

# The share of lessons with uniformly random choices, from which a predictor learns what the scorer
# does not choose yet.
_UNIFORM = 0.25

Criterion = Callable[[Tensor, Tensor], Tensor]


def losses(criterion: Criterion, prediction: Tensor, y: Tensor) -> Tensor:
    """(batch,), checked: a mean over the batch would pass for the loss of one example."""
    found = criterion(prediction, y)
    if not isinstance(found, Tensor) or found.shape != (len(y),):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"the criterion must return losses ({len(y)},), one per example: {shape}")
    return found


@dataclass(frozen=True, repr=False)
class Explanation:
    """What was chosen for a batch of inputs, and how sure that is.

    Attributes:
        chosen: (batch, n), True for the items of the most likely subset.
        marginals: (batch, n), the exact probability of every item to be chosen: its attribution.
        log_prob: (batch,), the exact log-probability of the chosen subset.
        prediction: what the predictor says when it sees the chosen items only, (batch, ...).

    Examples:
        >>> from ksubset.explain import KSubsetExplainer, MaskedInput
        >>> scorer, network = torch.nn.Identity(), torch.nn.Linear(4, 1)
        >>> explainer = KSubsetExplainer(scorer, MaskedInput(network), k=2)
        >>> found = explainer.explain(torch.tensor([[1.0, 5.0, 0.0, 6.0]]))
        >>> found
        Explanation(of 1 inputs of 4 items: 2 chosen, with probability 0.97)
        >>> found.indices(), found.probability.round(decimals=2)
        ([[3, 1]], tensor([0.9700]))
    """

    chosen: Tensor
    marginals: Tensor
    log_prob: Tensor
    prediction: Tensor

    @property
    def probability(self) -> Tensor:
        """(batch,), of the chosen subset."""
        return self.log_prob.exp()

    def __repr__(self) -> str:
        """One line: how many inputs and items, how many are chosen, how sure that is."""
        inputs, items = self.chosen.shape
        if not inputs:
            return f"Explanation(of 0 inputs of {items} items)"
        counts, chances = self.chosen.sum(-1), self.probability

        def span(low: str, high: str) -> str:
            return low if low == high else f"{low} to {high}"

        return (
            f"Explanation(of {inputs} inputs of {items} items: "
            f"{span(str(int(counts.min())), str(int(counts.max())))} chosen, with probability "
            f"{span(f'{float(chances.min()):.2g}', f'{float(chances.max()):.2g}')})"
        )

    def indices(self) -> list[list[int]]:
        """The chosen items of every input, the most likely first."""
        order = self.marginals.masked_fill(~self.chosen, -1).argsort(-1, descending=True)
        counts = self.chosen.sum(-1).tolist()
        rows = zip(order.tolist(), counts, strict=True)
        return [row[:count] for row, count in rows]


class MaskedInput(nn.Module):
    """A predictor for :class:`KSubsetExplainer` from a network on inputs: what is not chosen is
    zero there. Inputs must be finite: nothing hides a NaN, as a gradient has to pass.

    Args:
        network: takes inputs (batch, n) or (batch, n, d).
        with_choice: the network also sees what was chosen, and can tell a zero from what is hidden:
            the choice stands behind the input, (batch, 2 n) or (batch, n, d + 1).

    Examples:
        >>> from ksubset.explain import MaskedInput
        >>> x, z = torch.tensor([[7.0, 8.0, 9.0]]), torch.tensor([[1.0, 0.0, 1.0]])
        >>> MaskedInput(torch.nn.Identity())(x, z)
        tensor([[7., 0., 9.]])
        >>> MaskedInput(torch.nn.Identity(), with_choice=True)(x, z)
        tensor([[7., 0., 9., 1., 0., 1.]])
    """

    def __init__(self, network: nn.Module, with_choice: bool = False) -> None:
        super().__init__()
        self.network, self.with_choice = network, with_choice

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """What the network says of the chosen items.

        Args:
            x: (batch, n) or (batch, n, d).
            z: the choice, (batch, n).
        """
        choice = z.reshape(*z.shape, *(1,) * (x.dim() - z.dim()))
        seen = x * choice
        return self.network(torch.cat([seen, choice], -1) if self.with_choice else seen)


class KSubsetExplainer(nn.Module):
    r"""Which k items of an input decide? A scorer gives every item a logit, exactly k items are
    drawn from the k-subset distribution of the logits, and a predictor that sees only those must
    predict the outcome. Both are trained end to end (:func:`ksubset.explain.fit`), through the
    choice; what the scorer has learned to choose is the explanation (Chen, Song, Wainwright and
    Jordan, *Learning to Explain*, ICML 2018).

    The outcome may be known labels, or the outputs of a black box that is to be explained. With
    logits :math:`\theta(x)`, a predictor q and a loss :math:`\ell`, what is minimised is
    :math:`\mathrm{E}_{x, y}\, \mathrm{E}_{z \sim p_{\theta(x)}}\, \ell(q(x, z), y)`.

    Args:
        scorer: a module from inputs to logits (batch, n).
        predictor: a module that takes inputs and a choice (batch, n), k-hot but for relaxed
            estimators; :class:`MaskedInput` makes one of a network.
        k: how many items are chosen; fewer where the mask allows fewer.
        estimator: a name (:data:`ksubset.estimators.ESTIMATORS`), or an estimator.
        num_samples: choices drawn for every input in a training step.
        honest: train the predictor on choices that were made without looking at the input: those
            of other inputs of the batch, and for a quarter of the inputs uniformly random ones
            (with a mask or a k per input, for all of them). False trains it on choices that were
            made for its inputs, as the paper does, in one pass of the predictor in place of two.
            It can then learn what the choice itself says: the scorer, which has seen everything,
            tells it the outcome in a code of chosen positions; predictions are excellent and the
            explanation is worthless. What honest training leaves is the noise of a predictor that
            has seen little: with small batches and few examples a scorer can still exploit it.

    Examples:
        >>> scorer, network = torch.nn.Linear(10, 10), torch.nn.Linear(10, 1)
        >>> explainer = KSubsetExplainer(scorer, MaskedInput(network), k=3)
        >>> found = explainer.explain(torch.randn(4, 10))
        >>> found.chosen.sum(-1)
        tensor([3, 3, 3, 3])
        >>> found.marginals.shape, found.probability.shape, found.prediction.shape
        (torch.Size([4, 10]), torch.Size([4]), torch.Size([4, 1]))
    """

    def __init__(
        self,
        scorer: nn.Module,
        predictor: nn.Module,
        k: int,
        estimator: str | Estimator = "simple",
        num_samples: int = 1,
        honest: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"k must be an int (fit and explain take one per input), got {k!r}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        check_samples(num_samples)
        self.scorer, self.predictor = scorer, predictor
        self.k, self.num_samples, self.honest = k, num_samples, honest
        if not isinstance(estimator, str | Estimator):
            raise TypeError(
                f"estimator must be a name or an Estimator, got {type(estimator).__name__}"
            )
        self.estimator = estimators.create(estimator) if isinstance(estimator, str) else estimator

    def logits(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Of all items (batch, n); those of forbidden ones are -inf.

        Args:
            x: inputs (batch, ...).
            mask: (batch, n), False for what must not be chosen.
        """
        scores = self.scorer(x)
        if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != len(x):
            shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"scorer must return logits ({len(x)}, n), got {shape}")
        if mask is None:
            return scores
        if not isinstance(mask, Tensor):
            raise TypeError(f"mask must be a boolean tensor, got {type(mask).__name__}")
        if mask.dtype != torch.bool or mask.shape != scores.shape:
            raise ValueError(
                f"mask must be boolean of the shape {tuple(scores.shape)} of the logits, got "
                f"{mask.dtype} {tuple(mask.shape)}"
            )
        return scores.masked_fill(~mask, -torch.inf)

    def counts(
        self, logits: Tensor, k: int | Tensor | None = None, mask: Tensor | None = None
    ) -> int | Tensor:
        """How many items are chosen: no more than there are to choose from.

        Args:
            logits: (batch, n).
            k: another one, or one per input (batch,).
            mask: (batch, n), False for what must not be chosen.

        Returns:
            An int, or (batch,) where a mask or k says so.
        """
        wanted = self.k if k is None else k
        if isinstance(wanted, Tensor):
            if wanted.shape not in ((), (len(logits),)):
                raise ValueError(
                    f"k must be one number or one for each of {len(logits)} inputs, got shape "
                    f"{tuple(wanted.shape)}"
                )
        elif isinstance(wanted, bool) or not isinstance(wanted, int):
            raise TypeError(f"k must be an int or a tensor of them, got {wanted!r}")
        if mask is None:
            return wanted
        allowed = mask.sum(-1)
        return allowed.clamp(max=wanted) if isinstance(wanted, int) else wanted.minimum(allowed)

    def loss(
        self,
        x: Tensor,
        y: Tensor,
        criterion: Criterion,
        *,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """To call ``backward`` on: the criterion (batch,) of predictions and y, averaged over the
        batch, with the estimator's gradient for the scorer. If it is honest, that of the scorer's
        choices plus that of the predictor's lessons.

        Args:
            x: inputs (batch, ...).
            y: outcomes (batch, ...).
            criterion: takes predictions and outcomes and returns losses (batch,).
            mask: (batch, n), False for what must not be chosen.
            k: another one, or one per input (batch,).
            generator: the source of randomness; the same seed gives the same samples.
        """
        logits = self.logits(x, mask)
        count = self.counts(logits, k, mask)
        predict = self._fixed_predictor() if self.honest else self.predictor
        loss = self.estimator.surrogate(
            lambda z: losses(criterion, predict(x, z), y), logits, count, self.num_samples,
            mask=mask, generator=generator,
        ) / max(len(x), 1)  # fmt: skip
        if not self.honest:
            return loss
        lesson = self._lesson(logits.detach(), count, mask, generator)
        return loss + losses(criterion, self.predictor(x, lesson), y).sum() / max(len(x), 1)

    def _fixed_predictor(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Gradients pass through it, to the choice; its weights get none."""
        named = (*self.predictor.named_parameters(), *self.predictor.named_buffers())
        state = {name: value.detach() for name, value in named}
        return lambda x, z: functional_call(self.predictor, state, (x, z))

    def _lesson(
        self,
        logits: Tensor,
        count: int | Tensor,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Choices (batch, n) that were made without looking at the input they are given with."""
        flat = torch.zeros_like(logits)
        uniform = functional.sample(flat, count, mask=mask, generator=generator)
        if mask is not None or isinstance(count, Tensor) or len(logits) < 2:
            # Another input's choice may fall on what is forbidden here, or be of another size.
            return uniform
        others = functional.sample(logits, count, generator=generator)
        # Round a random circle: no input may get its own.
        circle = torch.randperm(len(logits), generator=generator, device=logits.device)
        other = torch.empty_like(circle)
        other[circle] = circle.roll(1)
        some = torch.rand(len(logits), 1, generator=generator, device=logits.device) < _UNIFORM
        return torch.where(some, uniform, others[other])

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The prediction from a random choice in training, from the most likely in evaluation.

        Args:
            x: inputs (batch, ...).
            mask: (batch, n), False for what must not be chosen.
            k: another one, or one per input (batch,).
            generator: the source of randomness; the same seed gives the same samples.
        """
        logits = self.logits(x, mask)
        count = self.counts(logits, k, mask)
        if not self.training:
            return self.predictor(x, functional.mode(logits, count))
        if not isinstance(self.estimator, Pathwise):
            raise TypeError(
                f"samples of {type(self.estimator).__name__} have no gradient: train with loss()"
            )
        z = self.estimator.sample(logits, count, mask=mask, generator=generator)
        return self.predictor(x, z)

    @torch.no_grad()
    def explain(
        self, x: Tensor, *, mask: Tensor | None = None, k: int | Tensor | None = None
    ) -> Explanation:
        """The most likely choice for every input, with exact probabilities.

        Args:
            x: inputs (batch, ...).
            mask: (batch, n), False for what must not be chosen, padding for instance.
            k: another one, or one per input.
        """
        training = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            logits = self.logits(x, mask)
            count = self.counts(logits, k, mask)
            z = functional.mode(logits, count)
            return Explanation(
                z > 0.5,
                functional.marginals(logits, count),
                functional.log_prob(logits, count, z),
                self.predictor(x, z),
            )
        finally:
            for module, flag in training:
                module.training = flag
