"""The unordered set estimator (Kool, van Hoof and Welling, ICLR 2020), over k-subsets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ksubset import functional
from ksubset.estimators.base import (
    Estimator,
    Loss,
    check_samples,
    evaluate,
    only_gradient,
    over_groups,
)

_MOST_SAMPLES = 8
_LEAST = -80.0  # the logarithm of a share that does not count, eight of which do not underflow
_DRAWS_PER_SAMPLE = 100


class UnorderedSet(Estimator):
    r"""The score function over distinct samples, each weighted by the probability that a set drawn
    without replacement contains it. Unbiased for every loss, which need not be differentiable in z.

    Let S be the set of samples z, each a k-subset, and P(S) the probability to draw it without
    replacement, in any order. Let :math:`P_z` be the same for the distribution without z, and
    :math:`R(z) = P_z(S \setminus z) / P(S)`. The estimate is

    :math:`\sum_{z \in S} p(z) R(z) \Bigl( f(z) - \sum_{z' \in S} p(z') R_z(z') f(z') \Bigr)
    \nabla \log p(z)`,

    where :math:`R_z(z')` is the ratio that remains without z, and :math:`R_z(z) = 1`. It is exact
    once S holds all subsets. Rows that share a loss are one sample together.

    Samples are drawn one after another, and repeated ones are thrown away. Of a distribution so
    concentrated that 100 draws per sample do not find enough distinct ones, those found are used.
    Samples carry no gradient: there is ``surrogate`` only, of logits (..., n) and two to eight
    samples. The loss is evaluated once for each; if ``vectorized``, in two calls.

    Examples:
        >>> from ksubset.estimators import UnorderedSet
        >>> logits = torch.zeros(3, requires_grad=True)
        >>> cost = torch.tensor([1.0, 0.0, 0.0])
        >>> UnorderedSet().surrogate(lambda z: (z @ cost).exp(), logits, 1, 3).backward()
        >>> logits.grad.round(decimals=4)  # exact: there are three subsets
        tensor([ 0.3818, -0.1909, -0.1909])
    """

    def surrogate(
        self,
        loss_fn: Loss,
        logits: Tensor,
        k: int | Tensor,
        num_samples: int = 2,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        vectorized: bool = False,
    ) -> Tensor:
        check_samples(num_samples, 2)
        if num_samples > _MOST_SAMPLES:
            raise ValueError(f"num_samples must be at most {_MOST_SAMPLES}, got {num_samples}")

        def draw(count: int) -> Tensor:
            return functional.sample(logits, k, (count,), mask=mask, generator=generator)

        # The shape of the first loss tells which rows are one sample together.
        first = draw(1)
        losses = evaluate(loss_fn, first, vectorized)
        z, valid = _distinct(first, losses.shape[1:], num_samples, draw)
        losses = torch.cat([losses, evaluate(loss_fn, z[1:], vectorized)])
        log_prob = over_groups(functional.log_prob(logits, k, z, mask=mask), losses)
        log_p = torch.where(valid, log_prob.detach().double(), -torch.inf)
        # Relative to the largest, or products of small ones would underflow.
        largest = log_p.amax(0)
        p = (log_p - largest).clamp(min=_LEAST).exp() * valid
        ratios, second = _ratios(p, largest.exp(), valid)
        found = losses.detach().double()
        signal = found - (second * (p * found).unsqueeze(0)).sum(1)
        weights = (p * ratios).to(log_prob.dtype)
        carried = only_gradient(signal.to(log_prob.dtype) * log_prob)
        return (weights * (losses + carried)).sum()


def _distinct(
    first: Tensor, examples: torch.Size, num_samples: int, draw: Callable[[int], Tensor]
) -> tuple[Tensor, Tensor]:
    """Samples without replacement, (samples, *batch, n), and whether each place was filled,
    (samples, *examples). The first sample is given; it also stands in places left over."""
    z = first.repeat(num_samples, *(1,) * (first.dim() - 1))
    place = torch.arange(num_samples, device=z.device).reshape(-1, *(1,) * len(examples))
    count = torch.ones(examples, dtype=torch.int64, device=z.device)
    for _ in range(_DRAWS_PER_SAMPLE):
        if bool((count == num_samples).all()):
            break
        for candidate in draw(num_samples):
            same = (z == candidate).reshape(num_samples, *examples, -1).all(-1)
            new = ~(same & (place < count)).any(0)
            here = new & (place == count)  # nowhere once all places are filled
            z = torch.where(here.reshape(*here.shape, *(1,) * (z.dim() - here.dim())), candidate, z)
            count = count + here.any(0)
    return z, place < count


def _ratios(p: Tensor, factor: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """R(z), (samples, *examples), and R_z(z'), (samples, samples, *examples), both times the
    factor, of sets of samples with probabilities p times the factor."""
    count, shape = len(p), (-1, *(1,) * (p.dim() - 1))
    bits = 2 ** torch.arange(count, device=p.device).reshape(shape)
    whole = (valid * bits).sum(0, keepdim=True)
    single = whole & ~bits
    double = single.unsqueeze(1) & ~bits

    def probability(sets: Tensor, taken: Tensor) -> Tensor:
        return _probabilities_of_sets(p, factor, taken).gather(0, sets.unsqueeze(0))[0]

    without_one = probability(single, factor * p)
    first = without_one / probability(whole, torch.zeros_like(p[:1]))
    second = probability(double, factor * (p.unsqueeze(1) + p)) / without_one.unsqueeze(1)
    same = torch.eye(count, dtype=torch.bool, device=p.device).reshape(count, *shape)
    return torch.where(valid, first, 0), torch.where(valid, torch.where(same, factor, second), 0)


def _probabilities_of_sets(p: Tensor, factor: Tensor, taken: Tensor) -> Tensor:
    """The probability to draw each set of samples without replacement, in any order, when samples
    of this total probability cannot be drawn: (2 ** samples, *taken), by the bits of the set. It is
    divided by the factor for each member; the probability of a sample is p times the factor."""
    found, sums = [torch.ones_like(taken)], [torch.zeros_like(p[0])]
    for members in range(1, 2 ** len(p)):
        total = torch.zeros_like(taken)
        for last in range(len(p)):
            if members >> last & 1:
                before = members ^ 1 << last
                left = (1 - taken - sums[before]).clamp(min=torch.finfo(p.dtype).tiny)
                total = total + found[before] * p[last] / left
        found.append(total)
        sums.append(sums[before] + factor * p[(members ^ before).bit_length() - 1])
    return torch.stack(found)
