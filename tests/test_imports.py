"""What importing the library does not import."""

from __future__ import annotations

import subprocess
import sys

OPTIONAL = ("captum", "matplotlib", "pysindy", "sklearn")


def test_optional_dependencies_are_not_imported_unasked() -> None:
    program = f"""
import sys, ksubset, ksubset.explain
assert not set({OPTIONAL}) & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
