"""What only a CUDA device can show."""

from __future__ import annotations

import pytest
import torch

import ksubset

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_captured_step_equals_the_eager_one_cuda() -> None:
    logits = torch.randn(64, 350, device="cuda", requires_grad=True)
    weights = torch.randn(64, 350, device="cuda")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        z = ksubset.simple(logits, 10)
        (gradient,) = torch.autograd.grad((z * weights).sum(), logits)
        return z.detach(), gradient

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    for seed in (1, 2):
        torch.cuda.manual_seed(seed)
        graph.replay()
        torch.cuda.manual_seed(seed)
        eager = step()
        torch.cuda.synchronize()
        for left, right in zip(captured, eager, strict=True):
            assert torch.equal(left, right)


def test_the_compiled_kernels_serve_auto_cuda() -> None:
    from ksubset.kernels.device import device_kernels

    assert device_kernels(torch.zeros(2, 300, device="cuda"), "auto") is not None
    assert device_kernels(torch.zeros(2, 300, device="cuda"), "spectral") is None
    assert device_kernels(torch.zeros(2, 300, device="cuda").double(), "auto") is None
