"""A kernel's rows on the threads of torch's own operators.

Those are OpenMP's, and wait for their next task by spinning for a while: threads of another pool
would compete with them for the cores, just after an operator. ``GOMP_parallel`` is how code that
GCC compiles asks for the team; other OpenMP libraries have it for the sake of such code.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from numba import types

# A task, as the threads read it: the kernel, the number of shares, how many were taken, the sum of
# what the kernel returned; then the arguments behind the first two, and the shares' bounds.
_KERNEL, _SHARES, _TAKEN, _TOTAL, _ARGUMENTS = range(5)
_WORD = ir.IntType(64)
_in_child = False
_engines: list[Any] = []  # own the machine code


def _forked() -> None:
    """The team does not survive a fork, but OpenMP believes so, and would wait for it."""
    global _in_child
    _in_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@cache
def _parallel() -> Callable[..., None] | None:
    """``GOMP_parallel(function, data, threads, flags)`` of the library that torch uses; None if it
    uses none, or another operating system's way to load libraries."""
    if not torch.backends.openmp.is_available():
        return None
    # In the order in which the loader resolves torch's own calls.
    for file in (None, str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")):
        try:
            found = ctypes.CDLL(file).GOMP_parallel
        except (AttributeError, OSError, TypeError):
            continue
        found.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        found.restype = None
        return cast("Callable[..., None]", found)
    return None


@cache
def _worker(arguments: int) -> int:
    """The address of a function of a task, for kernels of so many arguments: it takes shares until
    none is left, so that it does not matter how many threads come, and when."""
    module = ir.Module()
    worker = ir.Function(module, ir.FunctionType(ir.VoidType(), [_WORD.as_pointer()]), "worker")
    task = worker.args[0]
    begin, following, work, done = (worker.append_basic_block() for _ in range(4))
    builder = ir.IRBuilder(begin)

    def at(index: Any) -> Any:
        return builder.gep(task, [index if isinstance(index, ir.Value) else _WORD(index)])

    kind = ir.FunctionType(_WORD, [_WORD] * arguments)
    kernel = builder.inttoptr(builder.load(at(_KERNEL)), kind.as_pointer())
    shares = builder.load(at(_SHARES))
    others = [builder.load(at(_ARGUMENTS + i)) for i in range(arguments - 2)]
    builder.branch(following)
    builder.position_at_end(following)
    mine = builder.atomic_rmw("add", at(_TAKEN), _WORD(1), "seq_cst")
    builder.cbranch(builder.icmp_signed("<", mine, shares), work, done)
    builder.position_at_end(work)
    place = builder.add(mine, _WORD(_ARGUMENTS + arguments - 2))
    bounds = [builder.load(at(index)) for index in (place, builder.add(place, _WORD(1)))]
    result = builder.call(kernel, [*bounds, *others])
    builder.atomic_rmw("add", at(_TOTAL), result, "seq_cst")
    builder.branch(following)
    builder.position_at_end(done)
    builder.ret_void()

    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _engines.append(engine)
    return cast("int", engine.get_function_address("worker"))


@cache
def _address(kernel: Any, arguments: int) -> int:
    """Of a kernel, to be called from C."""
    signature = (types.int64,) * arguments
    kernel.compile(signature)
    compiled = kernel.overloads[signature]
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return cast("int", compiled.library.get_pointer_to_function(name))


def share(kernel: Any, bounds: list[int], arguments: tuple[int, ...]) -> int | None:
    """The kernel on rows between each bound and the next, by torch's threads; the sum of what it
    returns. None where it cannot be done."""
    parallel = None if _in_child else _parallel()
    if parallel is None:
        return None
    many, shares = len(arguments) + 2, len(bounds) - 1
    task = (_address(kernel, many), shares, 0, 0, *arguments, *bounds)
    data = (ctypes.c_int64 * len(task))(*task)
    parallel(_worker(many), data, torch.get_num_threads(), 0)
    return data[_TOTAL]
