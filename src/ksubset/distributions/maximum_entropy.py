"""From marginals back to logits, by a fixed-point iteration on exact marginals."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional, kernels
from ksubset.sizes import Sizes, between

__all__ = ["logits_from_marginals"]

_MOST_STEPS = 500  # some ten are usual, and 40 for logits of scale 60
_LONGEST_STEP = 20


def logits_from_marginals(
    marginals: Tensor, *, method: str = "auto", tolerance: float | None = None
) -> tuple[Tensor | Sizes, Tensor]:
    """k and tilted logits (..., n) of the k-subset distribution with these marginals: k is (...),
    or sizes where a row's marginals do not sum to an integer.

    They maximise the concave theta . m - A(theta), whose gradient is m - mu(theta).
    """
    if not isinstance(marginals, Tensor) or not marginals.is_floating_point():
        kind = marginals.dtype if isinstance(marginals, Tensor) else type(marginals).__name__
        raise TypeError(f"marginals must be a floating point tensor, got {kind}")
    if marginals.requires_grad and torch.is_grad_enabled():
        raise ValueError("marginals must not require a gradient: the fit is not differentiable")
    if marginals.dim() == 0 or marginals.shape[-1] == 0:
        raise ValueError(
            f"marginals must have shape (..., n) with n >= 1, got shape {tuple(marginals.shape)}"
        )
    dtype = marginals.dtype
    wide = dtype if marginals.device.type == "mps" else torch.float64
    target = marginals.detach().reshape(-1, marginals.shape[-1]).to(wide)
    if not bool(((target >= 0) & (target <= 1)).all()):
        raise ValueError(
            f"marginals must be in [0, 1], got values from {float(target.min())} to "
            f"{float(target.max())}"
        )
    total = target.sum(-1)
    k = total.round()
    slack = (32 * torch.finfo(dtype).eps * total.clamp_min(1)).clamp_max(0.25)
    whole = (total - k).abs() <= slack
    k = torch.where(whole, k, total.floor())
    part = torch.where(whole, 0, total - k)  # the probability of one item more
    if tolerance is None:
        # Of float64 arithmetic, and of what rounding the target to its type has cost anyway.
        tolerance = max(1e-13, torch.finfo(dtype).eps / 8)
    # What the marginals' rounding leaves over is spread where it changes them least.
    spread = target * (1 - target)
    weight = spread.sum(-1, keepdim=True)
    left = torch.where(whole, k - total, 0).unsqueeze(-1)
    target = (target + torch.where(weight > 0, spread * left / weight, 0)).clamp(0, 1)

    with torch.no_grad():
        logits = _match(target, k.to(torch.int64), part, method, tolerance)
    shape = marginals.shape[:-1]
    size: Tensor | Sizes = k.to(torch.int64).reshape(shape)
    if not bool(whole.all()):
        size = _neighbours(k, part, shape)
    out = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return size, logits.reshape(marginals.shape).to(out).to(dtype)


def _neighbours(k: Tensor, part: Tensor, shape: torch.Size) -> Sizes:
    low = k.to(torch.int64)
    high = low + (part > 0)
    if len(low) == 1:
        return between(int(low), int(high))
    return between(low.reshape(shape), high.reshape(shape))


def _match(target: Tensor, k: Tensor, part: Tensor, method: str, tolerance: float) -> Tensor:
    """Move every logit by the log-odds that its marginal lacks, and a little less.

    For independent coins that is exact. Here other items give way, and marginals move by up to
    twice as much if two items have most of the variance: docs/mathematics.md, section 7.

    Between two sizes nothing else is different: marginals are a mean of those of both, whatever
    the logits, which have to be shifted in the end so that the second size has its probability.
    """
    fractional = bool((part > 0).any())
    share_of_next = part.unsqueeze(-1)
    logits = torch.logit(target)
    free = logits.isfinite()
    for _ in range(_MOST_STEPS):
        mu = functional.marginals(logits, k, method=method, validate_args=False)
        if fractional:
            more = functional.marginals(logits, k + (part > 0), method=method, validate_args=False)
            mu = (1 - share_of_next) * mu + share_of_next * more
        error = torch.where(free, target - mu, 0).abs().amax(-1, keepdim=True)
        if bool((error <= tolerance).all()):
            if not fractional:
                return kernels.tilt(logits, k, method)
            return _shifted(logits, k, part, method)
        variance = torch.where(free, mu * (1 - mu), 0)
        share = variance.amax(-1, keepdim=True) / variance.sum(-1, keepdim=True)
        rate = (1 - share.nan_to_num(1)).clamp(0.5, 1)
        move = (_log_odds(target) - _log_odds(mu)).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        logits = torch.where(free & (error > tolerance), logits + rate * move, logits)
    raise RuntimeError(
        f"from_marginals did not converge: marginals are matched to {float(error.max()):.2e}, "
        f"the tolerance is {tolerance:.2e}"
    )


def _shifted(logits: Tensor, k: Tensor, part: Tensor, method: str) -> Tensor:
    """Logits with which k + 1 is as likely, beside k, as it has to be."""
    forced = logits == torch.inf
    free, left = logits.masked_fill(forced, -torch.inf), k - forced.sum(-1)
    one, other = (
        functional.log_partition(free, size, method=method, validate_args=False)
        for size in (left, left + (part > 0))
    )
    shift = torch.log(part) - torch.log1p(-part) - (other - one)
    shifted = logits + shift.unsqueeze(-1)
    return torch.where((part > 0).unsqueeze(-1), shifted, kernels.tilt(logits, k, method))


def _log_odds(probability: Tensor) -> Tensor:
    """Finite also of 0 and 1, which a marginal may be rounded to."""
    info = torch.finfo(probability.dtype)
    return torch.log(probability.clamp_min(info.tiny)) - torch.log(
        (1 - probability).clamp_min(info.eps / 16)
    )
