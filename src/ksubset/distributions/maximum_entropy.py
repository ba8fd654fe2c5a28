"""From marginals back to logits, by a fixed-point iteration on exact marginals."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional, kernels

__all__ = ["logits_from_marginals"]

_MOST_STEPS = 500  # some ten are usual, and 40 for logits of scale 60
_LONGEST_STEP = 20


def logits_from_marginals(
    marginals: Tensor, *, method: str = "auto", tolerance: float | None = None
) -> tuple[Tensor, Tensor]:
    """k (...) and tilted logits (..., n) of the k-subset distribution with these marginals.

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
    if not bool(((total - k).abs() <= slack).all()):
        row = int((total - k).abs().argmax())
        raise ValueError(
            f"marginals must sum to an integer k in each row, got a sum of {float(total[row])}"
        )
    if tolerance is None:
        # Of float64 arithmetic, and of what rounding the target to its type has cost anyway.
        tolerance = max(1e-13, torch.finfo(dtype).eps / 8)
    # What the marginals' rounding leaves over is spread where it changes them least.
    spread = target * (1 - target)
    weight = spread.sum(-1, keepdim=True)
    left = (k - total).unsqueeze(-1)
    target = (target + torch.where(weight > 0, spread * left / weight, 0)).clamp(0, 1)

    with torch.no_grad():
        logits = _match(target, k.to(torch.int64), method, tolerance)
    k = k.to(torch.int64).reshape(marginals.shape[:-1])
    out = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return k, logits.reshape(marginals.shape).to(out).to(dtype)


def _match(target: Tensor, k: Tensor, method: str, tolerance: float) -> Tensor:
    """Move every logit by the log-odds that its marginal lacks, and a little less.

    For independent coins that is exact. Here other items give way, and marginals move by up to
    twice as much if two items have most of the variance: docs/mathematics.md, section 7.
    """
    logits = torch.logit(target)
    free = logits.isfinite()
    for _ in range(_MOST_STEPS):
        mu = functional.marginals(logits, k, method=method, validate_args=False)
        error = torch.where(free, target - mu, 0).abs().amax(-1, keepdim=True)
        if bool((error <= tolerance).all()):
            return kernels.tilt(logits, k, method)
        variance = torch.where(free, mu * (1 - mu), 0)
        share = variance.amax(-1, keepdim=True) / variance.sum(-1, keepdim=True)
        rate = (1 - share.nan_to_num(1)).clamp(0.5, 1)
        move = (_log_odds(target) - _log_odds(mu)).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        logits = torch.where(free & (error > tolerance), logits + rate * move, logits)
    raise RuntimeError(
        f"from_marginals did not converge: marginals are matched to {float(error.max()):.2e}, "
        f"the tolerance is {tolerance:.2e}"
    )


def _log_odds(probability: Tensor) -> Tensor:
    """Finite also of 0 and 1, which a marginal may be rounded to."""
    info = torch.finfo(probability.dtype)
    return torch.log(probability.clamp_min(info.tiny)) - torch.log(
        (1 - probability).clamp_min(info.eps / 16)
    )
