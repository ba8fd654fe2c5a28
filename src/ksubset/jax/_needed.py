"""Imported before what is written in JAX, so that an error says what to install."""

from ksubset._needs import need

need("jax", "ksubset.jax", "jax")
