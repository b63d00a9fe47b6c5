"""Orthogonal transforms of blocks. Each result is an exact sum that is rounded once.

`host` transforms whole arrays. `by_floats` has the loop for blocks whose sums are exact in float64,
and `by_integers` has the loop for all other blocks. Imports `machine` and `traversal`.
"""
