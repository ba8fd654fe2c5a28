"""Compile all kernels ahead of the first call: in the build of an image, say.

python -m ksubset.kernels.cpu
"""

import time

from ksubset.kernels.cpu.ahead import compile_all

if __name__ == "__main__":
    start = time.perf_counter()
    folder = compile_all()
    print(f"CPU kernels are compiled: {time.perf_counter() - start:.0f} s; kept in {folder}")
