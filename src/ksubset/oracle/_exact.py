"""Enumeration of all subsets of one size, and the paper's algorithm for automatic derivatives."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def support(n: int, k: int) -> Tensor:
    r"""All k-hot vectors of length n in lexicographic order of their indices: (C(n, k), n).

    Args:
        n: the number of items.
        k: the size of the subsets.

    Returns:
        float64 (C(n, k), n).

    Examples:
        >>> oracle.support(3, 2)
        tensor([[1., 1., 0.],
                [1., 0., 1.],
                [0., 1., 1.]], dtype=torch.float64)
    """
    subsets = torch.tensor(list(itertools.combinations(range(n), k)), dtype=torch.int64)
    rows = torch.zeros(len(subsets), n, dtype=torch.float64)
    return rows.scatter_(1, subsets.reshape(len(subsets), k), 1.0)


def _scores(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each subset the sum of its finite logits (-inf if impossible) less a constant, that
    constant, and the support. Without the constant, logits at 1e4 would cost four digits."""
    logits = logits.detach().to("cpu", torch.float64)
    z = support(logits.shape[-1], k)
    finite = logits.isfinite()
    centre = logits[finite].median() if finite.any() else torch.zeros((), dtype=torch.float64)
    possible = (z[:, logits == -torch.inf] == 0).all(1) & (z[:, logits == torch.inf] == 1).all(1)
    scores = torch.where(possible, z @ torch.where(finite, logits - centre, 0.0), -torch.inf)
    return scores, centre * (k - (logits == torch.inf).sum()), z


def log_partition(logits: Tensor, k: int) -> Tensor:
    r"""The log-partition function :math:`A = \log \sum_z \exp(\theta \cdot z)` over the subsets, of
    finite logits only.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        A float64 scalar.

    Examples:
        >>> round(float(oracle.log_partition(torch.zeros(4), 2).exp()), 6)  # six pairs
        6.0
    """
    scores, constant, _ = _scores(logits, k)
    return scores.logsumexp(0) + constant


def log_probabilities(logits: Tensor, k: int) -> Tensor:
    r"""The log-probability :math:`\log p(z) = \theta \cdot z - A` of each row of ``support(n, k)``.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        float64 (C(n, k),); -inf for a subset that is impossible.

    Examples:
        >>> oracle.log_probabilities(torch.tensor([0.0, 0.0, -torch.inf]), 1).exp()
        tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    return _scores(logits, k)[0].log_softmax(0)


def marginals(logits: Tensor, k: int) -> Tensor:
    r"""The inclusion probabilities :math:`\mu_i = P(z_i = 1) = \sum_z p(z) z_i`.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        float64 (n,), summing to k.

    Examples:
        >>> logits = torch.tensor([1.0, 0.0, 0.0, -1.0])
        >>> oracle.marginals(logits, 2)
        tensor([0.7876, 0.5000, 0.5000, 0.2124], dtype=torch.float64)
    """
    return log_probabilities(logits, k).exp() @ support(logits.shape[-1], k)


def _centred(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    probabilities = log_probabilities(logits, k).exp()
    z = support(logits.shape[-1], k)
    return probabilities, z - probabilities @ z


def covariance(logits: Tensor, k: int) -> Tensor:
    r"""The covariances :math:`\mathrm{Cov}(z_i, z_j) = \mathrm{E} (z_i - \mu_i)(z_j - \mu_j)`.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        float64 (n, n).

    Examples:
        >>> logits = torch.tensor([1.0, 0.0, 0.0, -1.0])
        >>> product = oracle.covariance(logits, 2) @ logits.double()
        >>> torch.allclose(covariance_product(logits.double(), 2, logits), product)
        True
    """
    probabilities, z = _centred(logits, k)
    return torch.einsum("s,si,sj->ij", probabilities, z, z)


def third_cumulant(logits: Tensor, k: int) -> Tensor:
    r"""The third central moments
    :math:`\kappa_{ijl} = \mathrm{E} (z_i - \mu_i)(z_j - \mu_j)(z_l - \mu_l)`: the derivative of the
    covariance.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        float64 (n, n, n).

    Examples:
        >>> logits = torch.tensor([1.0, 0.0, 0.0, -1.0])
        >>> third = oracle.third_cumulant(logits, 2)
        >>> third.sum(0).abs().max() < 1e-12  # the size never varies
        tensor(True)
        >>> mu = oracle.marginals(logits, 2)  # of a coin p (1 - p) (1 - 2 p)
        >>> torch.allclose(third[0, 0, 0], mu[0] * (1 - mu[0]) * (1 - 2 * mu[0]))
        True
    """
    probabilities, z = _centred(logits, k)
    return torch.einsum("s,si,sj,sl->ijl", probabilities, z, z, z)


def entropy(logits: Tensor, k: int) -> Tensor:
    r"""The entropy :math:`H = -\mathrm{E} \log p(z)`, in nats.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        k: the size of the subsets.

    Returns:
        A float64 scalar.

    Examples:
        >>> round(float(oracle.entropy(torch.zeros(4), 2).exp()), 6)  # six equal pairs
        6.0
    """
    return torch.special.entr(log_probabilities(logits, k).exp()).sum()


def kl_divergence(logits_p: Tensor, logits_q: Tensor, k: int) -> Tensor:
    r"""The divergence :math:`\mathrm{KL}(p \| q) = \mathrm{E}_p \log (p(z) / q(z))` of two
    distributions over subsets of the same size, in nats.

    Args:
        logits_p: (n,); -inf for an item that is never chosen, +inf for one that always is.
        logits_q: (n,), likewise.
        k: the size of the subsets.

    Returns:
        A float64 scalar; +inf where p may draw what q cannot.

    Examples:
        >>> oracle.kl_divergence(torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3), 1)
        tensor(0.1233, dtype=torch.float64)
    """
    log_p, log_q = log_probabilities(logits_p, k), log_probabilities(logits_q, k)
    return torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0.0).sum()


def swap_rates(logits: Tensor, z: Tensor) -> Tensor:
    r"""The rates of the swap process, at which a chosen item i gives way to an item j that is not:
    :math:`r_{ij}(z) = \frac{w_j}{e_k(w)} \sum_{s=0}^{k-1} \frac{1}{s + 1} e_{k-1-s}(B)\, e_s(D)`.

    Here :math:`w = e^\theta`, B are the weights of the chosen items other than i, D those of the
    items that are neither chosen nor j, and :math:`e_m` are elementary symmetric polynomials. The
    process is reversible with respect to the k-subset distribution. The rates out of a chosen item
    add up to :math:`1 - \mu_i`, those into another to :math:`\mu_j`, so that the generator maps
    z to :math:`\mu - z`. For any f, :math:`\nabla_\theta \mathrm{E} f(z)` is therefore half the
    mean of the sum of :math:`r_{ij}(z) (e_i - e_j) (f(z) - f(z'))` over all swaps
    :math:`z' = z - e_i + e_j`.

    Args:
        logits: (n,); -inf for an item that is never chosen, +inf for one that always is.
        z: (n,), a k-hot vector that these logits allow.

    Returns:
        float64 (n, n); zero unless i is chosen and j is not.

    Examples:
        >>> logits = torch.tensor([1.0, 0.0, 0.0, -1.0])
        >>> rates = oracle.swap_rates(logits, torch.tensor([1.0, 0.0, 1.0, 0.0]))
        >>> mu = oracle.marginals(logits, 2)
        >>> torch.allclose(rates.sum(1)[[0, 2]], 1 - mu[[0, 2]])  # flow out of 0 and 2
        True
        >>> torch.allclose(rates.sum(0)[[1, 3]], mu[[1, 3]])  # flow into 1 and 3
        True
    """
    logits = logits.detach().to("cpu", torch.float64)
    rates = torch.zeros(len(logits), len(logits), dtype=torch.float64)
    free = logits.isfinite()
    inside, outside = (
        torch.nonzero(free & (z.cpu() == value)).flatten().tolist() for value in (1, 0)
    )
    k = len(inside)
    if not k or not outside:
        return rates
    weights = (logits - logits[free].median()).exp()
    total = _elementary(weights[free])[k]
    for i in inside:
        kept = _elementary(weights[[b for b in inside if b != i]])
        for j in outside:
            rest = _elementary(weights[[d for d in outside if d != j]])
            terms = [kept[k - 1 - s] * rest[s] * _share(s) for s in range(min(k, len(rest)))]
            rates[i, j] = weights[j] * sum(terms) / total
    return rates


def _share(s: int) -> float:
    """How a choice of s items that both sides of a swap could come from is shared among them."""
    return 1 / (s + 1)


def _elementary(weights: Tensor) -> Tensor:
    """The elementary symmetric polynomials e_0, ..., e_m of m weights."""
    result = torch.ones(1, dtype=torch.float64)
    for weight in weights:
        shifted = torch.nn.functional.pad(result, (1, 0)) * weight
        result = torch.nn.functional.pad(result, (0, 1)) + shifted
    return result


def log_partition_autodiff(logits: Tensor, k: int, smallest: int | None = None) -> Tensor:
    r"""The paper's algorithm 1 in log space, for automatic differentiation: (..., n) -> (...).

    The log-partition function :math:`A` by
    :math:`a_{i,j} = \log(e^{a_{i-1,j}} + e^{a_{i-1,j-1} + \theta_i})`. One step per item, as
    published. ``logsumexp`` over a stacked pair with a large finite
    sentinel keeps the second derivative finite, where ``logaddexp`` and -inf give NaN.

    Args:
        logits: (..., n), finite.
        k: the size of the subsets, the same in every row.
        smallest: the smallest size, if there are several: all up to k.

    Returns:
        (...), in the type of the logits.

    Examples:
        >>> logits = torch.tensor([1.0, 0.0, 0.0, -1.0], requires_grad=True)
        >>> oracle.log_partition_autodiff(logits, 2).backward()
        >>> logits.grad  # the marginals
        tensor([0.7876, 0.5000, 0.5000, 0.2124])
    """
    sentinel = -1e30
    table = logits.new_full((*logits.shape[:-1], k + 1), sentinel)
    table = torch.cat([torch.zeros_like(table[..., :1]), table[..., 1:]], -1)
    outside = torch.full_like(table[..., :1], sentinel)
    for theta in logits.unbind(-1):
        shifted = torch.cat([outside, table[..., :-1]], -1) + theta.unsqueeze(-1)
        table = torch.stack([table, shifted]).logsumexp(0)
    return table[..., k if smallest is None else smallest :].logsumexp(-1)
