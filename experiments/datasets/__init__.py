"""Data of the experiments: found, checked by hash, never part of the project."""
