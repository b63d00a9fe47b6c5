"""Walks of loops over the blocks of an array, contiguous parts of arrays, and blocked copies.

The modules know shapes, strides and blocks, but not what a loop computes. Imports `machine`.
"""
