"""The way through an array: the walk over blocks, memory order, contiguous parts, blocked copies.

Knows shapes, strides and blocks, not what is computed. Imports `machine`.
"""
