from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

# Workers share the cores already: more threads than cores wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# What takes longest begins first, or the other workers wait for it in the end.
LONG = (
    "test_interpreted", "test_against_the_log_space_dp[cpu-10000", "test_two_processes_are_one",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", type=int, default=400, metavar="N", help="rows that tests/fuzz tries (400)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.name.startswith(LONG))


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
