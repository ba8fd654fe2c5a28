"""What an installed wheel must do, with nothing but torch or JAX there:
``python -I tests/installed.py FILE MODULE FRAMEWORK``.

Says how long the import of the module takes and what it imports beside the framework, then runs the
examples of a document.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

OPTIONAL = ("sklearn", "scipy", "pysindy", "captum", "ray", "matplotlib", "rich", "typer")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def seconds(module: str) -> float:
    """To import it, in a fresh process; the least of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", f"import {module}"], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def imported(module: str, framework: str) -> set[str]:
    """Distributions whose modules are there after the import, beyond those of the framework."""
    program = f"import sys, {framework}; before = set(sys.modules); import {module}; "
    program += "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )
    names = set(run.stdout.split())
    others = {"torch", "numba", "jax", "numpyro", "pyro"} - {"torch": {"torch", "numba"}}.get(
        framework, {framework}
    )
    found = sorted(names & {*OPTIONAL, *others})
    if found:
        raise SystemExit(f"import {module} imports {', '.join(found)}")
    packages = metadata.packages_distributions()
    return {package for name in names for package in packages.get(name, [])}


def main() -> None:
    """All of it."""
    import ksubset

    if "site-packages" not in str(ksubset.__file__):
        raise SystemExit(f"this is not an installed ksubset: {ksubset.__file__}")
    document, module, framework = sys.argv[1:]
    times = seconds(framework), seconds(module)
    print(f"import {framework}: {times[0]:.2f} s; {module} with it: {times[1]:.2f} s")
    print(f"imported beside it: {', '.join(sorted(imported(module, framework)))}")
    namespace: dict[str, object] = {}
    blocks = BLOCK.findall(Path(document).read_text(encoding="utf-8"))
    start = time.perf_counter()
    for block in blocks:
        exec(compile(block, document, "exec"), namespace)
    print(f"{len(blocks)} examples of {document}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
