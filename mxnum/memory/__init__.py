"""Describe arrays and their memory: numpy arrays, tensors in host memory, and GPU arrays.

- `dtypes` converts between numpy dtypes, descriptions of formats and bit patterns.
- `tensors` converts PyTorch tensors in host memory to arrays that share the memory, and back.
- `device` describes arrays on a GPU without loading any package.
"""
