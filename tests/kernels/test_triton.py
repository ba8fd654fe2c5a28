"""The Triton kernels' logic, run on CPUs by Triton's interpreter, in a process of its own:
whether it interprets is decided on import. On CUDA the contract suite runs them for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_interpreted() -> None:
    script = Path(__file__).with_name("interpreted_triton.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    path = os.pathsep.join([str(script.parents[1]), environment.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, str(script)],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all right" in result.stdout
