"""Walks of loops over the blocks of an array, and contiguous parts of arrays.

The modules know shapes, strides and blocks, but not what a loop computes. Imports `machine`.
"""
