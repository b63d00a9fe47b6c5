"""The compiled loops that quantize and dequantize arrays.

Each loop takes flat arrays, and numbers that describe its walk through them. Imports `machine`,
`rounding`, `traversal` and `packing`.
"""
