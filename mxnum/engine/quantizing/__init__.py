"""Quantizing and decoding arrays: the operations, and the plan that each call runs.

`host` has the operations, each of which runs a plan (`plan`). A plan splits arrays into contiguous
parts, and runs the loops of a block transform on each part. The transforms are `powers_of_two` and
`float_scales`, named after the scales, and `offsets`, which combines an offset with a scale that is
a power of two. `choosing` chooses the better of two scales for each block. `by_stack` has the loops
for the arithmetic of a software stack.

Imports `machine`, `rounding`, `traversal`, `packing` and `loops`.
"""
