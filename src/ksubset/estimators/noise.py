"""Noise for perturb-and-MAP."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gumbel(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard Gumbel noise."""
    noise = torch.empty_like(like, memory_format=torch.contiguous_format)
    noise.exponential_(generator=generator)
    if noise.dtype == torch.float16:  # positive, except where half precision underflows
        noise.clamp_(min=torch.finfo(noise.dtype).tiny)
    return noise.log_().neg_()


def sum_of_gamma(
    like: Tensor,
    k: int | Tensor,
    temperature: float | Tensor = 1.0,
    terms: int = 10,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Noise of which k terms add up to about a Gumbel variable, (*batch, n).

    .. math:: \frac{\tau}{k} \Bigl( \sum_{i=1}^{s} G_i - \log s \Bigr), \qquad
        G_i \sim \mathrm{Gamma}(1/k, \text{scale } k/i)
    """
    # Half precision has no gamma variables.
    dtype = like.dtype if like.dtype == torch.float64 else torch.float32
    # Made on the device: copied to it, it could not be captured.
    if isinstance(k, Tensor):
        kappa = k.to(like.device, dtype).unsqueeze(-1).clamp_min(1)
    else:
        kappa = torch.full((1,), max(k, 1), dtype=dtype, device=like.device)
    total = torch.zeros(like.shape, dtype=dtype, device=like.device)
    shape = (1 / kappa).expand(like.shape).contiguous()
    for i in range(1, terms + 1):
        total += torch._standard_gamma(shape, generator=generator) * (kappa / i)
    return ((total - math.log(terms)) * (temperature / kappa)).to(like.dtype)
