"""Samplers of ksubset.jax draw from the k-subset distribution, by chi-square against enumeration:
see tests/test_exactness.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from problems import INF
from test_exactness import FALSE_ALARM, logits_for, p_value, p_value_of_part
from torch import Tensor

jax = pytest.importorskip("jax")
jnp = jax.numpy
kj = pytest.importorskip("ksubset.jax")

DRAWS = 1_000_000


def draws(logits: Tensor, k: Any, number: int, seed: int = 0, **options: Any) -> Tensor:
    array = jnp.asarray(logits.numpy())
    z = kj.sample(jax.random.key(seed), array, k, (number,), **options)
    return torch.as_tensor(np.array(z))


@pytest.mark.parametrize(("n", "k", "scale"), [(8, 3, 1.0), (8, 5, 2.5), (6, 1, 1.0), (10, 5, 0.3)])
def test_short_rows(n: int, k: int, scale: float) -> None:
    logits = logits_for(n, scale)
    assert p_value(draws(logits, k, DRAWS), logits.double(), k) > FALSE_ALARM


def test_a_wrong_distribution_is_noticed() -> None:
    """Gumbel top-k, and logits that are a little off."""
    logits = logits_for(8, 1.0)
    noise = jax.random.gumbel(jax.random.key(0), (DRAWS, 8))
    top = jax.lax.top_k(jnp.asarray(logits.numpy()) + noise, 3)[1]
    z = torch.as_tensor(np.array(jax.nn.one_hot(top, 8).sum(1)))
    assert p_value(z, logits.double(), 3) < FALSE_ALARM
    near = logits.clone()
    near[0] += 0.02
    assert p_value(draws(near, 3, DRAWS), logits.double(), 3) < FALSE_ALARM


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_few_items_matter_in_a_long_row(spread: float) -> None:
    """Light rows are drawn with replacement, others by parts: eight items of a hundred, whose
    subsets can be counted."""
    n, k = 100, 3
    logits = torch.full((n,), -INF)
    places = torch.arange(8) * 12 + 1
    logits[places] = logits_for(8, spread)
    z = draws(logits, k, 200_000)
    assert not z.index_fill(1, places, 0).any()
    assert p_value(z[:, places], logits[places].double(), k) > FALSE_ALARM


@pytest.mark.parametrize(("n", "k"), [(65, 30), (300, 120), (300, 8), (1000, 400), (4000, 60)])
def test_parts_of_long_rows(n: int, k: int) -> None:
    """How many of a part are chosen: every so many items, and runs of them."""
    logits, at = logits_for(n, 1.0), torch.arange(n)
    z = draws(logits, k, 4000)
    assert (z.sum(-1) == k).all()
    for run, parts in ((1, 4), (1, 8), (n // 8, 8)):
        for j in (0, parts - 1):
            part = at // run % parts == j
            assert p_value_of_part(z, logits.double(), k, part) > FALSE_ALARM


def test_rows_of_a_batch() -> None:
    """Per-row k, masks, forced items and infinities side by side."""
    logits = torch.stack([logits_for(9, 1.0, seed) for seed in range(5)])
    logits[1, 4] = -INF
    logits[2, 4] = INF
    logits[3, :2], logits[3, 7] = INF, -INF
    k = [3, 8, 1, 4, 0]
    z = draws(logits, jnp.asarray(k), 100_000)
    for row in range(5):
        assert p_value(z[:, row], logits[row].double(), k[row]) > FALSE_ALARM


def test_samples_are_those_of_the_key() -> None:
    """Whatever else is in the batch, compiled or not."""
    logits, key = jnp.asarray(logits_for(100, 1.0).numpy()), jax.random.key(7)
    z = kj.sample(key, logits, 5, (3,))
    np.testing.assert_array_equal(z, kj.sample(key, logits, 5, (3,)))
    np.testing.assert_array_equal(
        z, jax.jit(kj.sample, static_argnums=(2, 3))(key, logits, 5, (3,))
    )
    assert (z != kj.sample(jax.random.key(8), logits, 5, (3,))).any()
    keys = jax.random.split(key, 4)
    several = jax.vmap(lambda key: kj.sample(key, logits, 5))(keys)
    for one, alone in zip(keys, several, strict=True):
        np.testing.assert_array_equal(kj.sample(one, logits, 5), alone)
    old = jax.random.PRNGKey(7)
    np.testing.assert_array_equal(z, kj.sample(old, logits, 5, (3,)))


def test_indices_are_the_places_of_ones() -> None:
    logits, key = jnp.zeros((2, 3, 12)), jax.random.key(0)
    z = kj.sample(key, logits, 4, (5,))
    index = kj.sample_indices(key, logits, 4, (5,))
    assert index.shape == (5, 2, 3, 4)
    np.testing.assert_array_equal(jax.nn.one_hot(index, 12).sum(-2), z)
    assert (index[..., 1:] > index[..., :-1]).all()
    bad = jax.jit(lambda x: kj.sample_indices(key, x, 4))(jnp.full(12, -jnp.inf))
    assert (bad == -1).all()
