"""Quantizing and decoding arrays: the operations, and the plan that each call runs.

`host` defines the operations on numpy arrays. Each operation runs a plan, which `plan` defines. A
plan splits arrays into contiguous parts, and runs the loops of a block transform on each part.
`powers_of_two` defines the transform for scales that are powers of two, and `float_scales` defines
the transform for scales that are floats. `offsets` defines the transform for asymmetric scaling,
which also subtracts an offset from each block. `choosing` chooses the better of two scales for each
block. `by_stack` converts to and from NVFP4 in the arithmetic of a software stack.

Imports `machine`, `rounding`, `traversal`, `packing` and `loops`.
"""
