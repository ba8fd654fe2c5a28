"""The contract of tests/test_contract.py for ksubset.jax: values and derivatives against the
oracle and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from problems import INF, TOLERANCES, Problem, large, product_plan, small
from test_contract import Report
from torch import Tensor

import ksubset
from ksubset import oracle

jax = pytest.importorskip("jax")
jnp = jax.numpy
kj = pytest.importorskip("ksubset.jax")


@pytest.fixture(params=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    """Of logits; where it is float32, JAX knows no wider type."""
    with jax.enable_x64(request.param == "float64"):
        yield getattr(torch, request.param)


def to_jax(x: Tensor, dtype: torch.dtype | None = None) -> Any:
    return jnp.asarray((x if dtype is None else x.to(dtype)).numpy())


def double(x: Any) -> Tensor:
    return torch.as_tensor(np.array(x, dtype=np.float64))


def worst(x: Tensor) -> float:
    return float(x.detach().abs().max())


def check_all(problems: list[Problem], dtype: torch.dtype) -> None:
    """One batch of problems of the same n, each row with its own k."""
    tolerance = TOLERANCES[dtype]
    logits = to_jax(torch.stack([p.logits for p in problems]), dtype)
    k = jnp.asarray([p.k for p in problems])
    log_partition = double(kj.log_partition(logits, k))
    marginals = double(kj.marginals(logits, k))
    entropy = double(kj.entropy(logits, k))
    vectors = torch.stack([torch.stack(p.vectors) for p in problems], 1)
    vectors = torch.cat([vectors, torch.ones_like(vectors[:1])])
    products = double(kj.covariance_product(logits, k, to_jax(vectors, dtype)))
    report = Report()
    for i, p in enumerate(problems):
        if (p.logits == INF).any():
            assert log_partition[i] == INF
        else:
            error = abs(float(log_partition[i]) - p.log_partition)
            report.check("log-partition", p, error, tolerance.scalar * (1 + abs(p.log_partition)))
        report.check("marginals", p, worst(marginals[i] - p.marginals), tolerance.marginals)
        report.check("sum", p, abs(float(marginals[i].sum()) - p.k), tolerance.total * p.k)
        error = abs(float(entropy[i]) - p.entropy)
        report.check("entropy", p, error, tolerance.scalar * (1 + abs(p.entropy)))
        for j, (v, product) in enumerate(zip(p.vectors, p.products, strict=True)):
            first, second = tolerance.covariance
            bound = first * worst(product) + second * worst(v - v.mean())
            report.check("covariance", p, worst(products[j, i] - product), bound)
        report.check("Cov 1", p, worst(products[-1, i]), tolerance.total)
    report.verdict()


@pytest.mark.parametrize("n", [1, 3, 8, 14])
def test_against_enumeration(n: int, dtype: torch.dtype) -> None:
    check_all([p for p in small() if len(p.logits) == n], dtype)


@pytest.mark.parametrize(("n", "scale"), [(1000, 30.0), (10_000, 1.0)])
def test_against_the_log_space_dp(n: int, scale: float, dtype: torch.dtype) -> None:
    check_all(list(large(n, scale)), dtype)


# Functions of one row of logits, in both libraries: of a size and another row of logits.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log_partition": lambda lib, x, k, y: lib.log_partition(x, k),
    "log_prob_exactly_k": lambda lib, x, k, y: lib.log_prob_exactly_k(x, k),
    "marginals": lambda lib, x, k, y: (lib.marginals(x, k) * y).sum(),
    "covariance_product": lambda lib, x, k, y: (lib.covariance_product(x, k, y) * y).sum(),
    "covariance_matrix": lambda lib, x, k, y: (lib.covariance_matrix(x, k) @ y * y).sum(),
    "pairwise_marginals": lambda lib, x, k, y: (lib.pairwise_marginals(x, k) @ y * y).sum(),
    "log_prob": lambda lib, x, k, y: lib.log_prob(x, k, lib.mode(y, k)),
    "entropy": lambda lib, x, k, y: lib.entropy(x, k),
    "kl_divergence": lambda lib, x, k, y: lib.kl_divergence(x, y, k),
    "kl_divergence from": lambda lib, x, k, y: lib.kl_divergence(y, x, k),
    "kl_to_uniform": lambda lib, x, k, y: lib.kl_to_uniform(x, k),
}
ONCE = {"covariance_product", "covariance_matrix", "pairwise_marginals"}


def compiled_at_once(functions: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    """What they return: XLA compiles only once what they share."""
    return jax.jit(lambda x: [function(x) for function in functions])(x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("n", "k", "dtype"), [(9, 3, "float64"), (80, 60, "float32")], indirect=["dtype"]
)
def test_derivatives_are_those_of_torch(name: str, n: int, k: int, dtype: torch.dtype) -> None:
    """Values, gradients and second derivatives, by all ways there are to them."""
    bound = 1e-12 if dtype == torch.float64 else 2e-5
    x, y = torch.randn(2, n).double() * 2
    if name not in ("log_prob", "kl_divergence from"):  # they would be infinite
        x[2] = -INF
    function = FUNCTIONS[name]
    x, y = x.to(dtype), y.to(dtype)
    theta, eta = to_jax(x), to_jax(y)

    def of_jax(theta: Any) -> Any:
        return function(kj, theta, k, eta)

    def of_torch(theta: Tensor) -> Any:
        return function(ksubset, theta, k, y.double())

    exact = x.double().requires_grad_()
    value = of_torch(exact)
    (gradient,) = torch.autograd.grad(value, exact, create_graph=True)
    truth = float(value.detach())
    assert abs(float(of_jax(theta)) - truth) <= bound * (1 + abs(truth))
    first = (jax.grad(of_jax), jax.jacfwd(of_jax))
    if name in ONCE:
        for found in compiled_at_once(first, theta):
            assert worst(double(found) - gradient) <= bound * (1 + worst(gradient))
        return
    v = torch.randn(n, dtype=torch.float64)
    (second,) = torch.autograd.grad(gradient @ v, exact)
    along = to_jax(v, dtype)
    ways = (
        lambda x: jax.grad(lambda x: jax.grad(of_jax)(x) @ along)(x),
        lambda x: jax.jvp(jax.grad(of_jax), (x,), (along,))[1],
        lambda x: jax.grad(lambda x: jax.jvp(of_jax, (x,), (along,))[1])(x),
    )
    found = compiled_at_once((*first, *ways), theta)
    for one, truth in zip(found, [gradient] * 2 + [second] * 3, strict=True):
        assert worst(double(one) - truth) <= bound * (1 + worst(truth))


def test_the_third_derivative(dtype: torch.dtype) -> None:
    bound = 1e-12 if dtype == torch.float64 else 2e-5
    x, u, v = torch.randn(3, 8, dtype=dtype)
    theta, left, right = to_jax(x), to_jax(u), to_jax(v)
    cumulant = oracle.third_cumulant(x.double(), 3)
    truth = torch.einsum("ijl,j,l->i", cumulant, u.double(), v.double())
    found = jax.grad(
        lambda x: jax.grad(lambda x: jax.grad(kj.log_partition)(x, 3) @ left)(x) @ right
    )
    assert worst(double(found(theta)) - truth) <= bound
    with pytest.raises(NotImplementedError, match="differentiable to third order"):
        jax.grad(lambda x: found(x).sum())(theta)


def test_divergences_of_what_is_close_and_of_what_is_not(dtype: torch.dtype) -> None:
    p = to_jax(torch.tensor([1.0, 0.0, -1.0, 2.0]), dtype)
    assert float(kj.kl_divergence(p, p + 3, 2)) <= (1e-15 if dtype == torch.float64 else 1e-6)
    assert kj.kl_divergence(p, p, 2, 1) == INF
    assert kj.kl_divergence(p, p.at[0].set(-INF), 2) == INF
    assert kj.kl_divergence(p.at[0].set(-INF), p, 2) < INF


def test_logits_far_from_zero(dtype: torch.dtype) -> None:
    """Marginals of a shifted row, and items forbidden by large numbers."""
    bound = TOLERANCES[dtype].marginals
    x = (torch.randn(20).double() * 2**7).round() / 2**7
    truth = ksubset.marginals(x, 5)
    assert worst(double(kj.marginals(to_jax(x + 2**14, dtype), 5)) - truth) <= bound
    for sentinel in (-1e9, -1e30):
        y = x.clone()
        y[::3] = sentinel
        mask = torch.ones(20, dtype=torch.bool)
        mask[::3] = False
        truth = ksubset.marginals(x, 5, mask=mask)
        assert worst(double(kj.marginals(to_jax(y, dtype), 5)) - truth) <= bound
        assert worst(double(kj.marginals(to_jax(x, dtype), 5, mask=to_jax(mask))) - truth) <= bound


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_half_precision(narrow: str) -> None:
    x = jnp.asarray(np.linspace(-2, 2, 9), narrow)
    wide = x.astype(jnp.float32)
    assert kj.marginals(x, 3).dtype == narrow
    assert kj.entropy(x, 3).dtype == jnp.float32
    np.testing.assert_allclose(
        kj.marginals(x, 3).astype(jnp.float32), kj.marginals(wide, 3), atol=4e-3
    )
    gradient = jax.grad(lambda x: kj.entropy(x, 3))(x)
    assert gradient.dtype == narrow
    z = kj.simple(jax.random.key(0), x, 3)
    assert z.dtype == narrow
    assert z.sum() == 3


def test_mode_takes_the_first_of_equal_items() -> None:
    x = jnp.asarray([[1.0, 1.0, 1.0], [0.0, 2.0, 2.0]])
    np.testing.assert_array_equal(kj.mode(x, jnp.asarray([2, 1])), [[1, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize("plan", ["product", "exact"])
@pytest.mark.parametrize(("n", "k"), [(6, 4), (5, 1)])
def test_swap(n: int, k: int, plan: str, dtype: torch.dtype) -> None:
    """The gradient of a sample, against the definition; the same samples as those of simple."""
    x, g = torch.randn(2, n).double()
    key, theta, cotangent = jax.random.key(1), to_jax(x, dtype), to_jax(g, dtype)
    z, pull = jax.vjp(lambda x: kj.swap(key, x, k, plan=plan), theta)
    np.testing.assert_array_equal(z, kj.simple(key, theta, k))
    if plan == "exact":
        rates = oracle.swap_rates(x, double(z))
        weights = 0.5 * rates * (g.unsqueeze(1) - g)
        truth = weights.sum(1) - weights.sum(0)
    else:
        truth = product_plan(oracle.marginals(x, k), double(z), g)
    bound = 1e-12 if dtype == torch.float64 else 2e-5
    assert worst(double(pull(cotangent)[0]) - truth) <= bound * (1 + worst(truth))
    if (n, plan) == (6, "exact"):
        batch = jax.vmap(
            lambda x: jax.vjp(lambda x: kj.swap(key, x, k, plan=plan), x)[1](cotangent)
        )
        assert worst(double(batch(theta[None])[0][0]) - truth) <= bound * (1 + worst(truth))


@pytest.mark.parametrize("dtype", ["float32"], indirect=True)
def test_rows_that_sums_of_powers_serve_and_rows_that_they_do_not(dtype: torch.dtype) -> None:
    """Several blocks of rows on a CPU, the last of them filled up; some rows go node by node."""
    n = 6000
    scales = torch.tensor([0.1, 1.0, 3.0, 12.0]).repeat(4)[:13].double()
    sizes = torch.tensor([0, 4, 40, 3000, 5900, 5997, 6000]).repeat(2)[:13]
    x, v = torch.randn(2, 13, n).double() * scales[:, None]
    x[2::4, :5], x[6::5, 5:8] = -INF, INF
    sizes = sizes.clamp((x == INF).sum(-1), (x > -INF).sum(-1))
    x, v = x.to(dtype), v.to(dtype)
    marginals = ksubset.marginals(x.double(), sizes)
    products = ksubset.covariance_product(x.double(), sizes, v.double())
    total = ksubset.log_partition(
        torch.where(x == INF, -INF, x).double(), sizes - (x == INF).sum(-1)
    )
    k = to_jax(sizes)

    def found(x: Any, k: Any, v: Any) -> Any:
        return kj.marginals(x, k), kj.covariance_product(x, k, v), kj.log_partition(x, k)

    mu, product, log_partition = jax.jit(found)(to_jax(x), k, to_jax(v))
    tolerance = TOLERANCES[dtype]
    assert worst(double(mu) - marginals) <= tolerance.marginals
    first, second = tolerance.covariance
    bound = first * products.abs().amax(-1) + second * (v - v.mean(-1, keepdim=True)).abs().amax(-1)
    assert bool(((double(product) - products).abs().amax(-1) <= bound).all())
    free = (x != INF).all(-1)
    error = (double(log_partition) - total).abs() / (1 + total.abs())
    assert worst(error[free]) <= tolerance.scalar
