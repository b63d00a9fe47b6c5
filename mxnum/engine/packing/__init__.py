"""Packing: codes narrower than a byte as a bit stream, and such arrays as what parts are taken of.

Imports `machine` and `traversal`.
"""
