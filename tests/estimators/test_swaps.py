"""The estimators of docs/swaps.md against enumeration, through the public interface.

Given its sample (and, where it draws one, its swap), an estimate is a number without noise. Many
rows of one problem show every outcome; weighted by its exact probability, each outcome counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import INF
from torch import Tensor

from ksubset import estimators, oracle
from ksubset.estimators import Estimator, create
from ksubset.estimators.swap_process import SwapProcess
from ksubset.functional import _primitives
from ksubset.kernels.swaps import exchange
from ksubset.oracle import _exact

Loss = Callable[[Tensor], Tensor]
CASES = [(5, 1), (5, 2), (6, 3), (5, 4)]
NAMES = ("swap", "sparse_swap", "removal", "corrected_swap")


def row(n: int, seed: int = 0, scale: float = 0.7) -> Tensor:
    return scale * torch.randn(n, generator=torch.Generator().manual_seed(seed)).double()


def quadratic(n: int) -> Loss:
    generator = torch.Generator().manual_seed(n)
    a = torch.randn(n, n, generator=generator).double()
    b = torch.randn(n, generator=generator).double()
    return lambda z: ((z @ a) * z).sum(-1) + z @ b


def network(n: int) -> Loss:
    generator = torch.Generator().manual_seed(n)
    first = torch.randn(n, 7, generator=generator).double()
    second = torch.randn(7, generator=generator).double()
    return lambda z: torch.tanh(z @ first) @ second + (z.sum(-1) * z[..., 0]).sin()


def gradient(loss: Loss, logits: Tensor, k: int) -> Tensor:
    """Cov(z, f(z))."""
    z, p = oracle.support(len(logits), k), oracle.log_probabilities(logits, k).exp()
    return (p * loss(z)) @ (z - oracle.marginals(logits, k))


def subset_number(z: Tensor) -> Tensor:
    """The place of k-hot z (..., n) among the subsets of the oracle."""
    n, k = z.shape[-1], int(z.reshape(-1, z.shape[-1])[0].sum())
    bits = 2 ** torch.arange(n)
    where = torch.full((2**n,), -1)
    where[(oracle.support(n, k).long() * bits).sum(-1)] = torch.arange(len(oracle.support(n, k)))
    found = where[(z.long() * bits).sum(-1)]
    assert (found >= 0).all()
    return found


def weighted(found: Tensor, outcome: Tensor, probability: Tensor) -> Tensor:
    """The mean of estimates (rows, n) whose rows have outcomes 0, 1, ... of these probabilities."""
    first = torch.full((len(probability),), -1)
    first[outcome] = torch.arange(len(outcome))
    possible = probability > 0
    assert abs(float(probability.sum()) - 1) < 1e-12
    assert (first[possible] >= 0).all(), "an outcome was not drawn: more rows are needed"
    torch.testing.assert_close(found, found[first[outcome]], rtol=1e-9, atol=1e-9)
    return probability[possible] @ found[first[possible]]


def watched(loss: Loss) -> tuple[Loss, list[Tensor]]:
    """The loss, and a list of what it is evaluated at."""
    seen: list[Tensor] = []

    def watch(z: Tensor) -> Tensor:
        seen.append(z.detach())
        return loss(z)

    return watch, seen


def estimates(
    estimator: Estimator, loss: Loss, logits: Tensor, k: int, rows: int, samples: int = 1
) -> tuple[Tensor, list[Tensor]]:
    """One estimate per row, and all z (samples, rows, n) that the loss was evaluated at."""
    watch, seen = watched(loss)
    many = logits.expand(rows, -1).clone().requires_grad_()
    generator = torch.Generator().manual_seed(3)
    value = estimator.surrogate(watch, many, k, samples, generator=generator, vectorized=True)
    (found,) = torch.autograd.grad(value, many)
    return found, seen


def mean(estimator: Estimator, loss: Loss, logits: Tensor, k: int, samples: int = 1) -> Tensor:
    """By enumeration of the samples, for estimators that draw nothing else."""
    p = oracle.log_probabilities(logits, k).exp()
    found, seen = estimates(estimator, loss, logits, k, 4000 * len(p) ** (samples - 1), samples)
    outcome, probability = torch.zeros((), dtype=torch.int64), torch.ones(1).double()
    for z in seen[0]:
        outcome = outcome * len(p) + subset_number(z)
        probability = (probability.unsqueeze(-1) * p).flatten()
    return weighted(found, outcome, probability)


def mean_of_corrected(
    loss: Loss, logits: Tensor, k: int, samples: int = 1, **options: Any
) -> Tensor:
    """Of samples and swaps: with probability p(z) r_ij(z) / Z(z), swap i for j."""
    z, p = oracle.support(len(logits), k), oracle.log_probabilities(logits, k).exp()
    pairs = torch.zeros(len(p), len(p), dtype=torch.float64)
    for at, x in enumerate(z):
        rates = oracle.swap_rates(logits, x)
        for i, j in rates.nonzero().tolist():
            other = x.clone()
            other[i], other[j] = 0, 1
            pairs[at, subset_number(other)] += p[at] * rates[i, j] / rates.sum()
    estimator = create("corrected_swap", **options)
    found, (here, there) = estimates(estimator, loss, logits, k, 20_000 * samples**3, samples)
    outcome, probability = torch.zeros((), dtype=torch.int64), torch.ones(1).double()
    for a, b in zip(here, there, strict=True):
        outcome = outcome * pairs.numel() + subset_number(a) * len(p) + subset_number(b)
        probability = (probability.unsqueeze(-1) * pairs.flatten()).flatten()
    return weighted(found, outcome, probability)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("n", "k"), CASES)
def test_swap_is_unbiased_for_quadratics(n: int, k: int) -> None:
    logits, loss = row(n), quadratic(n)
    expected = gradient(loss, logits, k)
    assert_close(mean(create("swap", plan="exact"), loss, logits, k), expected)
    # The product plan is exact at the ends only, and close elsewhere.
    error = (mean(create("swap"), loss, logits, k) - expected).abs().max()
    assert error < (1e-10 if k in (1, n - 1) else 0.05 * expected.abs().max())
    if 1 < k < n - 1:
        assert error > 1e-5
    # The estimate sees second differences, and no more.
    wrong = mean(create("swap", plan="exact"), network(n), logits, k)
    assert (wrong - gradient(network(n), logits, k)).abs().max() > 1e-4


@pytest.mark.parametrize(("n", "k"), CASES)
def test_removal_is_unbiased_for_every_loss(n: int, k: int) -> None:
    logits, loss = row(n), network(n)
    assert_close(mean(create("removal"), loss, logits, k), gradient(loss, logits, k))


@pytest.mark.parametrize(("n", "k"), CASES)
def test_corrected_swap_is_unbiased_for_every_loss(n: int, k: int) -> None:
    logits, loss = row(n), network(n)
    assert_close(mean_of_corrected(loss, logits, k), gradient(loss, logits, k))


def test_removal_with_the_product_plan_is_its_formula() -> None:
    """(1 - mu_i) Delta_i at chosen items, -(mu_j / Z) sum_i (1 - mu_i) Delta_i at the others."""
    logits, loss = row(6), network(6)
    found, seen = estimates(create("removal", plan="product"), loss, logits, 3, 50)
    z, mu = seen[0][0], oracle.marginals(logits, 3)
    drop = loss(z).unsqueeze(-1) - loss(z.unsqueeze(-2) - torch.diag_embed(z))
    out = (1 - mu) * drop * z
    total = (mu * (1 - z)).sum(-1, keepdim=True)
    assert_close(found, out - (1 - z) * mu / total * out.sum(-1, keepdim=True))


@pytest.mark.parametrize(("n", "k"), CASES)
def test_swap_with_the_product_plan_is_its_formula(n: int, k: int) -> None:
    logits = row(n).requires_grad_()
    z = create("swap").sample(logits, k)
    g = torch.randn(n, dtype=torch.float64)
    (found,) = torch.autograd.grad(z, logits, g)
    z, mu = z.detach(), oracle.marginals(logits, k)
    out, into = (1 - mu) * z, mu * (1 - z)
    mean_out, mean_into = (out @ g) / out.sum(), (into @ g) / into.sum()
    assert_close(found, 0.5 * torch.where(z > 0, (1 - mu) * (g - mean_into), mu * (g - mean_out)))


@pytest.mark.parametrize("plan", ["product", "exact"])
def test_swap_of_one_item_is_reinmax(plan: str) -> None:
    logits, cost = row(5), row(5, 1)

    def by_subset(estimator: Estimator) -> Tensor:
        found, seen = estimates(estimator, lambda z: z @ cost, logits, 1, 2000)
        table = torch.full((5, 5), torch.nan, dtype=torch.float64)
        table[subset_number(seen[0][0])] = found
        return table

    assert_close(by_subset(create("swap", plan=plan)), by_subset(create("reinmax")))


def test_leave_one_out_does_not_change_the_mean_of_swap() -> None:
    logits, loss = row(5), network(5)
    plain = mean(create("swap", plan="exact"), loss, logits, 2)
    found = mean(create("swap", plan="exact", baseline="leave_one_out"), loss, logits, 2, 2)
    assert_close(found, plain)


def test_leave_one_out_takes_a_part_of_the_bias_of_the_product_plan() -> None:
    """That of the mean gradient: all of it where the loss is linear."""
    logits, cost = row(5), row(5, 1)
    expected = oracle.covariance(logits, 2) @ cost
    found = mean(create("swap", baseline="leave_one_out"), lambda z: z @ cost, logits, 2, 2)
    assert_close(found, expected)
    plain = mean(create("swap"), lambda z: z @ cost, logits, 2)
    assert (plain - expected).abs().max() > 1e-5


def test_leave_one_out_does_not_change_the_mean_of_removal() -> None:
    logits, loss = row(5), network(5)
    found = mean(create("removal", baseline="leave_one_out"), loss, logits, 2, 2)
    assert_close(found, gradient(loss, logits, 2))


def test_leave_one_out_does_not_change_the_mean_of_corrected_swap() -> None:
    logits, loss = row(4, scale=0.3), network(4)
    found = mean_of_corrected(loss, logits, 2, 2, baseline="leave_one_out")
    assert_close(found, gradient(loss, logits, 2))


@pytest.mark.parametrize(("n", "k"), CASES)
def test_sparse_swap_is_unbiased_for_linear_losses(n: int, k: int) -> None:
    logits, cost = row(n), row(n, 1)
    expected = oracle.covariance(logits, k) @ cost
    found = mean(create("sparse_swap", plan="exact"), lambda z: z @ cost, logits, k)
    assert_close(found, expected)
    # The product plan is exact at the ends only, and close elsewhere.
    error = (mean(create("sparse_swap"), lambda z: z @ cost, logits, k) - expected).abs().max()
    assert error < (1e-10 if k in (1, n - 1) else 0.05 * expected.abs().max())
    if 1 < k < n - 1:
        assert error > 1e-5


def test_sparse_swap_with_the_product_plan_is_its_formula() -> None:
    """(1 - mu_i) g_i at chosen items, -(mu_j / Z) sum_i (1 - mu_i) g_i at the others."""
    logits = row(6).requires_grad_()
    z = create("sparse_swap").sample(logits, 3)
    g = torch.randn(6, dtype=torch.float64)
    (found,) = torch.autograd.grad(z, logits, g)
    z, mu = z.detach(), oracle.marginals(logits, 3)
    out, into = (1 - mu) * z * g, mu * (1 - z)
    assert_close(found, out - into / into.sum() * out.sum())


@pytest.mark.parametrize("plan", ["product", "exact"])
def test_sparse_swap_reads_the_gradients_of_chosen_items_only(plan: str) -> None:
    logits = row(8).requires_grad_()
    z = create("sparse_swap", plan=plan).sample(logits, 3, (2,))
    g = torch.randn(2, 8, dtype=torch.float64)
    elsewhere = torch.where(z.detach() > 0, g, 1e30 * torch.randn(2, 8).double())
    (found,) = torch.autograd.grad(z, logits, g, retain_graph=True)
    assert torch.equal(found, torch.autograd.grad(z, logits, elsewhere)[0])
    assert found.abs().min() > 0


def by_the_oracle(swaps: SwapProcess, z: Tensor, v: Tensor) -> Tensor:
    """Exchanges with the oracle's rates, for rows that are all the same problem."""
    logits = swaps.logits.reshape(-1, z.shape[-1])[0].detach()
    k = int(z.reshape(-1, z.shape[-1])[0].sum())
    rates = torch.stack([oracle.swap_rates(logits, x) for x in oracle.support(len(logits), k)])
    return ((rates + rates.mT)[subset_number(z)] @ v.unsqueeze(-1)).squeeze(-1)


def test_wrong_rates_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1/(s + 2) for 1/(s + 1) the tests above fail; with the oracle's rates they pass."""
    logits, loss = row(5), network(5)
    expected = gradient(loss, logits, 2)

    def errors() -> list[float]:
        found = mean(create("removal"), loss, logits, 2), mean_of_corrected(loss, logits, 2)
        return [float((x - expected).abs().max()) for x in found]

    monkeypatch.setattr(SwapProcess, "_exchange", by_the_oracle)
    assert max(errors()) < 1e-10
    monkeypatch.setattr(_exact, "_share", lambda s: 1 / (s + 2))
    assert min(errors()) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_masks_infinities_and_sizes(name: str) -> None:
    """Items that are certain, and rows with one subset, have no gradient and do no harm."""
    logits = torch.stack([row(6, seed) for seed in range(5)])
    logits[1, 0], logits[1, 5] = INF, -INF
    logits.requires_grad_()
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[2, 3:] = False
    k = torch.tensor([2, 3, 2, 0, 6])
    loss = network(6)
    value = create(name).surrogate(loss, logits, k, 40, mask=mask)
    (found,) = torch.autograd.grad(value, logits)
    assert found.isfinite().all()
    for certain in (found[1, [0, 5]], found[2, 3:], found[3], found[4]):
        assert not certain.any()
    assert (found[0] != 0).all()
    assert (found[1, 1:5] != 0).all()
    assert (found[2, :3] != 0).all()


@pytest.mark.parametrize("name", ["removal", "swap"])
def test_forbidden_and_forced_items_leave_a_smaller_problem(name: str) -> None:
    """Three of six items, one forced and one forbidden: two of four."""
    logits = torch.tensor([0.3, INF, -0.4, 0.8, -INF, -0.1], dtype=torch.float64)
    free, loss = logits.isfinite(), quadratic(6)
    estimator = create(name, plan="exact")
    found, seen = estimates(estimator, loss, logits, 3, 4000)

    def smaller(z: Tensor) -> Tensor:
        whole = torch.zeros(*z.shape[:-1], 6, dtype=z.dtype)
        whole[..., free], whole[..., 1] = z, 1
        return loss(whole)

    p = oracle.log_probabilities(logits[free], 2).exp()
    average = weighted(found, subset_number(seen[0][0][:, free]), p)
    assert_close(average[free], gradient(smaller, logits[free], 2))
    assert not average[~free].any()


def test_rows_that_share_a_loss() -> None:
    """Two rows and one loss: the exact gradient of each, with the other one random too."""
    logits, k = torch.stack([row(4, 0), row(4, 1)]), torch.tensor([1, 2])
    loss = network(8)
    z = [oracle.support(4, size) for size in (1, 2)]
    p = [oracle.log_probabilities(x, size).exp() for x, size in zip(logits, (1, 2), strict=True)]
    both = torch.stack([torch.cat([a, b]) for a in z[0] for b in z[1]])
    joint = (p[0].unsqueeze(-1) * p[1]).flatten()
    scores = both - torch.cat([oracle.marginals(logits[0], 1), oracle.marginals(logits[1], 2)])
    expected = ((joint * loss(both)) @ scores).reshape(2, 4)
    for name in ("removal", "corrected_swap"):
        watch, seen = watched(lambda z: loss(z.flatten(-2)))
        many = logits.expand(40_000, 2, 4).clone().requires_grad_()
        generator = torch.Generator().manual_seed(1)
        value = create(name).surrogate(watch, many, k, generator=generator, vectorized=True)
        (found,) = torch.autograd.grad(value, many)
        if name == "removal":
            outcome = 6 * subset_number(seen[0][0, :, 0]) + subset_number(seen[0][0, :, 1])
            assert_close(weighted(found.flatten(1), outcome, joint).reshape(2, 4), expected)
        else:
            deviation = found.std(0) / len(found) ** 0.5
            assert ((found.mean(0) - expected).abs() < 5 * deviation).all()
            assert len(seen) == 3  # at z, and one swap of each row


@pytest.mark.parametrize("name", ["removal", "corrected_swap"])
@pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
def test_one_call_or_many(name: str, baseline: str) -> None:
    """The same estimate; k + 1 evaluations per sample of Removal, two of CorrectedSwap."""
    logits = torch.stack([row(6, 0), row(6, 1)]).requires_grad_()
    loss, k, samples = network(6), torch.tensor([2, 3]), 3
    found, calls = [], []
    for vectorized in (False, True):
        watch, seen = watched(loss)
        value = create(name, baseline=baseline).surrogate(
            watch, logits, k, samples, vectorized=vectorized,
            generator=torch.Generator().manual_seed(2),
        )  # fmt: skip
        found.append(torch.autograd.grad(value, logits)[0])
        calls.append(len(seen))
    torch.testing.assert_close(*found)
    assert calls == [samples * (4 if name == "removal" else 2), 2]


@pytest.mark.parametrize("name", ["removal", "corrected_swap"])
@pytest.mark.parametrize(
    "loss",
    [
        lambda z: z[..., 0] > 0.5,
        lambda z: z[..., :2].sum(-1).round().long(),
        lambda z: z[..., 0].detach().double(),
        lambda z: torch.ones_like(z[..., 0]),
    ],
    ids=["boolean", "integer", "detached", "constant"],
)
def test_losses_without_a_gradient(name: str, loss: Loss) -> None:
    """Evaluations are enough, whatever the type of the loss."""
    rows, items = 60_000, row(4)
    many = items.float().expand(rows, 4).clone().requires_grad_()
    value = create(name).surrogate(loss, many, 2, vectorized=True)
    (found,) = torch.autograd.grad(value, many)
    expected = gradient(lambda z: loss(z).double(), items, 2)
    deviation = found.double().std(0) / rows**0.5
    assert ((found.double().mean(0) - expected).abs() <= 5 * deviation + 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["removal", "corrected_swap"])
def test_other_types_of_logits(name: str, dtype: torch.dtype) -> None:
    logits = row(6).to(dtype).requires_grad_()
    value = create(name).surrogate(lambda z: z.float().square().sum(-1), logits, 2, 4)
    (found,) = torch.autograd.grad(value, logits)
    assert found.dtype == dtype
    assert found.isfinite().all()


def rates_in_logs(logits: Tensor, z: Tensor) -> Tensor:
    """``oracle.swap_rates`` for logits whose exponentials overflow."""

    def elementary(x: Tensor) -> Tensor:
        result = torch.zeros(1, dtype=torch.float64)
        for value in x:
            pads = (
                torch.nn.functional.pad(result, (0, 1), value=-INF),
                torch.nn.functional.pad(result, (1, 0), value=-INF),
            )
            result = torch.logaddexp(pads[0], pads[1] + value)
        return result

    rates, k = torch.zeros(len(z), len(z), dtype=torch.float64), int(z.sum())
    for i in z.nonzero().flatten():
        for j in (z == 0).nonzero().flatten():
            kept, rest = z > 0, z == 0
            kept[i], rest[j] = False, False
            a, b = elementary(logits[kept]).flip(0), elementary(logits[rest])
            size = min(len(a), len(b))
            terms = a[:size] + b[:size] - (1 + torch.arange(size)).double().log()
            rates[i, j] = (logits[j] + terms.logsumexp(0) - elementary(logits)[k]).exp()
    return rates


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 30.0, 1000.0])
def test_the_exact_plan_has_the_rates_of_the_oracle(scale: float) -> None:
    """At samples and at unlikely subsets; by the oracle itself where it does not overflow."""
    generator = torch.Generator().manual_seed(int(scale))
    for n in (2, 3, 5, 9, 12):
        for k in range(1, n):
            logits = scale * torch.randn(n, generator=generator, dtype=torch.float64)
            subsets = logits + scale * torch.randn(2, n, generator=generator, dtype=torch.float64)
            z = torch.zeros_like(subsets).scatter_(-1, subsets.topk(k, -1).indices, 1)
            size = torch.tensor([k])
            tilted = _primitives.tilt(logits.unsqueeze(0), size, "auto")
            v = torch.randn(2, n, generator=generator, dtype=torch.float64)
            found = exchange(tilted.expand(2, n), size.expand(2), z, v)
            by = oracle.swap_rates if scale <= 3 else rates_in_logs
            rates = torch.stack([by(logits, x) for x in z])
            expected = ((rates + rates.mT) @ v.unsqueeze(-1)).squeeze(-1)
            error = 1e-12 if scale <= 30 else 1e-11  # logits of 1000 have three digits less
            torch.testing.assert_close(found, expected, rtol=0, atol=error)


def test_settings_are_checked() -> None:
    for name in ("swap", "removal"):
        with pytest.raises(ValueError, match="plan must be one of product, exact, got 'best'"):
            create(name, plan="best")
    for name in ("swap", "removal", "corrected_swap"):
        with pytest.raises(ValueError, match=r"baseline must be one of .*, got 'mean'"):
            create(name, baseline="mean")
        with pytest.raises(ValueError, match="at least 2"):
            create(name, baseline="leave_one_out").surrogate(lambda z: z.sum(-1), row(4), 2)
    assert estimators.Removal().extra_repr() == "plan='exact', baseline='none'"
