"""Kernels for CUDA devices, in Triton; imported only where it is needed."""
