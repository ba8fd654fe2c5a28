"""O(n) for any k: the memory of the spectral method, measured. (Times are in benchmarks/.)"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from ksubset import kernels


class PeakMemory(TorchDispatchMode):
    """Bytes of the storages created inside, at their peak. (It cannot look into operators, so
    it is put around the kernels.)"""

    def __init__(self) -> None:
        super().__init__()
        self.live = WeakIdKeyDictionary()
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, torch.Tensor):
                storage = part.untyped_storage()
                self.live[storage] = storage.nbytes()
        self.peak = max(self.peak, sum(self.live.values()))
        return result


@pytest.mark.parametrize("what", ["marginals", "covariance_product"])
def test_memory_does_not_grow_with_k(what: str) -> None:
    logits, v = torch.randn(16, 10_000), torch.randn(16, 10_000)
    peaks = {}
    for k in (10, 1000):
        size = torch.full((16,), k)
        with PeakMemory() as memory:
            if what == "marginals":
                kernels.infer(logits, size, "spectral")
            else:
                tilted = kernels.tilt(logits, size, "spectral")
                kernels.covariance_product(tilted, size, v, "spectral")
        peaks[k] = memory.peak / logits.numel()
    assert abs(peaks[1000] / peaks[10] - 1) < 0.2
    assert peaks[1000] < 20 * 4  # bytes per logit: twenty float32 vectors at most


def test_the_measure_sees_the_table_of_the_dynamic_programme() -> None:
    """The check can fail: the paper's table grows with k."""
    logits = torch.randn(1, 300)
    peaks = {}
    for k in (10, 100):
        with PeakMemory() as memory:
            kernels.infer(logits, torch.tensor([k]), "dp")
        peaks[k] = memory.peak
    assert peaks[100] > 4 * peaks[10]
