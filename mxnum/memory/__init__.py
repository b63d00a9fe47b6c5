"""Describe arrays and their memory: numpy arrays, tensors in host memory, and GPU arrays.

- `dtypes`: numpy dtypes on one side, format descriptions and bit patterns on the other;
- `tensors`: PyTorch tensors in host memory as arrays on the same memory, and back;
- `device`: arrays on a GPU, described without loading anything.
"""
