"""Sample and gradient in JAX against straight-through Gumbel top-k in JAX, both compiled:
``python benchmarks/jax_run.py``, with ``taskset -c 0`` for one CPU thread.

Times are medians of interleaved calls. Every call gets another key.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.setdefault("XLA_FLAGS", ONE_THREAD)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import ksubset.jax as kj  # noqa: E402

SHAPES = (
    (2000, 20, 10),
    (64, 350, 10),
    (64, 350, 100),
    (128, 1000, 10),
    (128, 1000, 100),
    (128, 1000, 500),
    (1024, 1024, 10),
    (128, 4096, 64),
)


def gumbel_top_k(key: Any, logits: Any, k: int) -> Any:
    """k-hot, with k times the softmax of the perturbed logits as the derivative."""
    perturbed = logits + jax.random.gumbel(key, logits.shape, logits.dtype)
    _, chosen = jax.lax.top_k(jax.lax.stop_gradient(perturbed), k)
    rows = jnp.arange(logits.shape[0])[:, None]
    hard = jnp.zeros_like(logits).at[rows, chosen].set(1, unique_indices=True)
    soft = k * jax.nn.softmax(perturbed)
    return hard + soft - jax.lax.stop_gradient(soft)


def step(method: Callable[..., Any], k: int) -> Any:
    """Samples, and the gradient for one in them."""

    def both(key: Any, logits: Any, gradient: Any) -> Any:
        z, pull = jax.vjp(lambda x: method(key, x, k), logits)
        return z, pull(gradient)[0]

    return jax.jit(both)


METHODS: dict[str, Callable[..., Any]] = {
    "gumbel_top_k": gumbel_top_k,
    "simple": kj.simple,
    "swap": kj.swap,
}


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first of them only")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}; milliseconds, and ratios")
    for rows, n, k in SHAPES[: options.shapes]:
        logits = jax.random.normal(jax.random.key(1), (rows, n))
        gradient = jax.random.normal(jax.random.key(2), (rows, n))
        steps, first = {}, {}
        for name, method in METHODS.items():
            start = time.perf_counter()
            steps[name] = step(method, k).lower(jax.random.key(0), logits, gradient).compile()
            first[name] = time.perf_counter() - start
        times: dict[str, list[float]] = {name: [] for name in METHODS}
        for repeat in range(options.repeats + 2):
            for name, call in steps.items():
                start = time.perf_counter()
                jax.block_until_ready(call(jax.random.key(repeat), logits, gradient))
                times[name].append(1e3 * (time.perf_counter() - start))
        median = {name: statistics.median(found[2:]) for name, found in times.items()}
        line = "  ".join(
            f"{name} {median[name]:8.3f} ({median[name] / median['gumbel_top_k']:5.2f}; "
            f"compiled in {first[name]:4.1f} s)"
            for name in METHODS
        )
        print(f"{rows:5} x {n:5}, k = {k:4}: {line}", flush=True)


if __name__ == "__main__":
    main()
