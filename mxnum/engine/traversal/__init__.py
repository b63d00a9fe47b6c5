"""How loops visit the blocks of an array: walks over blocks, memory order, contiguous parts,
blocked copies.

The modules know shapes, strides and blocks, but not what a loop computes. Imports `machine`.
"""
