"""The loss of a stack of models, its estimate of the gradient, and what is reported of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import ksubset
from experiments.dvae.model import DiscreteVAE, reconstruction_loss
from ksubset.estimators import Estimator, Pathwise

DIVERGENCES = ("exact", "softmax")
# Of a model on test images; "own": with the samples of the method itself.
LOSSES = ("reconstruction", "divergence", "softmax divergence", "own reconstruction")


@dataclass(frozen=True)
class Share:
    """What a process has of every batch."""

    rank: int = 0
    world: int = 1

    def of(self, size: int) -> slice:
        """Of so many examples."""
        if size % self.world:
            raise ValueError(f"a batch of {size} cannot be shared by {self.world} processes")
        part = size // self.world
        return slice(self.rank * part, (self.rank + 1) * part)


def softmax_divergence(logits: Tensor) -> Tensor:
    """The KL term of the literature, (...): of a softmax over a group's items from the uniform
    law, as if one item were chosen. Exact for k = 1 only."""
    log_p = logits.log_softmax(-1)
    groups, items = logits.shape[-2:]
    return (log_p.exp() * log_p).sum((-2, -1)) + groups * math.log(items)


def _survivors(logits: Tensor) -> tuple[Tensor, Tensor | float]:
    """Logits, and NaN to add to the divergence (...) of those that are none: on CPUs the library
    refuses them, and a model that diverged is not to take the others of its stack along."""
    if logits.is_cuda or bool(logits.isfinite().all()):
        return logits, 0.0
    lost = ~logits.isfinite()
    nowhere = torch.where(lost.any(-1).any(-1), torch.nan, 0.0).to(logits)
    return logits.masked_fill(lost, 0.0), nowhere


class Objective(nn.Module):
    """Negative ELBOs of a batch, averaged over the batch and added over the stack.

    Args:
        kl_weights: of the KL term, one for every member; the losses reported have none.
    """

    def __init__(
        self,
        vae: DiscreteVAE,
        estimator: Estimator,
        samples: int = 1,
        divergence: str = "exact",
        share: Share | None = None,
        kl_weights: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        if divergence not in DIVERGENCES:
            raise ValueError(f"divergence must be one of {DIVERGENCES}, got {divergence!r}")
        self.vae, self.estimator = vae, estimator
        self.samples, self.divergence, self.share = samples, divergence, share or Share()
        weights = torch.tensor(kl_weights).unsqueeze(-1)
        self.register_buffer("kl_weights", weights, persistent=False)
        self.kl_weights: Tensor

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The loss of this process's images (stack, images, pixels), to be added over processes,
        and (2, stack) reconstruction and divergence added over its images."""
        vae, count = self.vae, x.shape[1] * self.share.world
        logits, diverged = _survivors(vae.logits(x))
        here = self.share.of(count)
        seen: list[Tensor] = []

        def loss_fn(z: Tensor) -> Tensor:
            losses = reconstruction_loss(vae.decode(z[:, :, here]), x)
            seen.append(losses.detach())
            return self._among_all(losses, count, 2)

        reconstruction = self.estimator.surrogate(
            loss_fn, self._among_all(logits, count, 1), vae.k, self.samples,
            generator=generator, vectorized=True,
        )  # fmt: skip
        exact = self.divergence == "exact"
        divergence = vae.divergence(logits) if exact else softmax_divergence(logits)
        divergence = divergence + diverged
        # MuProp looks at the marginals first: the last losses are those of samples.
        parts = torch.stack([seen[-1].mean(0).sum(-1), divergence.detach().sum(-1)])
        weighted = self.kl_weights.to(divergence) * divergence
        return (reconstruction + weighted.sum()) / count, parts

    def _among_all(self, values: Tensor, count: int, dim: int) -> Tensor:
        """In the place of this process's examples among those of all processes, zeros elsewhere:
        noise is drawn for the whole batch by every process, so that an example's noise does not
        depend on who has it."""
        if self.share.world == 1:
            return values
        here = self.share.of(count)
        shape = list(values.shape)
        parts = []
        for size in (here.start, None, count - here.stop):
            shape[dim] = size or 0
            parts.append(values if size is None else values.new_zeros(shape))
        return torch.cat(parts, dim)


@torch.no_grad()
def held_out_losses(
    vae: DiscreteVAE, own: Pathwise | None, x: Tensor, generator: torch.Generator
) -> dict[str, Tensor]:
    """Added over images (images, pixels), for every member of a stack (stack,).

    Args:
        own: draws the methods' own samples; None if those are exact.
    """
    x = x.expand(vae.stack or 1, *x.shape)
    logits, diverged = _survivors(vae.logits(x))
    z = ksubset.sample(logits, vae.k, generator=generator)
    found = {
        "reconstruction": reconstruction_loss(vae.decode(z), x),
        "divergence": vae.divergence(logits) + diverged,
        "softmax divergence": softmax_divergence(logits) + diverged,
    }
    found["own reconstruction"] = found["reconstruction"]
    if own is not None:
        z = own.sample(logits, vae.k, generator=generator)
        found["own reconstruction"] = reconstruction_loss(vae.decode(z), x)
    return {name: losses.double().sum(-1) for name, losses in found.items()}
