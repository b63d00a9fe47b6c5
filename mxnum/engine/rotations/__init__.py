"""Orthogonal transforms of blocks, each result an exact sum that is rounded once.

`host` goes through arrays; `by_floats` has the loop for blocks whose sums float64 holds, `by_integers` the one for all.
Imports `machine` and `traversal`.
"""
