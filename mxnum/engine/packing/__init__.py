"""Packing: convert codes narrower than a byte to a bit stream and back, array by array or part by
part.

Imports `machine` and `traversal`.
"""
