"""The compiled loops that quantize and dequantize arrays.

Each loop takes flat arrays, and the integers of a `traversal.block_walk.Walk`, which say where rows
and blocks lie. Imports from other folders of the engine: `machine`, `rounding`, `traversal` and
`packing`.
"""
