"""Rounding fast: by float additions, at any scale, of float64 as float32, under scales that are floats; and which of
these is proved where.

Functions of one number, for loops to inline. Imports `machine`.
"""
