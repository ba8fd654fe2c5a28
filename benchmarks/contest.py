"""The shapes, who can run at each, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import baselines
import torch
from timing import Call
from torch import Tensor

import ksubset

Sampler = Callable[[Tensor, int], Tensor]

OURS = "ksubset.simple"
SWAP = "ksubset.swap"
PLAIN = "plain straight-through Gumbel top-k"
REFERENCE = "straight-through Gumbel top-k"
COMPILED = "compiled straight-through Gumbel top-k"
# What a time is compared with: the fastest of these at its shape.
BASELINES = (PLAIN, REFERENCE, COMPILED)
LOG_SPACE_DP = "log-space DP, autodiff"


class Shape(NamedTuple):
    """Rows of n items, of which k are chosen."""

    rows: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.rows} × {self.n:,}, {self.k:,}"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "64x350,10"."""
        size, _, k = text.partition(",")
        rows, _, n = size.partition("x")
        return cls(int(rows), int(n), int(k))


SHAPES = (
    Shape(2000, 20, 10),  # the DVAE
    Shape(64, 350, 10),  # L2X
    Shape(128, 1000, 10),
    Shape(1024, 1024, 10),
    Shape(1024, 1024, 100),
    Shape(1024, 1024, 500),
    Shape(256, 4096, 64),
    Shape(32, 32_768, 8192),
    Shape(4096, 64, 8),  # short rows: routers, N:M masks, groups of codes
    Shape(16_384, 128, 8),
    Shape(65_536, 8, 2),
    Shape(65_536, 64, 8),
    Shape(16, 10_000, 100),
    Shape(128, 16_384, 1000),
)
CUDA_SHAPES = (Shape(8, 1_000_000, 10_000),)


def select(wanted: list[str], device: str) -> list[Shape]:
    """Shapes by index or as "64x350,10"; all of the device's for an empty list."""
    known = [*SHAPES, *(CUDA_SHAPES if device == "cuda" else ())]
    if not wanted:
        return known
    return [known[int(text)] if text.isdecimal() else Shape.parse(text) for text in wanted]


def samplers(shape: Shape, graphs: bool, fast: bool = False) -> dict[str, Sampler]:
    """Those that can run at this size at all; without the slow ones, if it has to go fast."""
    table: dict[str, Sampler] = {
        OURS: lambda x, k: ksubset.simple(x, k),
        SWAP: lambda x, k: ksubset.swap(x, k),
        PLAIN: baselines.plain_straight_through,
        REFERENCE: baselines.straight_through_gumbel_top_k,
        COMPILED: baselines.compiled_straight_through(),
    }
    if fast:
        return table
    if shape.k <= 100:  # k successive softmaxes; ten draws of noise for each item
        table["SoftSub"] = baselines.softsub
        table["I-MLE (sum of gamma)"] = baselines.imle
    if shape.n <= 1024 and not graphs:  # a graph of n steps, each with its own operators
        table[LOG_SPACE_DP] = baselines.log_space_dp
    table["torch.topk alone"] = lambda x, k: x.topk(k, -1).values
    table["copy of the logits"] = lambda x, k: x * 1.0
    return table


@dataclass(frozen=True)
class Problem:
    """Logits that require a gradient, and the gradient that comes from above."""

    shape: Shape
    logits: Tensor
    weights: Tensor

    @classmethod
    def draw(cls, shape: Shape, device: str, seed: int) -> Problem:
        """The same numbers on all devices and whichever shapes are measured before."""
        generator = torch.Generator().manual_seed(seed)
        logits, weights = torch.randn(2, shape.rows, shape.n, generator=generator).to(device)
        # Clones: rows of a larger tensor would count into nobody's memory.
        return cls(shape, logits.clone().requires_grad_(), weights.clone())

    def bytes(self) -> int:
        """The logits' own size."""
        return self.logits.numel() * self.logits.element_size()


def operations(sampler: Sampler, problem: Problem) -> dict[str, Call]:
    """Forward; backward, of a kept output, again and again; both, fresh."""
    logits, k = problem.logits, problem.shape.k
    kept = sampler(logits, k)
    weights = problem.weights[..., : kept.shape[-1]].contiguous()

    def forward() -> Tensor:
        return sampler(logits, k)

    def backward() -> Tensor:
        return torch.autograd.grad(kept, logits, weights, retain_graph=True)[0]

    def both() -> tuple[Tensor, Tensor]:
        z = sampler(logits, k)
        return z.detach(), torch.autograd.grad(z, logits, weights)[0]

    return {"forward": forward, "backward": backward, "both": both}
