"""The model: images to groups of k-subsets and back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

import ksubset
from experiments.dvae.layers import StackedDense
from experiments.stack import reset_weights

HIDDEN = (512, 256)
_CONFIGURATION = "configuration"


class DiscreteVAE(nn.Module):
    r"""A latent code of ``groups`` k-subsets of ``items`` each, with a uniform prior.

    The encoder gives logits, the code is drawn from the exact k-subset distribution, the decoder
    gives Bernoulli logits of pixels. Per image

    .. math:: \mathrm{ELBO} = \mathrm{E}_{z \sim q(z|x)} \log p(x|z) - \sum_{\text{groups}}
        \mathrm{KL}(q \,\|\, \text{uniform}), \qquad \mathrm{KL} = \log \binom{n}{k} - H(q) .

    With ``stack`` it is that many models at once; everything then has a leading axis of members.

    Example:
        >>> vae = DiscreteVAE(pixels=64, k=10)
        >>> x = torch.rand(5, 64)
        >>> vae.encode(x).sample().shape
        torch.Size([5, 20, 20])
        >>> vae.elbo(x, num_samples=8).shape
        torch.Size([5])
        >>> vae.sample(3).shape
        torch.Size([3, 64])
    """

    def __init__(
        self,
        pixels: int = 784,
        k: int = 10,
        groups: int = 20,
        items: int = 20,
        hidden: Sequence[int] = HIDDEN,
        stack: int | None = None,
    ) -> None:
        super().__init__()
        if not 0 < k < items:
            raise ValueError(f"k must be between 1 and items - 1 = {items - 1}, got {k}")
        if stack is not None and stack < 1:
            raise ValueError(f"stack must be at least 1, or None for a single model, got {stack}")
        self.pixels, self.k, self.groups, self.items = pixels, k, groups, items
        self.hidden, self.stack = tuple(hidden), stack
        code = groups * items
        self.encoder = _network((pixels, *hidden, code), stack)
        self.decoder = _network((code, *reversed(hidden), pixels), stack)
        self.reset(range(stack or 1))

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    def reset(self, seeds: Sequence[int]) -> None:
        """Fresh weights, those of a member from its seed alone."""
        reset_weights(self, seeds)

    def logits(self, x: Tensor) -> Tensor:
        """Of the code, (..., groups, items), for images (..., pixels); in a stack
        (stack, images, pixels)."""
        return self.encoder(x).unflatten(-1, (self.groups, self.items))

    def encode(self, x: Tensor) -> ksubset.KSubset:
        """The distribution of the code of images (..., pixels): its marginals, samples, mode and
        entropy."""
        return ksubset.KSubset(self.k, logits=self.logits(x))

    def decode(self, z: Tensor) -> Tensor:
        """Logits of pixels (..., pixels) for codes (..., groups, items); in a stack
        (..., stack, images, groups, items)."""
        flat = z.flatten(-2)
        if self.stack is None or flat.dim() == 3:
            return self.decoder(flat)
        # Samples of an image are rows like any other for the batched product.
        members = flat.movedim(-3, 0)
        found = self.decoder(members.flatten(1, -2)).unflatten(1, members.shape[1:-1])
        return found.movedim(0, -3)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Images (count, pixels) drawn from the prior: probabilities of pixels."""
        logits = torch.zeros(
            *(() if self.stack is None else (self.stack,)), count, self.groups, self.items,
            device=self.device, dtype=next(self.parameters()).dtype,
        )  # fmt: skip
        return self.decode(ksubset.sample(logits, self.k, generator=generator)).sigmoid()

    def divergence(self, logits: Tensor) -> Tensor:
        """The exact KL (...) of the code from its prior, for logits (..., groups, items).

        From the entropy: a code has many nats, so that the digits :func:`ksubset.kl_to_uniform`
        keeps for a tiny KL are not needed, and the step has a hundred small kernels fewer.
        """
        subsets = math.comb(self.items, self.k)
        return (math.log(subsets) - ksubset.entropy(logits, self.k)).sum(-1)

    def elbo(
        self, x: Tensor, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """A lower bound of log p(x) (...): exact KL, reconstruction averaged over samples."""
        _check_samples(num_samples)
        logits = self.logits(x)
        z = ksubset.sample(logits, self.k, (num_samples,), generator=generator)
        return -reconstruction_loss(self.decode(z), x).mean(0) - self.divergence(logits)

    def importance_bound(
        self, x: Tensor, num_samples: int = 64, generator: torch.Generator | None = None
    ) -> Tensor:
        """A tighter bound of log p(x) (...): the importance-weighted one (IWAE), which exact
        log-probabilities of the code make possible. For binary images."""
        _check_samples(num_samples)
        logits = self.logits(x)
        z = ksubset.sample(logits, self.k, (num_samples,), generator=generator)
        prior = -self.groups * math.log(math.comb(self.items, self.k))
        posterior = ksubset.log_prob(logits, self.k, z).sum(-1)
        weights = prior - posterior - reconstruction_loss(self.decode(z), x)
        return weights.logsumexp(0) - math.log(num_samples)

    def member(self, index: int) -> DiscreteVAE:
        """One model of a stack, by itself."""
        if self.stack is None or not 0 <= index < self.stack:
            raise ValueError(f"member must be one of a stack of {self.stack or 0}, got {index}")
        alone = DiscreteVAE(self.pixels, self.k, self.groups, self.items, self.hidden)
        alone.load_state_dict({name: value[index] for name, value in self.state_dict().items()})
        return alone.to(next(self.parameters()))

    def configuration(self) -> dict[str, str]:
        """What a weights file says of the one model it holds."""
        if self.stack is not None:
            raise ValueError("a weights file holds one model: take a member of the stack")
        sizes = {name: getattr(self, name) for name in ("pixels", "k", "groups", "items", "hidden")}
        return {_CONFIGURATION: json.dumps(sizes)}

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu") -> DiscreteVAE:
        """From a weights file (safetensors) of a run folder, ``models/k10-simple-0.safetensors``
        for instance. Nothing is unpickled."""
        path = Path(path)
        if path.is_dir():
            known = ", ".join(sorted(str(p) for p in path.rglob("*.safetensors"))) or "none"
            raise ValueError(f"{path} is a folder; of weights files it holds: {known}")
        try:
            with safe_open(path, framework="pt") as file:
                about = (file.metadata() or {}).get(_CONFIGURATION)
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path} is not a complete safetensors file: {error}") from None
        if about is None:
            raise ValueError(f"{path} does not hold the weights of a DiscreteVAE")
        try:
            vae = cls(**json.loads(about))
            vae.load_state_dict(weights)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path} does not hold a whole DiscreteVAE: {error}") from None
        return vae.to(device).eval()


def _check_samples(num_samples: int) -> None:
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")


def reconstruction_loss(pixel_logits: Tensor, x: Tensor) -> Tensor:
    """-log p(x|z) in nats (...), for grey levels x the expected one."""
    losses = F.binary_cross_entropy_with_logits(
        pixel_logits, x.expand_as(pixel_logits), reduction="none"
    )
    return losses.sum(-1)


def _network(sizes: Sequence[int], stack: int | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [StackedDense(inputs, outputs, stack), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
