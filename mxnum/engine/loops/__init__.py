"""The compiled loops: rows, columns and tiles, what they mark, offsets, float scales, four over six, random bits.

Each takes flat arrays and numbers that say how to go through them. Imports `machine`, `rounding`, `traversal` and
`packing`.
"""
