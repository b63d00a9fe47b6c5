"""CUDA kernels, and functions for arrays in GPU memory. Only `driver` imports numba.cuda.

Imports `machine`, and the modules of `products` that compute sums with integers.
"""
