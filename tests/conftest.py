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
    "test_picture",
    "test_interpreted",
    "test_against_the_log_space_dp[cpu-10000",
    "test_distributed_data_parallel",
    "test_two_processes_are_one",
    "test_a_small_study",
    "test_ray_on_this_machine",
    "test_killed_driver_and_killed_worker_on_a_cluster",
    "test_kernels_of_the_library_are_found_by_another_user",
    "test_compile_with_a_dynamic_batch",
    "test_every_document_is_a_page_and_formulas_are_drawn",
    "test_every_symbol_of_every_formula_is_drawn",
    "test_every_page_opens",
    "test_search_needs_no_server",
    "test_a_run_and_what_is_left_of_it",
    "test_many_nearly_equal_logits",
    "test_samples_follow_the_law",
    "test_rows_of_a_batch_follow_their_own_laws",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", type=int, default=400, metavar="N", help="rows that tests/fuzz tries (400)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        matches = (i for i, name in enumerate(LONG) if item.name.startswith(name))
        return next(matches, len(LONG))

    items.sort(key=place)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
