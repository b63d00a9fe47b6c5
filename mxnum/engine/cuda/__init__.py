"""CUDA kernels, and functions for arrays in GPU memory. Only `driver` imports numba.cuda.

Imports from other folders of the engine: `machine`, and the modules of `products` that compute sums
with integers.
"""
