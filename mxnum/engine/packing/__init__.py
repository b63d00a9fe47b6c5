"""Converts codes narrower than a byte to a bit stream and back.

Arrays are packed as a whole or part by part.

Imports `machine` and `traversal`.
"""
