"""Runs the examples of the README, the docs and the docstrings as tests."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from sybil.parsers.rest import DocTestParser


def _setup(namespace: dict[str, object]) -> None:
    import torch

    import ksubset

    torch.manual_seed(0)
    namespace.update({name: getattr(ksubset, name) for name in ksubset.__all__}, torch=torch)


def _seed(_: dict[str, object]) -> None:
    """A reader copies what is on the page: it gets no names from elsewhere."""
    import torch

    torch.manual_seed(0)


_prose = Sybil(
    parsers=[CodeBlockParser(language="python", evaluator=PythonEvaluator())],
    patterns=["*.md"],
    setup=_seed,
)
_docstrings = Sybil(
    parsers=[DocTestParser(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.py"],
    document_types={".py": PythonDocStringDocument},
    setup=_setup,
)
pytest_collect_file = (_prose + _docstrings).pytest()
