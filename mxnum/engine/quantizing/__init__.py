"""Quantizing and decoding arrays: the plan of a call, and the operations.

`host` has the operations, each of which runs a plan (`plan`). A plan goes through arrays part by part, and a block
transform (`transforms`) says what is done with each: conversions by loops with marks (`conversion`). Scales that are
floats are such a transform (`float_scales`), and `choosing` takes the better one of two; `by_stack` has the loops for
the arithmetic of a stack.

Imports `machine`, `rounding`, `traversal`, `packing` and `loops`.
"""
