"""What an installed wheel must do, with nothing else there: ``python -I tests/installed.py FILE``.

Says how long the import takes and what it imports, then runs the examples of a document.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

OPTIONAL = ("sklearn", "scipy", "pysindy", "captum", "ray", "matplotlib", "rich", "typer", "jax")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def seconds(module: str) -> float:
    """To import it, in a fresh process; the least of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", f"import {module}"], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def imported() -> set[str]:
    """Distributions whose modules are there after the import, beyond those of torch."""
    program = "import sys, torch; before = set(sys.modules); import ksubset.functional; "
    program += "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )
    names = set(run.stdout.split())
    found = [name for name in OPTIONAL if name in names]
    if found:
        raise SystemExit(f"import ksubset imports {', '.join(found)}")
    packages = metadata.packages_distributions()
    return {package for name in names for package in packages.get(name, [])}


def main() -> None:
    """All of it."""
    import ksubset

    if "site-packages" not in str(ksubset.__file__):
        raise SystemExit(f"this is not an installed ksubset: {ksubset.__file__}")
    times = seconds("torch"), seconds("ksubset.functional")
    print(f"import torch: {times[0]:.2f} s; ksubset.functional with it: {times[1]:.2f} s")
    print(f"imported beside torch: {', '.join(sorted(imported()))}")
    namespace: dict[str, object] = {}
    blocks = BLOCK.findall(Path(sys.argv[1]).read_text(encoding="utf-8"))
    start = time.perf_counter()
    for block in blocks:
        exec(compile(block, sys.argv[1], "exec"), namespace)
    print(f"{len(blocks)} examples of {sys.argv[1]}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
