"""The Triton kernels' logic, run on CPUs by Triton's interpreter, in a process of its own:
whether it interprets is decided on import. On CUDA the contract suite runs them for real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).with_name("interpreted_triton.py")
DOUBLES = Path(__file__).with_name("interpreted_doubles.py")
SHORT_ROWS = Path(__file__).with_name("interpreted_short_rows.py")

# What one process checks takes some 25 seconds, its start four of them.
PARTS = [
    ["check_samples_without_an_item", "check_impossible_counts"],
    ["check_samples_with_an_item", "check_bad_rows"],
    ["check_fallback_of_samples", "check_no_choice_left"],
    ["check_fallback_of_wide_rows"],
    ["check_first_leaves_of_8"],
    ["check_last_leaves_of_8"],
    ["check_first_leaves_of_30", "check_leaves_without_a_choice"],
    ["check_last_leaves_of_30"],
    ["check_many_draws", "check_swaps"],
    ["check_moments", "check_swaps_of_long_rows"],
    ["check_long_rows", "check_one_k_for_all_rows"],
    ["check_levels_far_apart", "check_long_samples"],
    ["check_power_sums"],
    ["check_samples_of_chunks"],
    ["check_samples_of_units", "check_samples_of_light_chunks"],
]

PARTS_OF_DOUBLES = [
    ["check_moments_of_doubles", "check_thresholds_of_doubles"],
    ["check_a_wider_row_of_doubles", "check_doubles_that_float32_has_no_room_for"],
    ["check_samples_of_doubles", "check_doubles_drawn_with_replacement"],
    ["check_doubles_by_leaves"],
    ["check_swaps_of_doubles", "check_modes", "check_log_outcomes"],
]

PARTS_OF_SHORT_ROWS = [
    ["check_short_moments"],
    ["check_short_moments_of_many_lanes"],
    ["check_lengths"],
    ["check_short_samples_of_one_leaf", "check_bad_short_rows"],
    ["check_short_samples_of_two_leaves", "check_no_short_rows"],
    ["check_short_samples_of_many_leaves"],
    ["check_short_fallback", "check_levels_far_apart_in_short_rows"],
    ["check_items_of_short_samples", "check_short_swaps"],
]


@pytest.mark.parametrize("checks", PARTS, ids=lambda checks: checks[0].removeprefix("check_"))
def test_interpreted(checks: list[str]) -> None:
    _run(SCRIPT, checks)


@pytest.mark.parametrize(
    "checks", PARTS_OF_DOUBLES, ids=lambda checks: checks[0].removeprefix("check_")
)
def test_interpreted_doubles(checks: list[str]) -> None:
    _run(DOUBLES, checks)


@pytest.mark.parametrize(
    "checks", PARTS_OF_SHORT_ROWS, ids=lambda checks: checks[0].removeprefix("check_")
)
def test_interpreted_short_rows(checks: list[str]) -> None:
    _run(SHORT_ROWS, checks)


def _run(script: Path, checks: list[str]) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    path = os.pathsep.join([str(SCRIPT.parents[1]), environment.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, str(script), *checks],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split() == checks


@pytest.mark.parametrize(
    ("script", "parts"),
    [(SCRIPT, PARTS), (DOUBLES, PARTS_OF_DOUBLES), (SHORT_ROWS, PARTS_OF_SHORT_ROWS)],
)
def test_no_check_is_left_out(script: Path, parts: list[list[str]]) -> None:
    written = re.findall(r"^def (check_\w+)\(\)", script.read_text(), re.MULTILINE)
    assert sorted(written) == sorted(name for checks in parts for name in checks)
