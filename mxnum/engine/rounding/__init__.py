"""Fast formulations of rounding.

They round by float additions, at any scale, float64 as float32, and under scales that are floats.
`paths` lists which formulation is proved for which formats.

All functions here take one number, for loops to inline. Imports `machine`.
"""
