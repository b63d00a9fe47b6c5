"""Fast formulations of rounding: by float additions, at any scale, of float64 as float32, under
scales that are floats. `paths` lists which formulation is proved for which formats.

All functions here take one number, for loops to inline. Imports `machine`.
"""
