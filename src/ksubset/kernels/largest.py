"""The k largest logits of every row, in operations of torch."""

from __future__ import annotations

import torch
from torch import Tensor


def k_largest(logits: Tensor, k: Tensor | int) -> Tensor:
    """See :func:`ksubset.kernels.mode`. A k that is the same for all rows spares the sort."""
    return _by_threshold(logits, k) if isinstance(k, int) else _by_rank(logits, k)


def _by_threshold(logits: Tensor, k: int) -> Tensor:
    # One more than k, to see whether all that are forced are among the k; NaN counts as largest.
    top = logits.topk(min(k + 1, logits.shape[-1])).values
    impossible = top[:, :1].isnan() | (top[:, k:] == torch.inf).any(-1, keepdim=True)
    if k == 0:
        return torch.zeros_like(logits).masked_fill(impossible, torch.nan)
    threshold = top[:, k - 1 : k]
    above, equal = logits > threshold, logits == threshold
    left = k - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= left))
    impossible = impossible | (threshold == -torch.inf)
    return chosen.to(logits.dtype).masked_fill(impossible, torch.nan)


def _by_rank(logits: Tensor, k: Tensor) -> Tensor:
    size = k.unsqueeze(-1)
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    rank = torch.arange(logits.shape[-1], device=logits.device).expand_as(order)
    chosen = torch.zeros_like(logits).scatter(-1, order, (rank < size).to(logits.dtype))
    impossible = logits.isnan().any(-1, keepdim=True)
    impossible = impossible | (size > (logits > -torch.inf).sum(-1, keepdim=True))
    impossible = impossible | (size < (logits == torch.inf).sum(-1, keepdim=True))
    return chosen.masked_fill(impossible, torch.nan)
