"""Time on equal terms: the same batch, one thread, all methods in every round."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor

from experiments.synthetic.measure import Measured, gradients, warm
from experiments.synthetic.methods import REFERENCE, Method
from experiments.synthetic.problems import Problems


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a method did in one round."""

    method: Method
    gradients: Tensor  # (problems, draws, n)
    seconds: float


@contextmanager
def one_thread() -> Iterator[None]:
    """For torch, and for Numba where it is installed."""
    before = torch.get_num_threads()
    if importlib.util.find_spec("numba"):
        numba = importlib.import_module("numba")
        threads = numba.get_num_threads()
        numba.set_num_threads(1)
    torch.set_num_threads(1)  # last: starting Numba's threads sets OpenMP's number too
    try:
        yield
    finally:
        if importlib.util.find_spec("numba"):
            numba.set_num_threads(threads)
        torch.set_num_threads(before)


def turns(
    methods: Sequence[Method], problems: Problems, draws: int, rounds: int, seed: int
) -> Iterator[Turn]:
    """Gradients of all methods, round by round, each with its time. The order rotates, so that no
    method always runs after the same one."""
    torch.manual_seed(seed)
    estimators = [warm(method, problems) for method in methods]
    for turn in range(rounds):
        for i in range(len(methods)):
            place = (turn + i) % len(methods)
            torch.manual_seed(seed + 1 + turn)
            start = time.perf_counter()
            found = gradients(methods[place], estimators[place], problems, draws)
            yield Turn(methods[place], found, time.perf_counter() - start)


def relative(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Time in units of SIMPLE's: medians of the ratios within a round."""
    reference = seconds[REFERENCE.label]
    return {
        label: median(mine / its for mine, its in zip(times, reference, strict=True))
        for label, times in seconds.items()
    }


def timed(
    results: Sequence[Measured], problems: Problems, draws: int, rounds: int, seed: int
) -> list[Measured]:
    """The results with their times relative to SIMPLE's."""
    methods = {REFERENCE.label: REFERENCE} | {r.method.label: r.method for r in results}
    seconds: dict[str, list[float]] = {label: [] for label in methods}
    with one_thread():
        for turn in turns(list(methods.values()), problems, draws, rounds, seed):
            seconds[turn.method.label].append(turn.seconds)
    times = relative(seconds)
    return [dataclasses.replace(r, time=times[r.method.label]) for r in results]
