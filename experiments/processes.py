"""Several processes, as `torchrun` starts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed

_ENDED: list[distributed.ProcessGroup | None] = []


@contextmanager
def process_group(device: torch.device) -> Iterator[tuple[int, int]]:
    """This process's rank and how many there are: (0, 1) when it was started by itself."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield distributed.get_rank(), world
    finally:
        # When a group goes, torch waits for its threads with the interpreter's lock in its hands.
        # They may still need it to let go of the last tensors: for ever, once in some hundred
        # times. So it goes with the process. Without a pause before that 2 of 28 runs aborted at
        # their end, and 0 of 56 with one: as if a thread had asked for the lock too late.
        time.sleep(0.5)
        _ENDED.append(distributed.group.WORLD)
        distributed.destroy_process_group()


def barrier() -> None:
    """Until all are here."""
    if distributed.is_initialized():
        distributed.barrier()
