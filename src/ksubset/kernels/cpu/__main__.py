"""Compile all kernels ahead of the first call: in the build of an image, say.

python -m ksubset.kernels.cpu
"""

from ksubset.kernels.cpu.ahead import compile_all

if __name__ == "__main__":
    compile_all()
