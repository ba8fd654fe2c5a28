"""What a figure was measured on."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
from pathlib import Path
from typing import Any

import torch


def processor() -> str:
    """The CPU's model."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(device: str) -> dict[str, Any]:
    """Hardware and versions."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "cpu": processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        **{package: _version(package) for package in ("triton", "numba", "numpy")},
    }


def in_words(machine: dict[str, Any]) -> str:
    """One line for captions."""
    versions = [
        f"{package} {machine[package]}"
        for package in ("torch", "triton", "numba")
        if machine[package] is not None
    ]
    return ", ".join([machine["device"], *versions])


def set_threads(count: int) -> None:
    """For Numba, where it is installed, and for torch."""
    if importlib.util.find_spec("numba"):
        numba = importlib.import_module("numba")
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    # Last: starting Numba's threads sets OpenMP's number, which is torch's too.
    torch.set_num_threads(count)
