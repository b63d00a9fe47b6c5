"""The compiled loops over rows, columns and tiles, over marked groups, and for offsets, float
scales and random bits.

Each loop takes flat arrays, and numbers that describe its walk through them. Imports `machine`,
`rounding`, `traversal` and `packing`.
"""
