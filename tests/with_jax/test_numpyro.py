"""KSubset as a distribution of NumPyro: what NumPyro's own tests ask of every distribution, in our
words, and models with a latent subset."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")
jnp = jax.numpy
dist = pytest.importorskip("numpyro.distributions")
kn = pytest.importorskip("ksubset.numpyro")

KEY = jax.random.key(0)
LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)


def make(k: Any = 2, **options: Any) -> Any:
    return kn.KSubset(k, LOGITS, **options)


@pytest.mark.parametrize("k", [2, np.array([1, 2, 4])], ids=["one k", "a k per row"])
def test_shapes_and_support(k: Any) -> None:
    d = make(k, validate_args=True)
    assert (d.batch_shape, d.event_shape) == ((3,), (5,))
    z = d.sample(KEY, (7,))
    assert z.shape == (7, 3, 5)
    assert d.support(z).all()
    assert not d.support(z.at[..., 0].add(1)).any()
    assert d.support.is_discrete
    assert d.support.event_dim == 1
    assert d.is_discrete
    assert d.log_prob(z).shape == (7, 3)
    assert d.support(d.support.feasible_like(z)).all()
    assert d.support == make(k).support
    with pytest.warns(UserWarning, match="Out-of-support"):
        d.log_prob(jnp.ones(5))
    with pytest.raises(ValueError, match="invalid logits parameter"):
        kn.KSubset(2, LOGITS.at[0, 0].set(jnp.nan), validate_args=True)
    kn.KSubset(2, LOGITS.at[0, 0].set(-jnp.inf), validate_args=True)


def test_moments_are_those_of_all_subsets() -> None:
    d = make()
    subsets = d.enumerate_support()
    assert subsets.shape == (math.comb(5, 2), 3, 5)
    assert d.enumerate_support(expand=False).shape == (10, 1, 5)
    p = jnp.exp(d.log_prob(subsets))
    np.testing.assert_allclose(p.sum(0), 1, rtol=1e-5)
    mean = (p[..., None] * subsets).sum(0)
    np.testing.assert_allclose(d.mean, mean, atol=1e-6)
    np.testing.assert_allclose(d.variance, mean * (1 - mean), atol=1e-6)
    np.testing.assert_allclose(d.covariance_matrix[:, 1, 1], d.variance[:, 1], atol=1e-6)
    np.testing.assert_allclose(d.entropy(), -(p * jnp.log(p)).sum(0), rtol=1e-5)
    best = subsets[p.argmax(0), jnp.arange(3)]
    np.testing.assert_array_equal(d.mode, best)
    with pytest.raises(NotImplementedError):
        make(jnp.asarray([1, 2, 3])).enumerate_support()


def test_divergence() -> None:
    p, q = make(), kn.KSubset(2, jnp.zeros(5))
    subsets = p.enumerate_support()
    direct = jnp.exp(p.log_prob(subsets)) * (p.log_prob(subsets) - q.log_prob(subsets))
    np.testing.assert_allclose(dist.kl_divergence(p, q), direct.sum(0), rtol=1e-4)
    wide = q.expand((3,))
    np.testing.assert_allclose(dist.kl_divergence(p, wide), direct.sum(0), rtol=1e-4)


@pytest.mark.parametrize("k", [2, jnp.asarray([1, 2, 4])], ids=["one k", "a k per row"])
def test_is_a_pytree(k: Any) -> None:
    d = make(k)
    z = d.sample(KEY)
    leaves, tree = jax.tree.flatten(d)
    again = jax.tree.unflatten(tree, leaves)
    np.testing.assert_array_equal(again.log_prob(z), d.log_prob(z))
    np.testing.assert_allclose(jax.jit(lambda d: d.log_prob(z))(d), d.log_prob(z), rtol=1e-6)
    gradient = jax.grad(lambda d: d.log_prob(z).sum(), allow_int=True)(d).logits
    np.testing.assert_allclose(gradient, z - d.mean, atol=1e-6)
    built = jax.jit(lambda logits: kn.KSubset(2, logits))(LOGITS)
    np.testing.assert_allclose(built.mean, make().mean, rtol=1e-6)


def test_vmap_over_distributions() -> None:
    from numpyro.distributions.batch_util import vmap_over

    z = make().sample(KEY)
    axes = vmap_over(kn.KSubset(2, LOGITS[0]), logits=0)
    d = jax.vmap(lambda logits: kn.KSubset(2, logits), out_axes=axes)(LOGITS)
    value = jax.vmap(lambda d, z: d.log_prob(z), in_axes=(vmap_over(d, logits=0), 0))(d, z)
    np.testing.assert_allclose(value, make().log_prob(z), rtol=1e-6)


def test_expand_and_wrappers() -> None:
    d = make()
    wide = d.expand((4, 3))
    z = wide.sample(KEY)
    assert z.shape == (4, 3, 5)
    np.testing.assert_allclose(wide.log_prob(z), d.log_prob(z), rtol=1e-6)
    assert d.to_event(1).log_prob(z).shape == (4,)
    assert (d.mask(False).log_prob(z) == 0).all()
    assert kn.KSubset.infer_shapes((), (3, 5)) == ((3,), (5,))


def model(data: Any = None) -> Any:
    z = numpyro.sample("z", kn.KSubset(2, jnp.asarray([0.0, 1.0, 0.0, -1.0])))
    numpyro.sample("x", dist.Normal(z @ jnp.arange(4.0), 1.0), obs=data)


def evidence(data: float) -> float:
    """log p(x) by enumeration."""
    d = kn.KSubset(2, jnp.asarray([0.0, 1.0, 0.0, -1.0]))
    z = d.enumerate_support()
    joint = d.log_prob(z) + dist.Normal(z @ jnp.arange(4.0), 1.0).log_prob(data)
    return float(jax.scipy.special.logsumexp(joint))


def test_a_latent_subset_is_found() -> None:
    """Variational inference comes close to the evidence."""
    from numpyro.infer import SVI, TraceGraph_ELBO

    def guide(data: Any = None) -> None:
        logits = numpyro.param("logits", jnp.zeros(4))
        numpyro.sample("z", kn.KSubset(2, logits))

    svi = SVI(model, guide, numpyro.optim.Adam(0.1), TraceGraph_ELBO(num_particles=64))
    found = svi.run(KEY, 300, 4.0, progress_bar=False)
    elbo = -float(found.losses[-50:].mean())
    assert evidence(4.0) - 0.5 < elbo < evidence(4.0) + 0.1
    mean = kn.KSubset(2, found.params["logits"]).mean
    assert mean[3] > 0.4 > mean[0]


def test_samples_with_the_gradient_of_simple() -> None:
    assert kn.SimpleKSubset(2, LOGITS).has_rsample
    assert not make().has_rsample
    v = jnp.arange(5.0)
    gradient = jax.grad(lambda x: (kn.SimpleKSubset(2, x).rsample(KEY) @ v).sum())(LOGITS)
    np.testing.assert_allclose(gradient, make().covariance_matrix @ v, atol=1e-6)
    assert not jax.grad(lambda x: (kn.KSubset(2, x).sample(KEY) @ v).sum())(LOGITS).any()
