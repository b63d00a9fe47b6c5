"""Rounding fast: by float additions, at any scale, of float64 as float32, and which of them is proved where.

Functions of one number, for loops to inline. Imports `machine`.
"""
