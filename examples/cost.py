"""What does exact sampling cost on this machine? Time of a sample with its gradient, against k.

    python examples/cost.py [--output outputs/cost.png]

A quick look, with the lean baseline and the clock of the benchmark; all methods and shapes are
in benchmarks/run.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from figures import BLUE, GREEN, GREY, ORANGE, save
from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import machine
from contest import OURS, REFERENCE, Problem, Shape, operations, samplers
from timing import Call, Task, interleave, summarise

import ksubset

ROWS, N, SIZES, REPEATS = 32, 1000, (1, 3, 10, 30, 100, 300), 25
SWAP = "ksubset.swap"
# The last finds the k largest logits, without noise or a subset's gradient: a floor.
COLOURS = {OURS: BLUE, SWAP: GREEN, REFERENCE: ORANGE, "torch.topk alone": GREY}
Times = dict[str, list[float]]


def warm(name: str, k: int) -> Call:
    """Forward and backward, called once: what is compiled on a first call is not timed."""
    shape = Shape(ROWS, N, k)
    table = {SWAP: ksubset.swap} | samplers(shape, graphs=False)
    call = operations(table[name], Problem.draw(shape, "cpu", seed=0))
    call["both"]()
    return call["both"]


def milliseconds() -> Times:
    """Medians for every k. The methods take turns, so that noise hits all alike."""
    tasks = {name: Task({str(k): warm(name, k) for k in SIZES}) for name in COLOURS}
    times = interleave(tasks, REPEATS, "cpu")
    return {
        name: [summarise(times[name][str(k)], reference={}).ms for k in SIZES] for name in COLOURS
    }


def draw(times: Times) -> Figure:
    """Against k."""
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, colour in COLOURS.items():
        axis.semilogx(SIZES, times[name], "o-", color=colour, label=name)
    axis.set(
        title=f"{ROWS} rows of {N} logits, one thread of {machine.processor()}",
        xlabel="k",
        ylabel=f"forward and backward, ms (medians of {REPEATS})",
        ylim=(0, 1.4 * max(map(max, times.values()))),
    )
    axis.legend(frameon=False, loc="upper left")
    axis.grid(color="0.9")
    return figure


if __name__ == "__main__":
    machine.set_threads(1)
    save(draw(milliseconds()), "cost")
