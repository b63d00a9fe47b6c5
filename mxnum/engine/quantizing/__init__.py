"""Quantizing and decoding arrays: the operations, and the plan of a call.

`host` has the operations, each of which runs a plan (`plan`). A plan splits arrays into contiguous
parts and runs a block transform (`transforms`) on each part. Transforms convert elements by the
loops of `conversion`. `float_scales` is the transform for scales that are floats. `choosing`
chooses the better of two scales for each block. `by_stack` has the loops for the arithmetic of a
software stack.

Imports `machine`, `rounding`, `traversal`, `packing` and `loops`.
"""
