"""Peak memory of one call, above what was allocated before it.

On a GPU the caching allocator counts. On a CPU two counts are added up: torch's allocator, which
its profiler reports allocation by allocation, also inside operators; and Python's, which numpy
reports its buffers to. As the two peaks need not come at the same time, the sum is an upper bound.
Not seen: arrays that Numba allocates inside compiled functions, scratch of libraries that call
malloc by themselves, and threads' stacks.
"""

from __future__ import annotations

import os
import tracemalloc
from typing import Any

import torch
from timing import Call
from torch.autograd import profiler

# torch's profiler announces every start and stop on stderr.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def peak(call: Call, device: str) -> int:
    """Bytes of a call that is not the first, whose caches are filled. What it returns counts."""
    return _on_cuda(call) if device == "cuda" else _on_cpu(call)


def _on_cuda(call: Call) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _on_cpu(call: Call) -> int:
    tracemalloc.start()
    with profiler.profile(profile_memory=True, use_kineto=False) as recorded:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = call()
        _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return highest - before + _highest_of_torch(recorded)


def _highest_of_torch(recorded: profiler.profile) -> int:
    results: Any = recorded.kineto_results  # its annotations lack nbytes
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in results.events()
        if event.name() == "[memory]"
    )
    now = highest = 0
    for _, change in changes:
        now += change
        highest = max(highest, now)
    return highest
