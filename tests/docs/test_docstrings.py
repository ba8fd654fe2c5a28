"""The reference: every public name is on a page, with all its parameters and an example.

Examples in docstrings of functions and classes run as tests of their own (conftest.py at the root);
those beside data, which Python does not keep, run here.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import itertools
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import ksubset

DOCS = Path(__file__).parents[2] / "docs"
MODULES = {  # and what they need
    "ksubset": None,
    "ksubset.estimators": None,
    "ksubset.explain": None,
    "ksubset.explain.captum": "captum",
    "ksubset.jax": "jax",
    "ksubset.nn": None,
    "ksubset.numpyro": "numpyro",
    "ksubset.oracle": None,
    "ksubset.pyro": "pyro",
    "ksubset.pysindy": "pysindy",
    "ksubset.regression": None,
    "ksubset.sklearn": "sklearn",
}
SECTION = re.compile(r"^([A-Z]\w+):\n((?:[ \t]+.*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}\*{0,2}(\w+)(?: \([^)]*\))?: \S", re.MULTILINE)


def load(name: str) -> ModuleType:
    needed = MODULES[name]
    if needed is not None:
        pytest.importorskip(needed)
    return importlib.import_module(name)


def public(module: ModuleType) -> dict[str, Any]:
    """All that a module offers but for other modules."""
    named = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in named.items() if not inspect.ismodule(value)}


def sections(docstring: str) -> dict[str, str]:
    """What stands under "Args:", "Examples:" and the like."""
    return {found[1]: found[2] for found in SECTION.finditer(docstring + "\n")}


def parameters(value: Any) -> list[str]:
    """Of a function, or of making one of a class."""
    taken = inspect.signature(value).parameters.values()
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    # A class without an __init__ of its own passes on whatever it gets.
    return [one.name for one in taken if not (inspect.isclass(value) and one.kind in rest)]


def attribute_docstring(module: ModuleType, name: str) -> str:
    """The text that follows an assignment."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in itertools.pairwise(body):
        match statement, following:
            case (
                ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if found == name:
                return inspect.cleandoc(text)
    return ""


def docstring(module: ModuleType, name: str, value: Any) -> str:
    if inspect.isroutine(value) or inspect.isclass(value):
        # Its own: a docstring of the class above says nothing about this one.
        return inspect.cleandoc(value.__doc__ or "")
    return attribute_docstring(module, name)


def faults(text: str, names: list[str]) -> list[str]:
    """What a docstring lacks, given the parameters it has to describe."""
    if not text:
        return ["no docstring"]
    parts = sections(text)
    described = ENTRY.findall(parts.get("Args", "")) + ENTRY.findall(parts.get("Attributes", ""))
    missing = [f"{name} is not described" for name in names if name not in described]
    # "Example:" is not a section of Google style: the reference would show it as a quotation.
    return missing + ["no examples"] * (">>>" not in parts.get("Examples", ""))


@pytest.mark.parametrize("module_name", MODULES)
def test_every_public_name_has_parameters_and_examples(module_name: str) -> None:
    module = load(module_name)
    found = {}
    for name, value in public(module).items():
        names = parameters(value) if callable(value) else []
        found[name] = faults(docstring(module, name, value), names)
    assert found, "there are no public names"
    assert {name: lacking for name, lacking in found.items() if lacking} == {}


def undocumented(x: int) -> int:
    return x


def half_documented(x: int, y: int, *others: int, **options: int) -> int:
    """A sum of x, y and others.

    Args:
        x, y: two numbers at once.
        others: more of them:
            y: is not an entry here.

    Example:
        >>> half_documented(1, 2)
        3
    """
    return x + y + sum(others) + sum(options.values())


def documented(x: int, *others: int, **options: int) -> int:
    """A sum.

    Args:
        x: a number.
        *others: more of them,
            on two lines.

            And after an empty one.
        **options (int): even more.

    Returns:
        The sum.

    Examples:
        >>> documented(1, 2)
        3
    """
    return x + sum(others) + sum(options.values())


class Inherited(torch.nn.Identity):
    pass


def test_what_is_missing_is_found() -> None:
    def found(value: Any) -> list[str]:
        text = docstring(inspect.getmodule(value), value.__name__, value)  # type: ignore[arg-type]
        return faults(text, parameters(value))

    assert found(undocumented) == ["no docstring"]
    assert found(half_documented) == [
        "x is not described",
        "y is not described",
        "options is not described",
        "no examples",
    ]
    assert found(documented) == []
    assert found(Inherited) == ["no docstring"]


def test_data_have_docstrings_whose_examples_run() -> None:
    module = ksubset.estimators
    text = attribute_docstring(module, "ESTIMATORS")
    case = doctest.DocTestParser().get_doctest(text, {}, "ESTIMATORS", module.__file__, 0)
    assert len(case.examples) == text.count(">>>") > 0
    assert doctest.DocTestRunner(verbose=False).run(case).failed == 0
    assert attribute_docstring(module, "__all__") == ""


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    pages = [page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))]
    shown = [line for page in pages for line in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    offered = [f"{module}.{name}" for module in MODULES for name in _offered(module)]
    assert sorted(shown) == sorted(offered)


def _offered(module: str) -> list[str]:
    """Names in ``__all__`` of a source file: what it imports need not be installed."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names: list[str] = []
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names = ast.literal_eval(value)
    assert names, f"{module} has no __all__"
    return [name for name in names if f"{module}.{name}" not in MODULES]
