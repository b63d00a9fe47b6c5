"""Arrays that live on a GPU: the kernels of mxnum for CUDA. Only `driver` imports numba.cuda."""
