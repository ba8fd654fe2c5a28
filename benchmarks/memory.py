"""Peak memory of one call, above what was allocated before it.

On a GPU the caching allocator counts. On a CPU two counts are added up, each from a call of its
own: torch's allocator, which its profiler reports allocation by allocation, also inside operators;
and Python's, which numpy reports its buffers to. As the two peaks need not come at the same time,
the sum is an upper bound. Not seen: arrays that Numba allocates inside compiled functions, scratch
of libraries that call malloc by themselves, and threads' stacks.
"""

from __future__ import annotations

import os
import tracemalloc

import torch
from timing import Call
from torch.autograd import profiler

# torch's profiler announces every start and stop on stderr.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def peak(call: Call, device: str) -> int:
    """Bytes. What the call returns counts: it is alive when the call ends."""
    call()  # caches are filled before, not by what is measured
    return _on_cuda(call) if device == "cuda" else _torch_on_cpu(call) + _python(call)


def _on_cuda(call: Call) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _torch_on_cpu(call: Call) -> int:
    with profiler.profile(profile_memory=True, use_kineto=False) as recorded:
        result = call()
    del result
    events = recorded.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    now = highest = 0
    for _, change in changes:
        now += change
        highest = max(highest, now)
    return highest


def _python(call: Call) -> int:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    result = call()
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return highest - before
