"""How loops traverse the blocks of an array, and how arrays are cut into contiguous parts.

The modules of this folder handle shapes, strides and blocks. They do not depend on what a loop
computes.

Imports `machine`.
"""
