"""Every public function and its first two derivatives on a batch of random rows."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from fuzz.bounds import BOUNDS, ON_CUDA
from fuzz.exact import Array, Exact
from fuzz.families import FAMILIES, neighbour, size
from torch import Tensor

import ksubset

# Numbers of items and rows, and how often they are tried: the oracle takes O(rows n k).
SHAPES = (
    (0.80, (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 20), 64),
    (0.14, (31, 33, 48, 63, 64), 32),
    (0.05, (65, 90, 150), 16),
    (0.01, (500, 1000, 2500), 2),
)


@dataclass
class Batch:
    """Rows of one type and length, each of a family of its own, and what is asked of them."""

    seed: str
    n: int
    dtype: torch.dtype
    method: str
    p: Tensor
    q: Tensor
    u: Tensor
    v: Tensor
    k: Tensor
    mask: Tensor | None
    families: list[str]

    @property
    def working(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32


def _hash(name: str) -> int:
    return zlib.crc32(name.encode())


def make(seed: int, dtype: torch.dtype, device: torch.device, method: str = "auto") -> Batch:
    name = f"{seed} {dtype} {method}"
    rng = np.random.default_rng(_hash(name))
    _, sizes, rows = SHAPES[rng.choice(len(SHAPES), p=[shape[0] for shape in SHAPES])]
    n = int(rng.choice(sizes))
    families = [str(family) for family in rng.choice(list(FAMILIES), size=rows)]
    limit = 3e4 if dtype == torch.float16 else np.inf

    def held(values: Array) -> Tensor:
        """As the type holds them."""
        values = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
        return torch.from_numpy(values).to(dtype)

    logits = np.stack([FAMILIES[family](rng, n) for family in families])
    p = held(logits)
    q = held(np.stack([neighbour(rng, row) for row in logits]))
    mask = None
    if rng.random() < 0.3:
        mask = torch.from_numpy((rng.random((rows, n)) < 0.8) | (logits == np.inf))
    allowed = p.double() if mask is None else p.double().masked_fill(~mask, -torch.inf)
    k = torch.tensor([size(rng, row) for row in allowed.numpy()])
    if n > 200:
        k = k.clamp_max(400)  # or the oracle's table gets large
    u, v = (held(rng.normal(size=(rows, n)) + shift) for shift in (0, rng.choice([0, 0, 100])))
    tensors = [x.to(device) for x in (p, q, u, v)]
    return Batch(
        name, n, dtype, method, *tensors, k.to(device),
        None if mask is None else mask.to(device), families,
    )  # fmt: skip


@dataclass
class Report:
    """The worst errors in units of their bounds, and all that exceed them."""

    worst: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    violations: list[str] = field(default_factory=list)
    rows: int = 0

    def __str__(self) -> str:
        lines = [f"{self.rows} rows; worst errors in units of their bounds:"]
        lines += [f"{name:30} {dtype:8} {ratio:.3f}" for (name, dtype), ratio in self.worst.items()]
        return "\n".join(lines)

    def add(
        self, batch: Batch, name: str, kind: str, got: Tensor, truth: Array, scale: Array
    ) -> None:
        """Compare (rows,) or (rows, n) with the truth; ``scale`` is (rows,) or like the truth."""
        bound = BOUNDS[batch.working][kind] * (ON_CUDA.get(kind, 1) if got.is_cuda else 1)
        value = got.detach().double().cpu().numpy()
        truth = truth.astype(np.float64)
        scale = np.broadcast_to(
            scale.reshape(scale.shape + (1,) * (value.ndim - scale.ndim)), value.shape
        ).astype(np.float64)
        allowed = bound * scale
        if got.dtype not in (torch.float32, torch.float64):
            info = torch.finfo(got.dtype)
            allowed = allowed + info.eps * np.abs(truth) + info.smallest_normal * info.eps
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            # What the result's type cannot hold overflows.
            highest = torch.finfo(got.dtype).max
            truth = np.where(np.abs(truth) > highest, np.sign(truth) * np.inf, truth)
            same = (value == truth) | (
                (value == np.sign(truth) * np.inf) & (np.abs(truth) >= 0.99 * highest)
            )
            error = np.where(same, 0, np.abs(value - truth) / np.maximum(allowed, 1e-300))
        error = np.where(np.isnan(error), np.inf, error)
        ratio = error.reshape(len(error), -1).max(1) if error.size else np.zeros(1)
        key = (name, str(batch.working).removeprefix("torch."))
        self.worst[key] = max(self.worst[key], float(ratio.max(initial=0)))
        for row in np.flatnonzero(ratio > 1)[:2]:
            self.violations.append(
                f"{name}: {ratio[row]:.3g} times the bound (off by "
                f"{np.abs(value - truth)[row].max():.2g} of {np.abs(truth[row]).max():.2g}) in row "
                f"{row} ({batch.families[row]}, n = {batch.n}, k = {int(batch.k[row])}) of batch "
                f"{batch.seed!r}"
            )


def _spread(exact: Exact, *vectors: Array) -> Array:
    """What rounding acts on in cumulants with these vectors: (rows,)."""
    deviation = np.sqrt(exact.marginals * exact.rests)
    scale = deviation
    for v in vectors:
        centred = exact.centred(v)
        total = np.sqrt(((deviation * centred) ** 2).sum(1, keepdims=True))
        scale = scale * (np.abs(centred) + total)
    return 0.01 + scale.max(1, initial=0)


def _product_plan(exact: Exact, chosen: Array, v: Array) -> Array:
    """The gradient of swap by its definition (docs/swaps.md)."""
    flow = np.where(exact.open, np.where(chosen, exact.rests, exact.marginals), 0)

    def mean(weights: Array) -> Array:
        total = weights.sum(1, keepdims=True)
        return (weights * v).sum(1, keepdims=True) / np.where(total > 0, total, 1)

    swapped_for = np.where(chosen, mean(flow * ~chosen), mean(flow * chosen))
    return 0.5 * flow * (v - swapped_for)


def _grad(y: Tensor, *xs: Tensor, graph: bool = False) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y.sum(), xs, create_graph=graph)


def _masked(x: Tensor, mask: Tensor | None) -> Array:
    x = x.detach().double()
    return (x if mask is None else x.masked_fill(~mask, -torch.inf)).cpu().numpy()


def check(batch: Batch, report: Report) -> None:
    """Compare everything."""
    exact = Exact(_masked(batch.p, batch.mask), batch.k.cpu().numpy())
    for part in (_moments, _scalars, _divergences, _choices):
        part(batch, exact, report)
    report.rows += len(batch.p)


def _leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def _moments(batch: Batch, exact: Exact, report: Report) -> None:
    options = {"mask": batch.mask, "method": batch.method}
    u, v = (_masked(x, None) for x in (batch.u, batch.v))
    one = np.ones(exact.rows)
    product, other = exact.covariance_product(v), exact.covariance_product(u)
    third = exact.third_cumulant_product(u, v)
    by_v, by_u, by_both = _spread(exact, v), _spread(exact, u), _spread(exact, u, v)

    x = _leaf(batch.p)
    mu = ksubset.marginals(x, batch.k, **options)
    report.add(batch, "marginals", "marginals", mu, exact.marginals, one)
    (first,) = _grad(mu * batch.v, x, graph=True)
    report.add(batch, "marginals'", "covariance", first, product, by_v)
    (second,) = _grad(first * batch.u, x)
    report.add(batch, "marginals''", "third cumulant", second, third, by_both)

    w = _leaf(batch.v)
    moved = ksubset.covariance_product(x, batch.k, w, **options)
    report.add(batch, "covariance_product", "covariance", moved, product, by_v)
    by_x, by_w = _grad(moved * batch.u, x, w)
    report.add(batch, "covariance_product' (logits)", "third cumulant", by_x, third, by_both)
    report.add(batch, "covariance_product' (v)", "covariance", by_w, other, by_u)

    generator = torch.Generator(batch.p.device).manual_seed(_hash(batch.seed))
    z = ksubset.simple(x, batch.k, generator=generator, **options)
    (through,) = _grad(z * batch.v, x)
    report.add(batch, "simple'", "covariance", through, product, by_v)
    z = ksubset.swap(x, batch.k, generator=generator, **options)
    (through,) = _grad(z * batch.v, x)
    moved = _product_plan(exact, z.detach().double().cpu().numpy() > 0.5, v)
    report.add(batch, "swap'", "covariance", through, moved, 0.01 + np.ptp(v, axis=1))

    if batch.n <= 11 and len(batch.p):
        matrix = ksubset.covariance_matrix(x, batch.k, **options)
        units = np.eye(batch.n)
        truth = np.stack(
            [exact.covariance_product(np.broadcast_to(unit, u.shape)) for unit in units], 2
        )
        report.add(batch, "covariance_matrix", "covariance", matrix, truth, np.full_like(one, 0.5))
        joint = truth + exact.marginals[:, :, None] * exact.marginals[:, None, :]
        pairs = ksubset.pairwise_marginals(x, batch.k, **options)
        report.add(batch, "pairwise_marginals", "marginals", pairs, joint, 2 * one)
        outer = batch.u.unsqueeze(-1) * batch.v.unsqueeze(-2)
        if batch.dtype == batch.working:  # the product is rounded otherwise
            (first,) = _grad(matrix * outer, x)
            report.add(batch, "covariance_matrix'", "third cumulant", first, third, 8 * by_both)


def _scalars(batch: Batch, exact: Exact, report: Report) -> None:
    options = {"mask": batch.mask, "method": batch.method}
    one = np.ones(exact.rows)
    u = _masked(batch.u, None)
    theta, free = exact.theta, exact.finite
    product, by_u = exact.covariance_product(u), _spread(exact, u)
    forced = exact.forced.any(1)

    x = _leaf(batch.p)
    total = ksubset.log_partition(x, batch.k, **options)
    truth = np.where(forced, np.inf, exact.log_partition)
    report.add(batch, "log_partition", "value", total, truth, 1 + np.abs(exact.log_partition))
    (first,) = _grad(total, x, graph=True)
    report.add(batch, "log_partition'", "marginals", first, np.where(free, exact.marginals, 0), one)
    (second,) = _grad(first * batch.u, x)
    report.add(batch, "log_partition''", "covariance", second, product, by_u)

    bent = product + exact.third_cumulant_product(theta, u)
    by_theta, by_both = _spread(exact, theta), by_u + _spread(exact, theta, u)
    for name, function, sign, truth, kind in (
        ("entropy", ksubset.entropy, -1, exact.entropy, "value"),
        (
            "kl_to_uniform", ksubset.kl_to_uniform, 1, exact.divergence(exact.uniform()),
            "divergence",
        ),
    ):  # fmt: skip
        value = function(x, batch.k, **options)
        report.add(batch, name, kind, value, truth, (1 if sign < 0 else 0.1) + np.abs(truth))
        (first,) = _grad(value, x, graph=True)
        slope = sign * exact.covariance_product(theta)
        report.add(batch, f"{name}'", "covariance", first, slope, by_theta)
        (second,) = _grad(first * batch.u, x)
        report.add(batch, f"{name}''", "third cumulant", second, sign * bent, by_both)

    given = np.where(free, _masked(batch.p, batch.mask), 0).astype(np.longdouble)
    heads = np.exp(-np.logaddexp(0, -given))
    truth = exact.log_partition - np.where(free, np.logaddexp(0, given), 0).sum(1)
    value = ksubset.log_prob_exactly_k(x, batch.k, **options)
    report.add(batch, "log_prob_exactly_k", "value", value, truth, 1 + np.abs(truth))
    (first,) = _grad(value, x, graph=True)
    slope = np.where(free, exact.marginals - heads, 0)
    report.add(batch, "log_prob_exactly_k'", "marginals", first, slope, 2 * one)
    (second,) = _grad(first * batch.u, x)
    curve = product - np.where(free, heads * (1 - heads) * u, 0)
    report.add(batch, "log_prob_exactly_k''", "covariance", second, curve, by_u + np.abs(u).max(1))

    z = ksubset.sample(
        batch.p, batch.k, generator=torch.Generator(batch.p.device).manual_seed(1), **options
    )
    chosen = z.double().cpu().numpy()
    truth = exact.log_prob(chosen)
    value = ksubset.log_prob(x, batch.k, z, **options)
    report.add(batch, "log_prob", "value", value, truth, 1 + np.abs(truth))
    (first,) = _grad(value, x, graph=True)
    slope = np.where(free, chosen - exact.marginals, 0)
    report.add(batch, "log_prob'", "marginals", first, slope, one)
    (second,) = _grad(first * batch.u, x)
    report.add(batch, "log_prob''", "covariance", second, -product, by_u)


def _divergences(batch: Batch, exact: Exact, report: Report) -> None:
    """p against q, with a mask on p alone: q allows what p allows."""
    other = Exact(_masked(batch.q, None), batch.k.cpu().numpy())
    p, q = _leaf(batch.p), _leaf(batch.q)
    value = ksubset.kl_divergence(p, q, batch.k, mask_p=batch.mask, method=batch.method)
    truth = exact.divergence(other)
    report.add(batch, "kl_divergence", "divergence", value, truth, 0.1 + np.abs(truth))

    u, w = _masked(batch.u, None), _masked(batch.v, None)
    distance = exact.theta - other.theta  # up to a constant
    by_p, by_q = _grad(value, p, q, graph=True)
    slope = exact.covariance_product(distance)
    # Logits far from zero are rounded at their own size.
    rounded = 1e-4 * np.abs(np.where(exact.open, distance, 0)).max(1)
    scale = _spread(exact, distance) + rounded
    report.add(batch, "kl_divergence' (p)", "covariance", by_p, slope, scale)
    change = np.where(other.finite, other.marginals - exact.marginals, 0)
    report.add(batch, "kl_divergence' (q)", "marginals", by_q, change, 2 * np.ones(exact.rows))

    twice_p, twice_q = _grad((by_p * batch.u).sum() + (by_q * batch.v).sum(), p, q)
    moved = exact.covariance_product(u)
    back = exact.covariance_product(np.where(other.finite, w, 0))
    curve = exact.third_cumulant_product(distance, u) + moved - back
    scale = _spread(exact, distance, u) + _spread(exact, u) + _spread(exact, w)
    scale = scale + rounded * np.abs(u).max(1)
    report.add(batch, "kl_divergence'' (p)", "third cumulant", twice_p, curve, scale)
    curve = other.covariance_product(w) - np.where(other.finite, moved, 0)
    scale = _spread(other, w) + _spread(exact, u)
    report.add(batch, "kl_divergence'' (q)", "covariance", twice_q, curve, scale)


def _choices(batch: Batch, exact: Exact, report: Report) -> None:
    """Samples are k-hot and keep to the rules; the mode has the largest sum of logits."""
    options = {"mask": batch.mask}
    allowed, forced = (
        torch.from_numpy(x).to(batch.p.device) for x in (~exact.forbidden, exact.forced)
    )
    for name, z in (
        ("sample", ksubset.sample(batch.p, batch.k, (3,), method=batch.method, **options)),
        ("mode", ksubset.mode(batch.p, batch.k, **options).unsqueeze(0)),
    ):
        good = ((z == 0) | (z == 1)).all() and ((z != 0).sum(-1) == batch.k).all()
        good = good and not z[..., ~allowed].any() and bool(z[..., forced].all())
        if not good:
            report.violations.append(f"{name} breaks the rules in batch {batch.seed!r}")
    score = np.where(exact.finite, ksubset.mode(batch.p, batch.k, **options).double().cpu(), 0)
    left = exact.k - exact.forced.sum(1)
    for row in range(exact.rows):
        ordered = np.sort(exact.theta[row][exact.finite[row]])[::-1]
        best = ordered[: left[row]].sum()
        if abs(float((score[row] * exact.theta[row]).sum() - best)) > 1e-9 * (1 + abs(best)):
            report.violations.append(f"mode is not the best subset in batch {batch.seed!r}")


def batches(first: int, cases: int, dtype: torch.dtype, device: torch.device) -> Iterator[Batch]:
    """Batches with at least so many rows in all; some by methods asked for by name."""
    rows, seed = 0, first
    methods = ("auto",) * 7 + ("spectral", "dp", "tree")
    while rows < cases:
        batch = make(seed, dtype, device, methods[seed % len(methods)])
        yield batch
        rows += len(batch.p)
        seed += 1
