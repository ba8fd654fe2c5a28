"""What importing the library does not import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ksubset

OPTIONAL = ("captum", "jax", "matplotlib", "numpyro", "pyro", "pysindy", "sklearn")


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_import_alone_loads_nothing() -> None:
    run("""
import sys
before = set(sys.modules)
import ksubset
loaded = {name for name in sys.modules.keys() - before if not name.startswith("_")}
assert not {"torch", "numpy", "numba", "jax"} & loaded, loaded
ksubset.KSubset
assert "torch" in sys.modules
""")


def test_what_is_loaded_late_is_what_checkers_see() -> None:
    """Names come from the modules that the imports for type checkers say."""
    tree = ast.parse(Path(ksubset.__file__).read_text(encoding="utf-8"))
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ksubset"):
            found |= {alias.name: node.module for alias in node.names}
    assert sorted(found) == ksubset.__all__
    for name, module in found.items():
        value = getattr(ksubset, name)
        if module == "ksubset":
            assert value.__name__ == f"ksubset.{name}"
        else:
            assert value is getattr(sys.modules[str(module)], name)
    assert set(ksubset.__all__) <= set(dir(ksubset))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'ksubset' has no attribute 'swaps'"):
        ksubset.swaps  # type: ignore[attr-defined]  # noqa: B018


def test_without_torch_errors_say_what_to_install() -> None:
    run("""
import sys
sys.modules["torch"] = None  # not there, to the importer
import ksubset
for access in (lambda: ksubset.sample, lambda: ksubset.nn, lambda: __import__("ksubset.nn")):
    try:
        access()
    except ModuleNotFoundError as error:
        assert "needs torch: pip install 'ksubset[torch]'" in str(error), error
        assert error.name == "torch"
    else:
        raise SystemExit("no error")
""")


def test_optional_dependencies_are_not_imported_unasked() -> None:
    program = f"""
import sys, ksubset, ksubset.explain
assert not set({OPTIONAL}) & sys.modules.keys()
"""
    run(program)


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
    run(program)
