"""From marginals back to logits: Newton's method with the exact covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from ksubset import functional, kernels

__all__ = ["logits_from_marginals"]

_MOST_NEWTON_STEPS = 50
_MOST_CONJUGATE_STEPS = 100


def logits_from_marginals(
    marginals: Tensor, *, method: str = "auto", tolerance: float | None = None
) -> tuple[Tensor, Tensor]:
    """k (...) and tilted logits (..., n) of the k-subset law with these marginals.

    Maximises the concave theta . m - A(theta), whose gradient is m - mu(theta) and whose Hessian
    is the covariance. The covariance is nearly the diagonal of coin variances less a rank-one
    part, so the linear systems take conjugate gradients a few steps, without a matrix.
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
    slack = 32 * torch.finfo(dtype).eps * total.clamp_min(1)
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
        logits = _newton(target, k.to(torch.int64), method, tolerance)
    k = k.to(torch.int64).reshape(marginals.shape[:-1])
    out = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return k, logits.reshape(marginals.shape).to(out).to(dtype)


def _newton(target: Tensor, k: Tensor, method: str, tolerance: float) -> Tensor:
    logits = torch.logit(target)
    free = logits.isfinite()
    error = _error(logits, k, target, method)
    for _ in range(_MOST_NEWTON_STEPS):
        size = error.abs().amax(-1)
        if bool((size <= tolerance).all()):
            return kernels.tilt(logits, k, method)
        step = _solve(logits, k, error, free, method)
        scale = torch.ones_like(size)
        for _ in range(30):
            trial = torch.where(free, logits + scale.unsqueeze(-1) * step, logits)
            trial_error = _error(trial, k, target, method)
            better = trial_error.abs().amax(-1) < size
            if bool((better | (size <= tolerance)).all()):
                break
            scale = torch.where(better, scale, scale / 2)
        keep = (better & (size > tolerance)).unsqueeze(-1)
        if not bool(keep.any()):
            break
        logits = torch.where(keep, trial, logits)
        error = torch.where(keep, trial_error, error)
    worst = float(error.abs().max())
    raise RuntimeError(
        f"from_marginals did not converge: marginals are matched to {worst:.2e}, "
        f"the tolerance is {tolerance:.2e}"
    )


def _error(logits: Tensor, k: Tensor, target: Tensor, method: str) -> Tensor:
    mu = functional.marginals(logits, k, method=method, validate_args=False)
    return torch.where(logits.isfinite(), target - mu, 0)


def _solve(logits: Tensor, k: Tensor, error: Tensor, free: Tensor, method: str) -> Tensor:
    """Cov step = error by conjugate gradients, preconditioned by the coins' variances."""
    tilted = kernels.tilt(logits, k, method)
    spread = torch.sigmoid(tilted) * torch.sigmoid(-tilted)
    inverse = torch.where(free & (spread > 0), 1 / spread, 0)
    step = torch.zeros_like(error)
    # Constants are out of reach (Cov 1 = 0): what rounding leaves of one must not be chased.
    residual = error - spread * error.sum(-1, keepdim=True) / spread.sum(
        -1, keepdim=True
    ).clamp_min(torch.finfo(error.dtype).tiny)
    preconditioned = inverse * residual
    direction = preconditioned
    product = (residual * preconditioned).sum(-1, keepdim=True)
    start = product
    for _ in range(_MOST_CONJUGATE_STEPS):
        image = kernels.covariance_product(tilted, k, direction, method)
        curvature = (direction * image).sum(-1, keepdim=True)
        # Beyond eight digits the residual is rounding, and dividing by it would blow it up.
        active = (product > 1e-16 * start) & (curvature > 0)
        if not bool(active.any()):
            break
        rate = torch.where(active, product / curvature, 0)
        step = step + rate * direction
        residual = residual - rate * image
        preconditioned = inverse * residual
        following = (residual * preconditioned).sum(-1, keepdim=True)
        direction = preconditioned + torch.where(product > 0, following / product, 0) * direction
        product = following
    return step
