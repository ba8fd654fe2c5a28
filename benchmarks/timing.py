"""Milliseconds of calls, by the clock or by device events, interleaved among contestants."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Call = Callable[[], Any]

# A measurement lasts about this long, so that the clock's own cost does not show.
_TARGET_MS = {"cpu": 1.0, "cuda": 5.0}
_MOST_CALLS = 50
# A replay's launch costs more than the smallest kernels; in a training step it is shared by
# everything captured with them, here by so many calls.
CALLS_PER_GRAPH = 10


class NotCapturableError(RuntimeError):
    """The call asks the device a question that a graph cannot wait for."""


def measure(call: Call, calls: int, device: str) -> float:
    """Milliseconds of one call, from so many in a row."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return 1e3 * (time.perf_counter() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls


def _synchronises(call: Call) -> bool:
    """A failed capture leaves the generator's state unusable, so a call is asked beforehand."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        if "synchroniz" in str(error):
            return True
        raise
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


@dataclass(frozen=True)
class Captured:
    """A CUDA graph of several calls, to be called for a replay.

    It holds on to the call, and so to the tensors the graph reads, which nobody else may.
    """

    graph: torch.cuda.CUDAGraph
    call: Call
    result: Any  # of the last of the calls, as the last replay left it

    def __call__(self) -> None:
        """Replay."""
        self.graph.replay()


def capture(call: Call) -> Captured:
    """Record a call that has been warmed up. The current stream must not be the default one,
    and must be the one on which everything the call differentiates was computed."""
    if _synchronises(call):
        raise NotCapturableError("it synchronises with the host")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(CALLS_PER_GRAPH):
            result = call()
    return Captured(graph, call, result)


@dataclass
class Task:
    """The operations of one contestant, warmed up, and in how many calls one of them consists."""

    operations: Mapping[str, Call]
    calls_within: int = 1
    least: int = 2
    budget: float = math.inf  # seconds


def interleave(
    tasks: Mapping[str, Task], repeats: int, device: str
) -> dict[str, dict[str, dict[int, float]]]:
    """Milliseconds by task, operation and repeat, round-robin.

    A task too slow for its budget takes part in fewer repeats, spread evenly over them.
    """
    calls: dict[str, dict[str, int]] = {}
    turns: dict[str, set[int]] = {}
    for name, task in tasks.items():
        calls[name], cost = {}, 0.0
        for what, call in task.operations.items():
            once = measure(call, 1, device)
            wanted = math.ceil(_TARGET_MS[device] / max(once, 1e-6))
            calls[name][what] = min(wanted, _MOST_CALLS)
            cost += 1e-3 * once * calls[name][what]
        affordable = repeats if math.isinf(task.budget) else int(task.budget / cost)
        count = min(repeats, max(task.least, affordable))
        turns[name] = set(np.linspace(0, repeats - 1, count).round().astype(int).tolist())
    times: dict[str, dict[str, dict[int, float]]] = {
        name: {what: {} for what in task.operations} for name, task in tasks.items()
    }
    names = list(tasks)
    for turn in range(repeats):
        # Nobody always comes after the same neighbour at the same point of a round.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if turn not in turns[name]:
                continue
            for what, call in tasks[name].operations.items():
                elapsed = measure(call, calls[name][what], device)
                times[name][what][turn] = elapsed / tasks[name].calls_within
    return times


@dataclass(frozen=True)
class Summary:
    """A median of times with its quartiles, and the same of ratios to a reference."""

    ms: float
    ms_low: float
    ms_high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    repeats: int


def summarise(times: Mapping[int, float], reference: Mapping[int, float]) -> Summary:
    """Ratios are taken within a repeat: what slows the machine slows both."""
    low, ms, high = np.quantile(list(times.values()), (0.25, 0.5, 0.75)).tolist()
    ratios: list[float | None] = [None, None, None]
    if within := [x / reference[turn] for turn, x in times.items() if turn in reference]:
        ratios = np.quantile(within, (0.25, 0.5, 0.75)).tolist()
    return Summary(ms, low, high, ratios[1], ratios[0], ratios[2], len(times))
