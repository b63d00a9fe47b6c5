"""Quantizing and decoding arrays: the operations, and the plan that each call runs.

`host` has the operations, each of which runs a plan (`plan`). A plan splits arrays into contiguous
parts, and runs the loops of a block transform on each part. `powers_of_two` has the transform for
scales that are powers of two. `offsets` has the transform for asymmetric scaling, which also
subtracts an offset from each block. `float_scales` has the transform for scales that are floats.
`choosing` chooses the better of two scales for each block. `by_stack` has the loops for the
arithmetic of a software stack.

Imports `machine`, `rounding`, `traversal`, `packing` and `loops`.
"""
