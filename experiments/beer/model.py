"""The paper's networks for texts, several at once: one scores words, one sees k of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.datasets.beer import PADDING
from experiments.stack import Convolution, Dense, TextDense, channels_of_texts, reset_weights
from ksubset.estimators import Estimator
from ksubset.explain import KSubsetExplainer

CHANNELS, HIDDEN, DROPOUT = 100, 250, 0.2


class _Stacked(nn.Module):
    """Inputs (stack rows, length) are tokens: the members' rows follow each other."""

    def __init__(self, vectors: Tensor, stack: int) -> None:
        super().__init__()
        self.stack = stack
        # Frozen, and the same for all: no part of the weights.
        self.register_buffer("vectors", vectors, persistent=False)
        self.vectors: Tensor

    def members(self, x: Tensor) -> Tensor:
        """(stack, rows of a member, ...)."""
        return x.unflatten(0, (self.stack, -1))


class Scorer(_Stacked):
    """A convolution of width 3; from it, what is in the whole text (the largest value of every
    channel, through a dense layer) and, by two more convolutions, what is around a word; together a
    logit for every word.

    Positions of padding are zero in every layer, so that a word's logit does not depend on how
    far its text was padded. In bfloat16, if asked for, up to the last layer.
    """

    def __init__(self, vectors: Tensor, stack: int, dtype: torch.dtype = torch.float32) -> None:
        size = vectors.shape[1]
        table = F.pad(vectors, (0, channels_of_texts(size) - size))
        table[PADDING, size] = 1
        super().__init__(table.to(dtype), stack)
        self.first = Convolution(size, CHANNELS, stack)
        self.second = Convolution(CHANNELS, CHANNELS, stack)
        self.third = Convolution(CHANNELS, CHANNELS, stack)
        self.whole = TextDense(CHANNELS, CHANNELS, stack)
        # Of the two parts side by side, one layer: written as two, the part that is the same for
        # all words of a text is multiplied once.
        self.around = TextDense(CHANNELS, CHANNELS, stack)
        self.of_whole = TextDense(CHANNELS, CHANNELS, stack)
        self.around.inputs = self.of_whole.inputs = 2 * CHANNELS
        self.last = TextDense(CHANNELS, 1, stack)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (stack rows, length)."""
        # Padding parts the texts.
        tokens = F.pad(self.members(tokens), (0, 1))
        first = self.first(self.vectors[tokens]).relu()
        whole = self.whole(first.amax(2, keepdim=True)).relu()
        around = self.third(self.second(first).relu()).relu()
        # Dropout of both parts: of the whole's once for all words of a text.
        around = self.around(F.dropout(around, DROPOUT, self.training))
        whole = self.of_whole(F.dropout(whole, DROPOUT, self.training))
        logits: Tensor = self.last((around + whole).relu().to(self.last.weight.dtype))
        return logits[:, :, :-1, 0].flatten(0, 1)


class Predictor(_Stacked):
    """The mean of the chosen words' vectors, through a hidden layer, to a rating in [0, 1]."""

    def __init__(self, vectors: Tensor, stack: int, k: int) -> None:
        super().__init__(vectors, stack)
        self.k = k
        self.hidden = Dense(vectors.shape[1], HIDDEN, stack)
        self.rating = Dense(HIDDEN, 1, stack)

    def forward(self, tokens: Tensor, z: Tensor) -> Tensor:
        """Ratings (stack rows,) for a choice (stack rows, length)."""
        chosen = torch.bmm(z.unsqueeze(1), self.vectors[tokens]).squeeze(1)
        # Not the sum of z: that of relaxed choices is not always k.
        count = (tokens != PADDING).sum(-1, keepdim=True).clamp(1, self.k)
        mean = chosen / count
        hidden = self.hidden(self.members(mean)).relu()
        return self.rating(hidden).sigmoid().flatten()


class ReviewExplainer(KSubsetExplainer):
    """A stack of them, the weights of each from its seed."""

    def __init__(
        self,
        vectors: Tensor,
        k: int,
        estimator: Estimator,
        seeds: Sequence[int],
        num_samples: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        scorer, predictor = Scorer(vectors, len(seeds), dtype), Predictor(vectors, len(seeds), k)
        super().__init__(scorer, predictor, k, estimator, num_samples, honest=False)
        reset_weights(self, seeds)

    def logits(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Without NaN: a member that diverged is not to take the others of its stack along. Its
        predictions are NaN nevertheless, as its predictor is."""
        found = super().logits(x, mask)
        return found.masked_fill(found.isnan(), 0)

    def counts(
        self, logits: Tensor, k: int | Tensor | None = None, mask: Tensor | None = None
    ) -> int | Tensor:
        """Reviews to train on have k words at least: a plain number, which relaxations need to
        know on the host, where a captured step cannot ask."""
        return self.k if self.training else super().counts(logits, k, mask)
