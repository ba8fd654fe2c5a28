"""ksubset.jax under the transforms of JAX, and what its errors say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy
kj = pytest.importorskip("ksubset.jax")

KEY = jax.random.key(0)
LOGITS = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
V = np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32)

ROWWISE: dict[str, Callable[..., Any]] = {
    "marginals": lambda x, k, v: kj.marginals(x, k),
    "covariance_product": lambda x, k, v: kj.covariance_product(x, k, v),
    "pairwise_marginals": lambda x, k, v: kj.pairwise_marginals(x, k),
    "entropy": lambda x, k, v: kj.entropy(x, k),
    "kl_divergence": lambda x, k, v: kj.kl_divergence(x, v, k),
    "gradient": lambda x, k, v: jax.grad(lambda x: kj.log_partition(x, k).sum())(x),
    "gradient of simple": lambda x, k, v: jax.vjp(lambda x: kj.simple(KEY, x, k), x)[1](v)[0],
    "mode": lambda x, k, v: kj.mode(x, k),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_vmap_is_a_batch(name: str) -> None:
    function, k = ROWWISE[name], jnp.asarray([1, 3, 4, 8])
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)

    # One compilation for all ways: that is what takes time here.
    @jax.jit
    def ways(x: Any, k: Any, v: Any) -> Any:
        each = jax.vmap(function)
        shared = jax.vmap(lambda k: function(x[0], k, v[0]))(k)
        last = jax.vmap(function, in_axes=(1, None, 1))(x.T, 3, v.T)
        return jax.vmap(each)(x[None], k[None], v[None])[0], shared, last

    batch = function(LOGITS, k, V)
    twice, shared, last = ways(LOGITS, k, V)
    close(twice, batch)
    close(shared[1], function(LOGITS[0], k[1], V[0]))
    close(last, function(LOGITS, 3, V))


def loss(x: Any) -> Any:
    return (kj.simple(KEY, x, 3) * V).sum() + (kj.marginals(x, 3) * V).sum()


def test_simple_has_the_gradient_of_the_marginals() -> None:
    truth = 2 * kj.covariance_product(LOGITS, 3, V)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    close(jax.jit(jax.grad(loss))(LOGITS), truth)
    close(jax.grad(jax.checkpoint(loss))(LOGITS), truth)
    close(jax.jacfwd(loss)(LOGITS), truth)

    def several(x: Any) -> Any:
        return (kj.simple(KEY, x, 3, (5,)) * V).sum()

    close(jax.grad(several)(LOGITS), 2.5 * truth)
    bilinear = jax.grad(lambda x: (jax.grad(loss)(x) * V).sum())(LOGITS)
    cumulants = jax.grad(lambda x: 2 * (kj.covariance_product(x, 3, V) * V).sum())(LOGITS)
    close(bilinear, cumulants)


def test_sample_has_no_gradient() -> None:
    assert not jax.grad(lambda x: (kj.sample(KEY, x, 3) * V).sum())(LOGITS).any()


def test_in_a_loop() -> None:
    def step(x: Any, key: Any) -> tuple[Any, Any]:
        value, slope = jax.value_and_grad(lambda x: (kj.simple(key, x, 3) * V).sum())(x)
        return x - 0.1 * slope, value

    _, values = jax.lax.scan(step, jnp.asarray(LOGITS), jax.random.split(KEY, 50))
    assert values[-10:].mean() < values[:10].mean()


def test_shards_of_rows() -> None:
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("rows")

    def shard(x: Any, v: Any) -> Any:
        z = kj.simple(KEY, x, 3)
        return z.sum(-1), kj.covariance_product(x, 3, v), kj.entropy(x, 3)

    shared = jax.shard_map(shard, mesh=mesh, in_specs=(spec, spec), out_specs=(spec, spec, spec))
    total, product, entropy = jax.jit(shared)(LOGITS, V)
    np.testing.assert_array_equal(total, 3)
    np.testing.assert_allclose(product, kj.covariance_product(LOGITS, 3, V), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(entropy, kj.entropy(LOGITS, 3), rtol=1e-5)

    def gradient(x: Any) -> Any:
        total = jax.shard_map(
            lambda x: (kj.marginals(x, 3) ** 2).sum(-1), mesh=mesh, in_specs=spec, out_specs=spec
        )
        return total(x).sum()

    truth = jax.grad(lambda x: (kj.marginals(x, 3) ** 2).sum())(LOGITS)
    np.testing.assert_allclose(jax.grad(gradient)(LOGITS), truth, rtol=1e-5, atol=1e-6)


def test_rows_without_a_subset_are_nan_where_nobody_looks() -> None:
    bad = jnp.asarray(LOGITS).at[0, :7].set(-jnp.inf)
    bad = bad.at[1, 0].set(jnp.nan)
    for name in ("log_partition", "marginals", "entropy", "mode"):
        value = np.asarray(jax.jit(lambda x, name=name: getattr(kj, name)(x, 3))(bad))
        value = value.reshape(4, -1)
        assert np.isnan(value[:2]).all()
        assert np.isfinite(value[2:]).all()
    z = jax.jit(lambda x: kj.sample(KEY, x, 3))(bad)
    assert np.isnan(z[:2]).all()
    assert (z[2:].sum(-1) == 3).all()


def test_values_are_checked_under_checkify() -> None:
    from jax.experimental import checkify

    def function(x: Any) -> Any:
        return kj.marginals(x, 3, validate_args=True)

    error, _ = checkify.checkify(jax.jit(function))(jnp.asarray(LOGITS))
    assert error.get() is None
    error, _ = checkify.checkify(jax.jit(function))(jnp.asarray(LOGITS).at[0, 0].set(jnp.nan))
    assert "logits must not be NaN" in str(error.get())


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no array": (lambda: kj.marginals([0.0], 1), TypeError, "logits must be an array, got list"),
    "integers": (
        lambda: kj.marginals(jnp.arange(3), 1),
        TypeError,
        "logits must be float16, bfloat16, float32 or float64, got int32",
    ),
    "no items": (lambda: kj.marginals(jnp.zeros((2, 0)), 0), ValueError, r"got shape \(2, 0\)"),
    "k too large": (
        lambda: kj.marginals(jnp.zeros(3), 4),
        ValueError,
        "k must be between 0 and the number of items n = 3, got 4",
    ),
    "no integer": (lambda: kj.marginals(jnp.zeros(3), 1.5), TypeError, "k must be an int"),
    "a bool": (lambda: kj.marginals(jnp.zeros(3), True), TypeError, "k must be an int"),
    "shapes": (
        lambda: kj.marginals(jnp.zeros((2, 3)), jnp.ones(5, int)),
        ValueError,
        r"must broadcast: logits \(2,\), k \(5,\)",
    ),
    "k of a row": (
        lambda: kj.marginals(jnp.zeros((2, 3)), jnp.asarray([1, 4])),
        ValueError,
        r"k must be between 0 and the number of allowed items, 3, got 4 in row \(1,\)",
    ),
    "mask": (
        lambda: kj.marginals(jnp.zeros(3), 1, mask=jnp.ones(3)),
        TypeError,
        "mask must be boolean",
    ),
    "masked": (
        lambda: kj.marginals(jnp.zeros(3), 2, mask=jnp.asarray([True, False, False])),
        ValueError,
        "the number of allowed items, 1, got 2 in the only row",
    ),
    "forced": (
        lambda: kj.marginals(jnp.full(3, jnp.inf), 2),
        ValueError,
        r"k must be at least the number of items with a logit of \+inf, 3, got 2",
    ),
    "nan": (lambda: kj.marginals(jnp.full(3, jnp.nan), 2), ValueError, "logits must not be NaN"),
    "v": (
        lambda: kj.covariance_product(jnp.zeros(3), 1, jnp.zeros(4)),
        ValueError,
        r"v must have shape \(..., n\) with n = 3, got \(4,\)",
    ),
    "value": (
        lambda: kj.log_prob(jnp.zeros(3), 1, jnp.ones(3)),
        ValueError,
        "value must be k-hot with k = 1 ones, got 3",
    ),
    "key": (lambda: kj.sample(0, jnp.zeros(3), 1), TypeError, "key must be a key of jax.random"),
    "keys": (
        lambda: kj.sample(jax.random.split(KEY), jnp.zeros(3), 1),
        ValueError,
        "key must be a single key",
    ),
    "sample_shape": (
        lambda: kj.sample(KEY, jnp.zeros(3), 1, 5),
        ValueError,
        "sample_shape must be a sequence of sizes >= 0, got 5",
    ),
    "plan": (
        lambda: kj.swap(KEY, jnp.zeros(3), 1, plan="best"),
        ValueError,
        "plan must be one of 'product', 'exact', got 'best'",
    ),
    "indices": (
        lambda: kj.sample_indices(KEY, jnp.zeros(3), jnp.ones(2, int)),
        TypeError,
        "k must be an int in sample_indices",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()


def test_torch_is_not_imported() -> None:
    import subprocess
    import sys

    program = """
import sys
import jax, jax.numpy as jnp, ksubset.jax as kj
z = kj.simple(jax.random.key(0), jnp.zeros((2, 5)), 2)
assert not {"torch", "numba"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
