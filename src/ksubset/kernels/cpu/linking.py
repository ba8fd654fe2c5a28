"""Kernels are optimised as a whole, once.

Numba optimises a function, and turns it into machine code, before its callers: what is inlined goes
through that again in every caller, and in the callers of these. Here the parts of a kernel wait as
they are, and all that a kernel calls is put together before anything is optimised: a third of the
time of LLVM (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _WithoutEnvironment:
    """Numba's code generator, for functions that Python never calls: an environment is of no use to
    them, and there is no machine code to be told of it."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


class _Part(JITCodeLibrary):
    """The code of one function, not optimised, without that of those it calls."""

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironment(self._codegen)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: there is no machine code."""
        self._ensure_finalized()
        return 0


class _Kernel(JITCodeLibrary):
    """The code of a kernel and of all that it calls."""

    def finalize(self) -> None:
        libraries = list(dict.fromkeys(_called(self)))
        own = []
        for part in libraries:
            if not isinstance(part, _Part):
                continue
            module = part._final_module.clone()
            for function in module.functions:
                if not function.is_declaration and function.linkage.name == "external":
                    own.append(function.name)
                    # A function that may be left out would be, if its caller comes later.
                    function.linkage = "weak_odr"
            self._final_module.link_in(module)
        for name in own:
            self._final_module.get_function(name).linkage = "linkonce_odr"
        self._linking_libraries = [each for each in libraries if not isinstance(each, _Part)]
        super().finalize()


def _called(library: Any) -> Iterator[Any]:
    for each in library._linking_libraries:
        yield each
        if isinstance(each, _Part):
            yield from _called(each)


class PartCompiler(Compiler):
    """For functions that only kernels call."""

    def define_pipelines(self) -> Any:  # noqa: D102
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


class KernelCompiler(Compiler):
    """For kernels."""

    def define_pipelines(self) -> Any:  # noqa: D102
        state = self.state
        state.library = _Kernel(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()
