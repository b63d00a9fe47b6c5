"""Pack codes narrower than a byte into a bit stream, and unpack them.

`bit_stream` packs consecutive codes. `arrays` packs whole arrays, or one part at a time.

Imports `machine` and `traversal`.
"""
