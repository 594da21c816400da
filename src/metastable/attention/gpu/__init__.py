"""Kernels for a CUDA device, in Triton and by torch."""
