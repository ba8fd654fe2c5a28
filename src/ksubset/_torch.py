"""Imported before what is written in torch, so that an error says what to install."""

from ksubset._needs import need

need("torch", "this part of ksubset", "torch", " (ksubset.jax does without)")
