"""Arrays that live on a GPU: the kernels of mxnum for CUDA. Only `driver` imports numba.cuda.

Imports `machine`, and of `products` what is done with the integers of a sum.
"""
