"""How loops traverse the blocks of an array, and how arrays are cut into contiguous parts.

The modules of this folder know shapes, strides and blocks, but not what a loop computes.

Imports `machine`.
"""
