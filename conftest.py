"""Runs the examples of the README, the docs and the docstrings as tests, and shares all tests among
workers."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from importlib.util import find_spec

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from sybil.parsers.rest import DocTestParser
from sybil.sybil import SybilCollection
from xdist.scheduler import LoadScopeScheduling

# Files with examples that run where what they need is installed.
_JAX = ["**/ksubset/jax/*.py", *(["**/ksubset/numpyro.py"] if find_spec("numpyro") else [])]
_OTHERS = ["**/ksubset/jax/*.py", "**/ksubset/numpyro.py"]
_OTHERS += [] if find_spec("pyro") else ["**/ksubset/pyro.py"]
_PAGES = {
    "docs/jax.md": ("jax",),
    "docs/howto/rewiring.md": ("torch_geometric",),
    "docs/howto/jax-models.md": ("equinox", "flax", "jax", "numpyro", "pyro"),
}
_MISSING = [page for page, needed in _PAGES.items() if not all(map(find_spec, needed))]


def _setup(namespace: dict[str, object]) -> None:
    import torch

    import ksubset

    torch.manual_seed(0)
    namespace.update({name: getattr(ksubset, name) for name in ksubset.__all__}, torch=torch)


def _setup_jax(namespace: dict[str, object]) -> None:
    import jax

    import ksubset.jax

    names = ksubset.jax.__all__
    namespace.update({name: getattr(ksubset.jax, name) for name in names}, jax=jax, jnp=jax.numpy)
    if find_spec("numpyro"):
        import ksubset.numpyro

        namespace["KSubset"] = ksubset.numpyro.KSubset


def _seed(_: dict[str, object]) -> None:
    """A reader copies what is on the page: it gets no names from elsewhere."""
    import torch

    torch.manual_seed(0)


_prose = Sybil(
    parsers=[CodeBlockParser(language="python", evaluator=PythonEvaluator())],
    patterns=["*.md"],
    excludes=[f"**/{page}" for page in _MISSING],
    setup=_seed,
)
_docstrings = Sybil(
    parsers=[DocTestParser(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.py"],
    excludes=_OTHERS,
    document_types={".py": PythonDocStringDocument},
    setup=_setup,
)
_docstrings_of_jax = Sybil(
    parsers=[DocTestParser(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=_JAX if find_spec("jax") else [],
    document_types={".py": PythonDocStringDocument},
    setup=_setup_jax,
)
pytest_collect_file = SybilCollection((_prose, _docstrings, _docstrings_of_jax)).pytest()

# Tests that share what takes long to make: one worker runs all whose names begin like this.
TOGETHER = (
    "tests/docs/test_interactive.py",
    "tests/docs/test_site.py",
    "tests/functional/test_divergence.py::test_many_nearly_equal_logits",
    "tests/test_contract.py::test_against_the_log_space_dp[cpu-10000-1.0",
    "tests/test_contract.py::test_against_the_log_space_dp[cpu-10000-30.0",
)


class _InOrder(LoadScopeScheduling):
    """A worker that is free takes the next test, or all those of a document or a line above."""

    def _split_scope(self, nodeid: str) -> str:
        document, _, name = nodeid.partition("::")
        if name.startswith("line:"):  # examples of a document build on each other
            return document
        return next((begin for begin in TOGETHER if nodeid.startswith(begin)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    """In place of xdist's default, which deals tests out in advance and not in their order."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return _InOrder(config, log)
