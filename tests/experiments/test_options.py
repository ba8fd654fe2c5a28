"""Every option that a message, a docstring or a page names for an experiment is one it has."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py"))
# After "-m experiments.NAME": all of the command, over lines that are continued.
_CALL = re.compile(r"-m experiments\.([\w.]+)((?:\\\n|[^\n`\"#])*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_CODE = re.compile(r"^```.*?\n(?P<block>.*?)^```|`(?P<inline>[^`\n]+(?:\n[^`\n]+)?)`", re.S | re.M)


@cache
def options(experiment: str) -> frozenset[str]:
    """Of ``python -m experiments.NAME``, by typer's own account."""
    if (ROOT / "experiments" / experiment).is_dir():
        app = importlib.import_module(f"experiments.{experiment}.__main__").app
    else:
        app = typer.Typer()
        app.command()(importlib.import_module(f"experiments.{experiment}").main)
    found = {"--help"}
    for parameter in typer.main.get_command(app).params:
        found |= {*parameter.opts, *parameter.secondary_opts}
    return frozenset(found)


# ---- what a run can say: strings of all that its package refers to, directly or not ----


@cache
def definitions(module: str) -> dict[str, ast.AST]:
    """Top-level statements of a module by the names they define; others have the names 0, 1, …"""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: dict[str, ast.AST] = {}
    for i, node in enumerate(ast.parse(path.read_text(encoding="utf-8")).body):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Assign() | ast.AnnAssign():
                names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
                found |= {part.id: node for part in names if isinstance(part.ctx, ast.Store)}
            case ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name: node for alias in aliases}
            case _:
                found[str(i)] = node
    return found


def imported(node: ast.ImportFrom, name: str) -> list[tuple[str, str]]:
    """What a name stands for: a definition elsewhere, or all those of a module."""
    if not (node.module or "").startswith("experiments"):
        return []
    original = next(a.name for a in node.names if name in (a.name, a.asname))
    assert node.module is not None
    if original in definitions(node.module):
        return [(node.module, original)]
    module = f"{node.module}.{original}"
    return [(module, each) for each in definitions(module)]


def said(experiment: str) -> Iterator[tuple[str, str]]:
    """Strings, and where each is."""
    waiting = []
    for path in (ROOT / "experiments" / experiment).glob("*.py"):
        if "typer.run(" not in path.read_text(encoding="utf-8"):  # that is a command of its own
            module = f"experiments.{experiment}.{path.stem}"
            waiting += [(module, name) for name in definitions(module)]
    seen = set(waiting)
    while waiting:
        module, name = waiting.pop()
        node = definitions(module)[name]
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value, f"{module}, line {part.lineno}"
        if isinstance(node, ast.ImportFrom):
            more = imported(node, name)
        else:
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            more = [(module, each) for each in used & definitions(module).keys()]
        waiting += [each for each in more if each not in seen]
        seen.update(more)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_messages(experiment: str) -> None:
    found = [
        (option, where) for text, where in said(experiment) for option in _OPTION.findall(text)
    ]
    assert "--overwrite" in {option for option, _ in found}  # it is looked for where it is said
    assert [each for each in found if each[0] not in options(experiment)] == []


def test_messages_are_followed_to_where_they_are_said() -> None:
    """Through other modules, but no further than an experiment goes."""
    assert "--resume" in " ".join(text for text, _ in said("l2x"))
    assert "--resume" not in " ".join(text for text, _ in said("synthetic"))
    assert "--download" in " ".join(text for text, _ in said("dvae"))
    assert "--download" not in " ".join(text for text, _ in said("beer"))


# ---- what pages and files say ----


def calls(text: str) -> Iterator[tuple[str, str]]:
    """Experiments and options, of commands as they are written."""
    for name, rest in _CALL.findall(text):
        for option in _OPTION.findall(rest):
            yield name.rstrip("."), option


def in_prose(text: str) -> Iterator[tuple[str, str]]:
    """Options by themselves, in code, of the experiment named last before them."""
    experiment = None
    for found in _CODE.finditer(text):
        code = found["block"] or found["inline"].replace("\n", " ")
        for line in code.splitlines():
            if named := _CALL.search(line):
                experiment = named[1].split(".")[0]
            elif experiment is not None and line.startswith("--"):
                for option in _OPTION.findall(line):
                    yield experiment, option


def texts() -> Iterator[Path]:
    yield from (ROOT / name for name in ("Makefile", "README.md", "CONTRIBUTING.md"))
    for folder in ("benchmarks", "docs", "examples", "experiments", "src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".html", ".md", ".py"):
                yield path


def test_texts() -> None:
    found = []
    for path in texts():
        text = path.read_text(encoding="utf-8")
        named = [*calls(text), *(in_prose(text) if path.suffix == ".md" else ())]
        found += [(path.name, experiment, option) for experiment, option in named]
    assert ("Makefile", "synthetic", "--overwrite") in found
    assert ("explain.md", "beer", "--cells") in found
    assert [each for each in found if each[2] not in options(each[1])] == []


def test_a_command_that_needs_data_says_so() -> None:
    """With MNIST in its place, the VAE has the digits of scikit-learn to run on."""
    needy = [
        each for each in EXPERIMENTS if {"--data-dir"} == options(each) & {"--data", "--data-dir"}
    ]
    assert needy == ["beer"]
    found = [
        (path.name, name, rest)
        for path in texts()
        if path.suffix == ".md"
        for name, rest in _CALL.findall(path.read_text(encoding="utf-8"))
        if name in needy
    ]
    assert {path for path, _, _ in found} == {"index.md", "explain.md"}
    assert [each for each in found if "--data-dir" not in each[2]] == []


def test_an_option_that_is_not_there_is_found() -> None:
    page = "`python -m experiments.beer \\\n--data x`: or `--data-dir`, `--cells` and `--datas`."
    assert list(calls(page)) == [("beer", "--data")]
    assert [option for _, option in in_prose(page)] == ["--data-dir", "--cells", "--datas"]
    assert {"--data", "--datas"}.isdisjoint(options("beer"))
    assert {"--no-grid", "--help", "--output"} <= options("synthetic")
