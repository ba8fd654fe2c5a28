"""Compile all kernels ahead of the first call: in the build of an image, say.

python -m ksubset.kernels.cpu
"""

import sys
import time

from ksubset.kernels.cpu.ahead import compile_all

if __name__ == "__main__":
    start = time.perf_counter()
    folders = compile_all()
    if None in folders:
        sys.exit("CPU kernels are compiled but could not be kept")
    kept = " and ".join(sorted(filter(None, folders)))
    print(f"CPU kernels are compiled: {time.perf_counter() - start:.0f} s; kept in {kept}")
