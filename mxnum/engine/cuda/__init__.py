"""The kernels of mxnum for CUDA, and arrays in GPU memory. Only `driver` imports numba.cuda.

Imports `machine`, and those modules of `products` that compute sums by integers.
"""
