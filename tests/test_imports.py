"""What importing the library does not import."""

from __future__ import annotations

import subprocess
import sys

OPTIONAL = ("captum", "matplotlib", "pysindy", "sklearn")


def test_optional_dependencies_are_not_imported_unasked() -> None:
    program = f"""
import sys, ksubset, ksubset.explain
assert not set({OPTIONAL}) & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_compilers_are_not_imported_before_anything_is_compiled() -> None:
    """Not torch's own, which takes longer than torch itself, nor those of kernels."""
    program = """
import sys, torch
before = set(sys.modules)
import ksubset
compilers = {"torch._dynamo", "torch._inductor", "sympy", "triton", "numba", "llvmlite"}
loaded = compilers & (sys.modules.keys() - before)
assert not loaded, loaded
logits = torch.randn(2, 5, requires_grad=True)
ksubset.simple(logits, 2, method="dp").sum().backward()
loaded = compilers & (sys.modules.keys() - before)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True)
