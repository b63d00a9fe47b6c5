"""The compiled loops: rows, columns and tiles, offsets of blocks, scales that are floats, four over six, random bits.

Each takes flat arrays and numbers that say how to go through them. Imports `machine`, `rounding`, `traversal` and
`packing`.
"""
