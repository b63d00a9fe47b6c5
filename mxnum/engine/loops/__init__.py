"""The compiled loops that quantize and dequantize arrays.

The arguments of a loop are flat arrays, and the integers of a `traversal.block_walk.Walk`, which
describe the positions of rows and blocks. Imports from other folders of the engine: `machine`,
`rounding`, `traversal` and `packing`.
"""
